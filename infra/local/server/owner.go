package server

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/registration"
)

// ownerName is who the gateway's owner is: the user who started it.
func ownerName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "owner"
}

// members are the clusters of the pass, and the one to begin with.
type members struct {
	all     []kubeconfig.Context
	current string
}

// register makes every context of the kubeconfig files at path a member. A context that cannot be one is reported and
// left out; the others go on. It returns each context's namespace by cluster, and the cluster of the current context.
func register(ctx context.Context, out io.Writer, path, owner string, r *registration.Registrar) (namespaces map[string]string, current string, err error) {
	contexts, err := registration.Contexts(path)
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", path, err)
	}
	wanted := map[string][]string{} // cluster -> contexts
	for _, c := range contexts {
		name := registration.ClusterName(c.Name)
		wanted[name] = append(wanted[name], c.Name)
	}
	results, errs := make([]*registration.Result, len(contexts)), make([]error, len(contexts))
	var group errgroup.Group
	group.SetLimit(8) // a cluster that does not answer holds up no other
	for i, c := range contexts {
		group.Go(func() error {
			name := registration.ClusterName(c.Name)
			switch {
			case c.Err != nil:
				errs[i] = c.Err
			case name == "":
				errs[i] = fmt.Errorf("nothing of its name can be a cluster's; add it by another: clusterpass cluster add NAME --context %q", c.Name)
			case len(wanted[name]) > 1:
				errs[i] = fmt.Errorf("contexts %s would all be cluster %q; add them by other names: clusterpass cluster add NAME --context %q", strings.Join(wanted[name], ", "), name, c.Name)
			default:
				results[i], errs[i] = r.Register(ctx, registration.Request{
					Name: name, Kubeconfig: c.Kubeconfig, DirectUsers: []string{owner}, Replace: true, SameServer: true,
				})
			}
			return nil
		})
	}
	_ = group.Wait() // errs has them
	namespaces = map[string]string{}
	for i, c := range contexts {
		if errs[i] != nil {
			_, _ = fmt.Fprintf(out, "  %s: not registered: %v\n", c.Name, errs[i])
			continue
		}
		say(out, c.Name, results[i])
		name := results[i].Cluster.Name
		namespaces[name] = c.Namespace
		if c.Current {
			current = name
		}
	}
	return namespaces, current, nil
}

// say prints what became of a context.
func say(out io.Writer, context string, res *registration.Result) {
	name := res.Cluster.Name
	if name != context {
		name = context + " -> " + name
	}
	if res.Changed {
		_, _ = fmt.Fprintf(out, "  %s: registered, Kubernetes %s", name, res.Cluster.Status.KubernetesVersion)
	} else {
		_, _ = fmt.Fprintf(out, "  %s: registered already", name)
	}
	if res.Cluster.Mode() == v1alpha1.Direct {
		_, _ = fmt.Fprintf(out, "; its credential is used as it is, since it may not impersonate, and only %s may call", strings.Join(res.Cluster.Spec.DirectUsers, ", "))
	}
	_, _ = fmt.Fprintln(out)
}

// writeKubeconfig writes the owner's pass: a context for each cluster, named as the cluster.
func writeKubeconfig(path, url, owner string, serverCA, clientCA *pki.CA, m members) error {
	cert, key, err := clientCA.Client(owner, []string{"system:masters"})
	if err != nil {
		return err
	}
	data, err := kubeconfig.Write(kubeconfig.Gateway{URL: url, CA: serverCA.PEM()},
		clientcmdv1.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}, m.all, m.current)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".kubeconfig-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}
