package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/version"
)

// user is the gateway and credential of a user. Commands for users need no access to the stores.
type user struct {
	url     string                // URL of the gateway, without a path
	cluster *clientcmdapi.Cluster // CA and proxy of the gateway; its server is url
	auth    *clientcmdapi.AuthInfo
	known   []string // clusters with contexts in the kubeconfig
}

// answerTimeout is the deadline of each call. It is long, since an exec plugin may wait for a person to sign in.
const answerTimeout = 3 * time.Minute

type userFlags struct{ kubeconfig, context string }

func (f *userFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: kubectl's)")
	cmd.Flags().StringVar(&f.context, "context", "",
		"context that leads to the gateway (default: clusterpass, or else the current one)")
}

func (f *userFlags) load() (*user, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath, rules.WarnIfAllMissing = f.kubeconfig, false
	kc, err := rules.Load()
	if err != nil {
		return nil, err
	}
	name := f.context
	if name == "" {
		if name = kubeconfig.Own; kc.Contexts[name] == nil {
			name = kc.CurrentContext
		}
	}
	return userOf(kc, name)
}

func userOf(kc *clientcmdapi.Config, name string) (*user, error) {
	c, there := kc.Contexts[name], strings.Join(slices.Sorted(maps.Keys(kc.Contexts)), ", ")
	switch {
	case len(kc.Contexts) == 0:
		return nil,
			errors.New(
				"there is no kubeconfig, or no context in it; name a file with --kubeconfig, or make one with clusterpass login")
	case name == "":
		return nil,
			fmt.Errorf(
				"the kubeconfig has no current context; it has: %s; name one with --context, or make one with clusterpass login",
				there)
	case c == nil:
		return nil,
			fmt.Errorf(
				"the kubeconfig has no context %q; it has: %s; name one with --context, or make one with clusterpass login", name,
				there)
	}
	cluster, auth := kc.Clusters[c.Cluster], kc.AuthInfos[c.AuthInfo]
	if cluster == nil || auth == nil {
		return nil,
			fmt.Errorf("the context %q names cluster %q and user %q, and the kubeconfig does not have both", name, c.Cluster,
				c.AuthInfo)
	}
	base, err := gatewayOf(cluster.Server)
	if err != nil {
		return nil, fmt.Errorf("the context %q: %w", name, err)
	}
	u := &user{url: base, cluster: cluster.DeepCopy(), auth: auth.DeepCopy()}
	u.cluster.Server = base
	// Read only the files of this context. Those of others may be missing.
	if err := clientcmdapi.FlattenConfig(&clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{c.Cluster: u.cluster},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{c.AuthInfo: u.auth},
	}); err != nil {
		return nil, fmt.Errorf("the context %q: %w", name, err)
	}
	for _, other := range kc.Clusters {
		if at, ok := strings.CutPrefix(other.Server, base+kubeconfig.Path("")); ok && !slices.Contains(u.known, at) {
			u.known = append(u.known, at)
		}
	}
	return u, nil
}

func gatewayOf(server string) (string, error) {
	u, err := url.Parse(server)
	var paths []string
	for _, context := range kubeconfig.Common() {
		paths = append(paths, kubeconfig.Path(context))
	}
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("its server %q is no https:// URL", server)
	case u.Path == "/" || slices.Contains(paths, u.Path) || strings.HasPrefix(u.Path, kubeconfig.Path("")):
		return "https://" + u.Host, nil
	}
	return "", fmt.Errorf("its server %q is no gateway's: want one at /, /fleet, /fleet/@ or /clusters/NAME", server)
}

func (u *user) config() (*rest.Config, error) {
	cfg, err := clientcmd.NewDefaultClientConfig(*u.contexts("", nil), &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.Timeout, cfg.QPS, cfg.UserAgent = answerTimeout, -1, version.UserAgent()
	cfg.WarningHandler = rest.NoWarnings{} // the commands print their own messages
	return cfg, nil
}

func (u *user) contexts(prefix string, clusters []string) *clientcmdapi.Config {
	kc := clientcmdapi.NewConfig()
	kc.AuthInfos[prefix+kubeconfig.Own] = u.auth
	for _, name := range append(kubeconfig.Common(), clusters...) {
		cluster := u.cluster.DeepCopy()
		cluster.Server = u.url + kubeconfig.Path(name)
		kc.Clusters[prefix+name] = cluster
		kc.Contexts[prefix+name] = &clientcmdapi.Context{Cluster: prefix + name, AuthInfo: prefix + kubeconfig.Own}
	}
	if kc.CurrentContext = prefix + kubeconfig.Own; len(clusters) > 0 {
		kc.CurrentContext = prefix + clusters[0]
	}
	return kc
}

// reachable returns the names of the clusters that the user may call, and whether these are all clusters. A grant may
// still name a cluster that was removed, so reachable asks which clusters exist.
func (u *user) reachable(ctx context.Context) (names []string, isEvery bool, err error) {
	cfg, err := u.config()
	if err != nil {
		return nil, false, err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, false, err
	}
	rules, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, false, err
	}
	all, err := clusterNames(ctx, client)
	mayList := !apierrors.IsForbidden(err) // a caller who may not list clusters may still know their names
	if err != nil && mayList {
		return nil, false, err
	}
	isEvery, names = proxied(rules.Status.ResourceRules)
	if isEvery && mayList {
		return all, true, nil
	}
	names, err = u.addKnown(ctx, client, names)
	if err != nil {
		return nil, false, err
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if !mayList {
		return existing(ctx, client, names), false, nil
	}
	return slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(all, name) }), false, nil
}

func clusterNames(ctx context.Context, client kubernetes.Interface) (names []string, err error) {
	data, err := client.Discovery().RESTClient().Get().AbsPath("/apis", access.ClusterGroup, v1alpha1.Version,
		access.ClusterResource).DoRaw(ctx)
	var listed v1alpha1.ClusterList
	if err == nil {
		err = json.Unmarshal(data, &listed)
	}
	for i := range listed.Items {
		names = append(names, listed.Items[i].Name)
	}
	slices.Sort(names)
	return names, err
}

// addKnown adds the clusters of the kubeconfig that the user may call. A limited pass has no rules, so its clusters are
// checked one by one.
func (u *user) addKnown(ctx context.Context, client kubernetes.Interface, names []string) ([]string, error) {
	for _, name := range u.known {
		if slices.Contains(names, name) {
			continue
		}
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: "get", Group: access.ClusterGroup, Resource: access.ClusterResource, Subresource: access.ProxyResource,
					Name: name,
				}},
			}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if review.Status.Allowed {
			names = append(names, name)
		}
	}
	return names, nil
}

// existenceTimeout is enough for the gateway to answer that a cluster does not exist. It then calls no cluster.
const existenceTimeout = 5 * time.Second

// existing calls each cluster and returns those that the gateway knows, whatever they answer.
func existing(ctx context.Context, client kubernetes.Interface, names []string) []string {
	exists := make([]bool, len(names))
	var group errgroup.Group
	group.SetLimit(16)
	for i, name := range names {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, existenceTimeout)
			defer cancel()
			_, err := client.Discovery().RESTClient().Get().AbsPath(kubeconfig.Path(name), "version").DoRaw(ctx)
			exists[i] = !apierrors.IsNotFound(err)
			return nil
		})
	}
	_ = group.Wait() // it has no error
	var out []string
	for i, name := range names {
		if exists[i] {
			out = append(out, name)
		}
	}
	return out
}

func proxied(rules []authorizationv1.ResourceRule) (every bool, names []string) {
	has := func(list []string, any ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(any, s) })
	}
	const proxy = access.ClusterResource + "/" + access.ProxyResource
	for _, r := range rules {
		if has(r.Verbs, "get", "*") && has(r.APIGroups, access.ClusterGroup, "*") &&
			has(r.Resources, proxy, "*/"+access.ProxyResource, "*") {
			every = every || len(r.ResourceNames) == 0
			names = append(names, r.ResourceNames...)
		}
	}
	return every, names
}

func plain(err error) string {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return status.ErrStatus.Message
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	first, _, _ := strings.Cut(err.Error(), "\n") // client-go adds long explanations about plugins
	return first
}

func code(err error) int {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return int(status.ErrStatus.Code)
	}
	return 0
}
