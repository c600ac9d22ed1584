package keeper

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/test/cluster/pki"
)

// frontProxyName is the only client name from which the API server accepts X-Remote-* headers.
const frontProxyName = "front-proxy-client"

// All paths are absolute.
type files struct {
	dir, cluster, server, node, logs string

	ca             pairFiles // signs servers, users and nodes
	frontProxyCA   pairFiles // signs front proxies
	serving        pairFiles // the API server's
	kubeletServing pairFiles
	kubeletClient  pairFiles // the API server towards the kubelet
	frontProxy     pairFiles // the API server towards aggregated API servers
	tokens         pairFiles // service account tokens: public key in place of the certificate

	admin, controllerManager, scheduler, kwok, kubelet string // kubeconfigs
}

type pairFiles struct{ cert, key string }

func (f *files) path(name string) string { return filepath.Join(f.dir, name) }

func writeFiles(dir, cluster string, port int) (*files, error) {
	f := &files{
		dir: dir, cluster: cluster, node: cluster + "-node",
		server: "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
	}
	if err := os.MkdirAll(f.path("pki"), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of cluster %s: %w", cluster, err)
	}
	ca, err := pki.NewCA(cluster + "-ca")
	if err != nil {
		return nil, err
	}
	frontCA, err := pki.NewCA(cluster + "-front-proxy-ca")
	if err != nil {
		return nil, err
	}
	loopback := []net.IP{net.IPv4(127, 0, 0, 1)}
	tokenKey, tokenPublic, err := pki.SigningKey()
	if err != nil {
		return nil, err
	}

	w := &fileWriter{files: f}
	f.ca = w.pair("ca", ca.Pair)
	f.frontProxyCA = w.pair("front-proxy-ca", frontCA.Pair)
	f.tokens = w.pair("service-accounts", pki.Pair{Cert: tokenPublic, Key: tokenKey})
	f.serving = w.issue("apiserver", ca, pki.Subject{
		Name: "kube-apiserver",
		DNS: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
		IPs: append([]net.IP{net.IPv4(10, 96, 0, 1)}, loopback...),
	})
	f.kubeletServing = w.issue("kubelet", ca, pki.Subject{
		Name: "system:node:" + f.node, Groups: []string{"system:nodes"},
		DNS: []string{f.node, "localhost"}, IPs: loopback,
	})
	f.kubeletClient = w.issue("apiserver-kubelet-client", ca, pki.Subject{
		Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"},
	})
	f.frontProxy = w.issue("front-proxy-client", frontCA, pki.Subject{Name: frontProxyName})

	f.admin = w.kubeconfig("kubeconfig", ca, pki.Subject{Name: "admin", Groups: []string{"system:masters"}})
	f.controllerManager = w.kubeconfig("controller-manager.kubeconfig", ca,
		pki.Subject{Name: "system:kube-controller-manager"})
	f.scheduler = w.kubeconfig("scheduler.kubeconfig", ca, pki.Subject{Name: "system:kube-scheduler"})
	f.kwok = w.kubeconfig("kwok.kubeconfig", ca, pki.Subject{Name: "kwok", Groups: []string{"system:masters"}})
	w.write(kwokFile, kwokConfig)
	f.kubelet = w.kubeconfig("kubelet.kubeconfig", ca, pki.Subject{
		Name: "system:node:" + f.node, Groups: []string{"system:nodes"},
	})
	if w.err != nil {
		return nil, fmt.Errorf("write the files of cluster %s: %w", cluster, w.err)
	}
	return f, nil
}

type fileWriter struct {
	files *files
	err   error
}

func (w *fileWriter) issue(name string, ca *pki.CA, s pki.Subject) pairFiles {
	pair, err := ca.Issue(s)
	if err != nil && w.err == nil {
		w.err = err
	}
	return w.pair(name, pair)
}

func (w *fileWriter) pair(name string, pair pki.Pair) pairFiles {
	return pairFiles{cert: w.write("pki/"+name+".crt", pair.Cert), key: w.write("pki/"+name+".key", pair.Key)}
}

func (w *fileWriter) kubeconfig(name string, ca *pki.CA, s pki.Subject) string {
	user, err := ca.Issue(s)
	if err == nil {
		var text []byte
		text, err = clientcmd.Write(*Kubeconfig(w.files.cluster, w.files.server, ca.Cert, user))
		if err == nil {
			return w.write(name, text)
		}
	}
	if w.err == nil {
		w.err = err
	}
	return ""
}

func (w *fileWriter) write(name string, data []byte) string {
	path := w.files.path(name)
	if w.err == nil {
		w.err = os.WriteFile(path, data, 0o600)
	}
	return path
}

// Kubeconfig returns a kubeconfig with inline data only, whose cluster, context and user are all called name.
func Kubeconfig(name, server string, ca []byte, user pki.Pair) *clientcmdapi.Config {
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: user.Cert, ClientKeyData: user.Key}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	return c
}
