package keeper

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	pollEvery    = 50 * time.Millisecond
	checkTimeout = 10 * time.Second
)

type readiness struct {
	member  *member
	started []*process // those whose end means that the cluster will not be ready
	http    *http.Client
	client  *kubernetes.Clientset
}

func newReadiness(m *member) (*readiness, error) {
	config, err := clientcmd.BuildConfigFromFlags("", m.files.admin)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of %s: %w", m.spec.Name, err)
	}
	config.QPS = -1
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	return &readiness{member: m, http: httpClient, client: client}, nil
}

func (r *readiness) close() { r.http.CloseIdleConnections() }

func (r *readiness) apiServer(ctx context.Context) error {
	return r.wait(ctx, "the API server is ready", func(ctx context.Context) error {
		return r.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// cluster waits until pods can be made and run: the default namespace and its service account exist, and the kubelet's
// node is ready. A minimal cluster has no service accounts.
func (r *readiness) cluster(ctx context.Context) error {
	err := r.wait(ctx, "the controllers are at work", func(ctx context.Context) (err error) {
		if r.member.spec.Minimal {
			_, err = r.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		} else {
			_, err = r.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		}
		return err
	})
	if err != nil || r.member.spec.NoKubelet {
		return err
	}
	name := r.member.files.node
	return r.wait(ctx, "node "+name+" is ready", func(ctx context.Context) error {
		node, err := r.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return r.kubelet(ctx, node)
			}
		}
		return fmt.Errorf("node %s is not ready yet", name)
	})
}

// After a restart the node's condition may be outdated, so this calls the kubelet directly. The API server's proxy
// (nodes/proxy) refuses loopback addresses.
func (r *readiness) kubelet(ctx context.Context, node *corev1.Node) error {
	f := r.member.files
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		CAFile: f.ca.cert, CertFile: f.kubeletClient.cert, KeyFile: f.kubeletClient.key,
	}})
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	port := strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"https://"+net.JoinHostPort("127.0.0.1", port)+"/healthz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the kubelet of %s responds with %s", node.Name, response.Status)
	}
	return nil
}

// wait polls check until it succeeds. It fails if a started component ends.
func (r *readiness) wait(ctx context.Context, what string, check func(context.Context) error) error {
	for {
		once, cancel := context.WithTimeout(ctx, checkTimeout)
		err := check(once)
		cancel()
		if err == nil {
			return nil
		}
		for _, p := range r.started {
			if failed := p.failed(); failed != nil {
				return fmt.Errorf("cluster %s: %w", r.member.spec.Name, failed)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cluster %s: wait until %s: %w (last: %w)", r.member.spec.Name, what, context.Cause(ctx), err)
		case <-time.After(pollEvery):
		}
	}
}
