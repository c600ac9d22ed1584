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
)

// user is how somebody uses a gateway: what the commands for users, which know nothing of its stores, share.
type user struct {
	url     string                // the gateway's, without a path
	cluster *clientcmdapi.Cluster // how it is reached: CA, proxy; its server is url
	auth    *clientcmdapi.AuthInfo
	known   []string // clusters that the kubeconfig has contexts for
}

// answerTimeout bounds each call that these commands make: an exec plugin may ask a person to sign in.
const answerTimeout = 3 * time.Minute

// userFlags say which kubeconfig and which of its contexts lead to the gateway.
type userFlags struct{ kubeconfig, context string }

func (f *userFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: kubectl's)")
	cmd.Flags().StringVar(&f.context, "context", "",
		"context that leads to the gateway (default: clusterpass, or else the current one)")
}

// load finds the gateway and the credential for it.
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

// userOf reads one context of a kubeconfig, whose server is a gateway's.
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
	// The files of this context only: others may be long gone.
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

// gatewayOf is the URL of the gateway at which a context's server is.
func gatewayOf(server string) (string, error) {
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("its server %q is no https:// URL", server)
	case u.Path == "" || u.Path == "/" || u.Path == kubeconfig.Path(kubeconfig.Fleet) ||
		strings.HasPrefix(u.Path, kubeconfig.Path("")):
		return "https://" + u.Host, nil
	}
	return "", fmt.Errorf("its server %q is no gateway's: want one at /, /fleet or /clusters/NAME", server)
}

// config is how the gateway itself is called.
func (u *user) config() (*rest.Config, error) {
	cfg, err := clientcmd.NewDefaultClientConfig(*u.contexts("", nil), &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.Timeout, cfg.QPS = answerTimeout, -1
	cfg.WarningHandler = rest.NoWarnings{} // these commands say themselves what there is to say
	return cfg, nil
}

// contexts is a kubeconfig of u's: a context for each cluster, one for the fleet and one for the gateway itself.
func (u *user) contexts(prefix string, clusters []string) *clientcmdapi.Config {
	kc := clientcmdapi.NewConfig()
	kc.AuthInfos[prefix+kubeconfig.Own] = u.auth
	for _, name := range append([]string{kubeconfig.Own, kubeconfig.Fleet}, clusters...) {
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

// reachable lists the clusters that u may read from.
func (u *user) reachable(ctx context.Context) ([]string, error) {
	cfg, err := u.config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	rules, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	every, names := proxied(rules.Status.ResourceRules)
	if every {
		data, err := client.RESTClient().Get().AbsPath("/apis", access.ClusterGroup, v1alpha1.Version,
			access.ClusterResource).DoRaw(ctx)
		var listed v1alpha1.ClusterList
		if err == nil {
			err = json.Unmarshal(data, &listed)
		}
		if err != nil && !apierrors.IsForbidden(err) { // who may not list them knows their names
			return nil, err
		}
		for i := range listed.Items {
			names = append(names, listed.Items[i].Name)
		}
	}
	// A limited pass has no rules. What it reaches is asked one by one, of those that there is a reason to ask for.
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
	slices.Sort(names)
	return slices.Compact(names), nil
}

// proxied says by rules which clusters somebody may read from: every, or those of certain names.
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

// plain says in few words what went wrong with a call.
func plain(err error) string {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return status.ErrStatus.Message
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	first, _, _ := strings.Cut(err.Error(), "\n") // client-go explains plugins at length
	return first
}

// code is the HTTP status of a call that failed; 0 where there was no answer.
func code(err error) int {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return int(status.ErrStatus.Code)
	}
	return 0
}
