package server

import (
	"context"
	"io"
	"os"
	"os/user"
	"path/filepath"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/registration"
)

func ownerName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "owner"
}

// registerContexts registers the contexts of CLUSTERPASS_REGISTER, and returns all clusters of the stores.
func registerContexts(ctx context.Context, cfg *Config, p *assembly.Parts, gateway ownAddress, out io.Writer) (
	registered, error,
) {
	c := &contexts{
		registrar: &registration.Registrar{
			Secrets: p.Stores.Secrets, Objects: p.Stores.Objects, Policy: p.DialPolicy(nil),
		},
		out: out, owner: ownerName(), mayPlugins: cfg.Functions != Process, lockDir: cfg.Data, gateway: gateway,
		plugins: cluster.Plugins{},
	}
	clusters := registered{plugins: c.plugins}
	var namespaces map[string]string
	if cfg.Register == "" {
		clusters.explained = c.offer()
	} else {
		var err error
		clusters.explained = true
		if namespaces, clusters.current, err = c.register(ctx, cfg.Register); err != nil {
			return clusters, err
		}
	}
	all, err := c.registrar.Clusters(ctx)
	for _, one := range all {
		clusters.all = append(clusters.all, kubeconfig.Context{Cluster: one.Name, Namespace: namespaces[one.Name]})
		if _, isNew := namespaces[one.Name]; clusters.current == "" && isNew {
			clusters.current = one.Name
		}
	}
	if clusters.current == "" && len(clusters.all) > 0 {
		clusters.current = clusters.all[0].Cluster
	}
	return clusters, err
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
