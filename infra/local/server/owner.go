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
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/registration"
)

func ownerName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "owner"
}

type registered struct {
	all     []kubeconfig.Context
	current string // the cluster of the current context; "" if there are no clusters
}

func registerContexts(ctx context.Context, cfg *Config, p *assembly.Parts, out io.Writer) (registered, error) {
	r := &registration.Registrar{
		Secrets: p.Stores.Secrets, Objects: p.Stores.Objects,
		Policy: p.DialPolicy(nil),
	}
	var clusters registered
	var namespaces map[string]string
	if cfg.Register != "" {
		_, _ = fmt.Fprintf(out, "Registering the contexts of %s:\n", cfg.Register)
		var err error
		if namespaces, clusters.current, err = register(ctx, out, cfg.Register, ownerName(), r); err != nil {
			return clusters, err
		}
	}
	all, err := r.Clusters(ctx)
	for _, c := range all {
		clusters.all = append(clusters.all, kubeconfig.Context{Cluster: c.Name, Namespace: namespaces[c.Name]})
		if _, isNew := namespaces[c.Name]; clusters.current == "" && isNew {
			clusters.current = c.Name
		}
	}
	if clusters.current == "" && len(clusters.all) > 0 {
		clusters.current = clusters.all[0].Cluster
	}
	return clusters, err
}

// register registers every context of the kubeconfig files at path, and prints those that fail. It returns each
// context's namespace by cluster, and the cluster of the current context.
func register(
	ctx context.Context, out io.Writer, path, owner string, r *registration.Registrar,
) (namespaces map[string]string, current string, err error) {
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
	group.SetLimit(8) // a cluster that does not respond delays no other
	for i, c := range contexts {
		group.Go(func() error {
			name := registration.ClusterName(c.Name)
			switch {
			case c.Err != nil:
				errs[i] = c.Err
			case name == "":
				errs[i] = fmt.Errorf("its name cannot be made a cluster's name; add it under another one: clusterpass cluster "+
					"add NAME --context %q", c.Name)
			case len(wanted[name]) > 1:
				errs[i] = fmt.Errorf("contexts %s would all be cluster %q; add them under other names: clusterpass cluster add "+
					"NAME --context %q",
					strings.Join(wanted[name], ", "), name, c.Name)
			default:
				results[i], errs[i] = r.Register(ctx, registration.Request{
					Name: name, Kubeconfig: c.Kubeconfig, DirectUsers: []string{owner}, Replace: true, SameServer: true,
				})
			}
			return nil
		})
	}
	_ = group.Wait() // errors are in errs
	namespaces = map[string]string{}
	for i, c := range contexts {
		if errs[i] != nil {
			_, _ = fmt.Fprintf(out, "  %s: not registered: %v\n", c.Name, errs[i])
			continue
		}
		printRegistered(out, c.Name, results[i])
		name := results[i].Cluster.Name
		namespaces[name] = c.Namespace
		if c.Current {
			current = name
		}
	}
	return namespaces, current, nil
}

func printRegistered(out io.Writer, context string, res *registration.Result) {
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
		_, _ = fmt.Fprintf(out,
			"; its credential may not impersonate, so all requests use it, and only %s may call",
			strings.Join(res.Cluster.Spec.DirectUsers, ", "))
	}
	_, _ = fmt.Fprintln(out)
}

func writeKubeconfig(path, url, owner string, ca authorities, clusters registered) error {
	cert, key, err := ca.client.Client(owner, []string{"system:masters"})
	if err != nil {
		return err
	}
	data, err := kubeconfig.Write(kubeconfig.Gateway{URL: url, CA: ca.server.PEM()},
		clientcmdv1.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}, clusters.all, clusters.current)
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
