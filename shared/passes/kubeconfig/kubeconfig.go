// Package kubeconfig writes passes as kubeconfigs. A kubeconfig has contexts for clusters, the fleet and the gateway.
package kubeconfig

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// Gateway is the gateway that a pass belongs to.
type Gateway struct {
	URL string // without a path
	CA  []byte // PEM; nil means the system's CAs
}

// Context is the context of one member cluster.
type Context struct {
	Cluster   string
	Namespace string // "" for the default namespace
}

const (
	// Own is the name of the user and of the gateway's own context. No member cluster can have that name.
	Own = "clusterpass"
	// Fleet is the context of all clusters together. No member cluster can have that name.
	Fleet = "fleet"
	// FleetNames is the context of all clusters together, whose responses have every name with its cluster. No member
	// cluster can have that name.
	FleetNames = "fleet@"
)

// Common returns the names of the contexts that every kubeconfig has.
func Common() []string { return []string{Own, Fleet, FleetNames} }

// Path returns the path of a context's server at the gateway.
func Path(context string) string {
	switch context {
	case Own:
		return ""
	case Fleet:
		return "/fleet"
	case FleetNames:
		return "/fleet/@"
	}
	return "/clusters/" + context
}

// Write returns a kubeconfig with a credential. The current context "" means the first of contexts, or Own if there are
// none.
func Write(g Gateway, credential clientcmdv1.AuthInfo, contexts []Context, current string) ([]byte, error) {
	kc := clientcmdv1.Config{
		Kind: "Config", APIVersion: "v1", CurrentContext: current,
		AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: Own, AuthInfo: credential}},
	}
	add := func(name, namespace string) {
		kc.Clusters = append(kc.Clusters, clientcmdv1.NamedCluster{Name: name,
			Cluster: clientcmdv1.Cluster{Server: g.URL + Path(name), CertificateAuthorityData: g.CA}})
		kc.Contexts = append(kc.Contexts, clientcmdv1.NamedContext{Name: name,
			Context: clientcmdv1.Context{Cluster: name, AuthInfo: Own, Namespace: namespace}})
	}
	for _, name := range Common() {
		add(name, "")
	}
	for _, c := range contexts {
		add(c.Cluster, c.Namespace)
	}
	switch {
	case current == "" && len(contexts) > 0:
		kc.CurrentContext = contexts[0].Cluster
	case current == "":
		kc.CurrentContext = Own
	}
	return yaml.Marshal(kc)
}

// Read returns the gateway of a kubeconfig from Write. It also accepts the gateway's URL instead of a path, if the
// system trusts the gateway's certificate.
func Read(path string) (Gateway, error) {
	if strings.HasPrefix(path, "https://") {
		u, err := url.Parse(path)
		if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" ||
			u.Fragment != "" {
			return Gateway{}, fmt.Errorf(
				"%q is not a gateway's URL; use one without a path, such as https://clusterpass.example.com", path)
		}
		return Gateway{URL: "https://" + u.Host}, nil
	}
	kc, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return Gateway{}, fmt.Errorf("read the gateway's URL: %w", err)
	}
	if c := kc.Clusters[Own]; c != nil {
		return Gateway{URL: c.Server, CA: c.CertificateAuthorityData}, nil
	}
	return Gateway{}, fmt.Errorf(
		"read the gateway's URL: %s has no cluster %q; use a kubeconfig that clusterpass wrote", path, Own)
}
