package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/homedir"

	"github.com/clusterpass/clusterpass/infra/local/plugin"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	clusterconfig "github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// registered are the clusters in the stores.
type registered struct {
	all     []kubeconfig.Context
	current string          // the cluster of the current context; "" if there are no clusters
	plugins cluster.Plugins // the credential plugins of contexts
	// explained means that the output has what to do about contexts that are not registered.
	explained bool
}

// contexts registers the contexts of the user's kubeconfig, and prints what becomes of each.
type contexts struct {
	registrar  *registration.Registrar
	out        io.Writer
	owner      string
	mayPlugins bool   // run credential plugins
	lockDir    string // plugin.Options.LockDir
	gateway    ownAddress

	plugins cluster.Plugins
}

// candidate is a context to register. err is why it cannot be registered.
type candidate struct {
	registration.Context
	cluster string        // "" if the context's name yields none
	stored  secrets.Value // its kubeconfig without the definition of a plugin
	plugin  *plugin.Plugin
	err     error
}

// ownAddress recognizes contexts that lead to this gateway.
type ownAddress struct {
	ca    []byte   // PEM
	hosts []string // with ports
}

func (g ownAddress) has(c *clientcmdapi.Cluster) bool {
	if len(g.ca) > 0 && bytes.Equal(bytes.TrimSpace(c.CertificateAuthorityData), bytes.TrimSpace(g.ca)) {
		return true
	}
	u, err := url.Parse(c.Server)
	return err == nil && slices.Contains(g.hosts, u.Host)
}

// open returns the candidates among the contexts of the kubeconfig files at path, and the names of the other contexts,
// which lead to this gateway.
func (c *contexts) open(path string) (candidates []*candidate, own []string, err error) {
	all, err := registration.Contexts(path)
	if err != nil {
		return nil, nil, err
	}
	sharing := map[string][]string{} // cluster -> contexts
	for _, one := range all {
		if c.isOwn(one) {
			own = append(own, one.Name)
			continue
		}
		name := registration.ClusterName(one.Name)
		sharing[name] = append(sharing[name], one.Name)
		candidates = append(candidates, &candidate{Context: one, cluster: name})
	}
	for _, one := range candidates {
		switch same := sharing[one.cluster]; {
		case one.Err != nil:
			one.err = one.Err
		case one.cluster == "":
			one.err = fmt.Errorf("its name cannot be made a cluster's name; add it under another one: clusterpass cluster "+
				"add NAME --context %q", one.Name)
		case len(same) > 1:
			one.err = fmt.Errorf("contexts %s would all be cluster %q; add them under other names: clusterpass cluster add "+
				"NAME --context %q", strings.Join(same, ", "), one.cluster, one.Name)
		default:
			one.plugin, one.stored, one.err = plugin.Open(one.Kubeconfig, plugin.Options{LockDir: c.lockDir})
			if one.err == nil {
				_, one.err = clusterconfig.Parse(one.stored.Reveal(), clusterconfig.Options{})
			}
		}
		if one.plugin != nil && one.err == nil && !c.mayPlugins {
			one.err = fmt.Errorf("functions in processes of their own run no credential plugin such as %q; start the gateway "+
				"with --functions=inline", one.plugin.Name())
		}
	}
	return candidates, own, nil
}

func (c *contexts) isOwn(one registration.Context) bool {
	if one.Err != nil {
		return false
	}
	kc, err := clientcmd.Load(one.Kubeconfig.Reveal())
	if err != nil || kc.Contexts[kc.CurrentContext] == nil {
		return false // the registration reports it
	}
	cluster := kc.Clusters[kc.Contexts[kc.CurrentContext].Cluster]
	return cluster != nil && c.gateway.has(cluster)
}

// signInTime is how long the start waits for all credential plugins together. Plugins that wait for a person continue.
const signInTime = 3 * time.Minute

// register registers all contexts of the kubeconfig files at path. It returns each context's namespace by cluster, and
// the cluster of the current context.
func (c *contexts) register(ctx context.Context, path string) (
	namespaces map[string]string, current string, err error,
) {
	candidates, own, err := c.open(path)
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", path, err)
	}
	_, _ = fmt.Fprintf(c.out, "Registering the contexts of %s:\n", path)
	if len(own) > 0 {
		_, _ = fmt.Fprintf(c.out, "  %s: not registered: this gateway itself\n", strings.Join(own, ", "))
	}
	for _, one := range candidates {
		if one.plugin != nil && one.err == nil {
			// Requests use it if the cluster was registered with it before, even if it fails now.
			c.plugins[one.cluster] = cluster.Plugin{Plugin: one.plugin, Kubeconfig: one.stored}
		}
	}
	results := make([]*registration.Result, len(candidates))
	var direct errgroup.Group
	direct.SetLimit(8) // a cluster that does not respond delays no other
	for i, one := range candidates {
		if one.plugin == nil && one.err == nil {
			direct.Go(func() error {
				results[i], one.err = c.registerOne(ctx, one)
				return nil
			})
		}
	}
	signIn, cancel := context.WithTimeout(ctx, signInTime)
	defer cancel()
	for i, one := range candidates { // people sign in to one cluster after the other
		switch {
		case one.plugin == nil || one.err != nil:
		case signIn.Err() != nil:
			one.err = fmt.Errorf("its credential plugin %q did not run, because the others lasted %v; sign in, and start the "+
				"gateway again", one.plugin.Name(), signInTime)
		default:
			_, _ = fmt.Fprintf(c.out, "  %s: runs the credential plugin %q\n", one.Name, one.plugin.Name())
			results[i], one.err = c.registerOne(signIn, one)
		}
	}
	_ = direct.Wait() // errors are in candidates
	namespaces = map[string]string{}
	for i, one := range candidates {
		if one.err != nil {
			_, _ = fmt.Fprintf(c.out, "  %s: not registered: %v\n", one.Name, one.err)
			continue
		}
		c.printRegistered(one.Name, results[i])
		namespaces[one.cluster] = one.Namespace
		if one.Current {
			current = one.cluster
		}
	}
	return namespaces, current, nil
}

func (c *contexts) registerOne(ctx context.Context, one *candidate) (*registration.Result, error) {
	req := registration.Request{
		Name: one.cluster, Kubeconfig: one.stored, DirectUsers: []string{c.owner}, Replace: true, SameServer: true,
	}
	if one.plugin != nil {
		if err := c.runPlugin(ctx, one.plugin); err != nil {
			return nil, err
		}
		req.Identity, req.Plugin = v1alpha1.Direct, one.plugin
	}
	return c.registrar.Register(ctx, req)
}

// runPlugin runs the plugin before the registration, which only uses its latest credential.
func (c *contexts) runPlugin(ctx context.Context, p *plugin.Plugin) error {
	switch _, err := p.Credential(ctx); {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("its credential plugin %q still runs; sign in, and start the gateway again", p.Name())
	case errors.Is(err, plugin.ErrMissing) && p.InstallHint() != "":
		return fmt.Errorf("its credential plugin %q failed: %w\n%s", p.Name(), err, p.InstallHint())
	case err != nil:
		return fmt.Errorf("its credential plugin %q failed: %w", p.Name(), err)
	}
	return nil
}

func (c *contexts) printRegistered(context string, res *registration.Result) {
	name := res.Cluster.Name
	if name != context {
		name = context + " -> " + name
	}
	if res.Changed {
		_, _ = fmt.Fprintf(c.out, "  %s: registered, Kubernetes %s", name, res.Cluster.Status.KubernetesVersion)
	} else {
		_, _ = fmt.Fprintf(c.out, "  %s: registered already", name)
	}
	users := strings.Join(res.Cluster.Spec.DirectUsers, ", ")
	switch isDirect := res.Cluster.Mode() == v1alpha1.Direct; {
	case isDirect && c.plugins[res.Cluster.Name].Plugin != nil:
		_, _ = fmt.Fprintf(c.out, "; all requests use the credential of its plugin, and only %s may call", users)
	case isDirect:
		_, _ = fmt.Fprintf(c.out,
			"; its credential may not impersonate, so all requests use it, and only %s may call", users)
	}
	_, _ = fmt.Fprintln(c.out)
}

// offer prints which contexts of kubectl's default kubeconfig would be registered, and the command that registers them.
// It runs no plugin and calls no cluster. It returns false if there are no contexts.
func (c *contexts) offer() bool {
	path := filepath.Join(homedir.HomeDir(), ".kube", "config")
	candidates, _, err := c.open(path)
	if err != nil || len(candidates) == 0 {
		return false // if the file is broken, kubectl explains it
	}
	_, _ = fmt.Fprintf(c.out, "KUBECONFIG is not set, so no context is registered. %s has these contexts:\n", path)
	for _, one := range candidates {
		switch {
		case one.err != nil:
			_, _ = fmt.Fprintf(c.out, "  %s: would not be registered: %v\n", one.Name, one.err)
		case one.plugin != nil:
			_, _ = fmt.Fprintf(c.out, "  %s, with the credential plugin %q\n", one.Name, one.plugin.Name())
		default:
			_, _ = fmt.Fprintf(c.out, "  %s\n", one.Name)
		}
	}
	_, _ = fmt.Fprintf(c.out, "To register them, stop the gateway, and start it again after:\n\n"+
		"  export KUBECONFIG=%q\n", path)
	return true
}
