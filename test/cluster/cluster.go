// Package cluster starts real Kubernetes clusters on this machine for tests, the demo and benchmarks.
//
//	func TestThings(t *testing.T) {
//		set := cluster.Start(t, cluster.Options{Clusters: []string{"member1", "member2"}})
//		client, err := kubernetes.NewForConfig(set.Cluster("member1").RESTConfig())
//		…
//	}
//
// Each cluster has a real etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok and process kubelet
// (test/kubelet), on loopback and with its own CA. Pods run on the process kubelet's node, CLUSTER-node. Package
// test/cluster/load adds fake nodes with thousands of pods, which kwok simulates. A set of clusters is ready within
// seconds, once the programs are built: see test/cluster/build.
//
// The clusters end with the process that started them; see test/cluster/ownership. It works on Linux only. The go
// command must be in PATH, and the working directory inside the checkout.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/test/cluster/keeper"
	"github.com/clusterpass/clusterpass/test/cluster/pki"
)

// Components of a cluster, for Kill, Pause, Resume and Restart.
const (
	Etcd              = keeper.Etcd
	APIServer         = keeper.APIServer
	ControllerManager = keeper.ControllerManager
	Scheduler         = keeper.Scheduler
	Kwok              = keeper.Kwok
	Kubelet           = keeper.Kubelet
)

// A Cluster is one running cluster. Its methods are safe for concurrent use. Addresses and credentials stay the
// same over restarts.
type Cluster struct {
	state      keeper.ClusterState
	kubeconfig []byte
	rest       *rest.Config
	ca         *pki.CA
	client     *keeper.Client
}

func open(state keeper.ClusterState, client *keeper.Client) (*Cluster, error) {
	c := &Cluster{state: state, client: client}
	var certErr, keyErr, err error
	if c.kubeconfig, err = os.ReadFile(state.Kubeconfig); err != nil {
		return nil, fmt.Errorf("read the kubeconfig of %s: %w", state.Name, err)
	}
	if c.rest, err = clientcmd.RESTConfigFromKubeConfig(c.kubeconfig); err != nil {
		return nil, fmt.Errorf("read the kubeconfig of %s: %w", state.Name, err)
	}
	c.rest.QPS = -1 // these clusters are for loading
	var pair pki.Pair
	pair.Cert, certErr = os.ReadFile(state.CA)
	pair.Key, keyErr = os.ReadFile(state.CAKey)
	if err := errors.Join(certErr, keyErr); err != nil {
		return nil, fmt.Errorf("read the authority of %s: %w", state.Name, err)
	}
	if c.ca, err = pki.LoadCA(pair); err != nil {
		return nil, err
	}
	return c, nil
}

// Name returns the cluster's name, which is also its context's in kubeconfigs.
func (c *Cluster) Name() string { return c.state.Name }

// Server returns the API server's URL, https://127.0.0.1:port.
func (c *Cluster) Server() string { return c.state.Server }

// Node returns the name of the process kubelet's node; empty without one.
func (c *Cluster) Node() string { return c.state.Node }

// CA returns the certificate, PEM, of the authority that signs the API server, the kubelet and every user.
func (c *Cluster) CA() []byte { return c.ca.Cert }

// Logs returns the directory of the components' logs.
func (c *Cluster) Logs() string { return c.state.Logs }

// FrontProxyCAFile returns the file with the certificate of the request-header authority: an aggregated API
// server of this cluster trusts X-Remote-* headers from its clients.
func (c *Cluster) FrontProxyCAFile() string { return c.state.FrontProxy }

// Kubeconfig returns the administrator's kubeconfig, with inline data only.
func (c *Cluster) Kubeconfig() []byte { return c.kubeconfig }

// KubeconfigFile returns the file of Kubeconfig; it lives as long as the cluster does.
func (c *Cluster) KubeconfigFile() string { return c.state.Kubeconfig }

// RESTConfig returns a copy of the administrator's client configuration, without a limit of requests.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.rest) }

// IssueUser creates a client certificate for a user of the cluster. The user has the rights that RBAC grants. These are
// none until a role is bound, except for groups like system:masters, whose members may do everything.
func (c *Cluster) IssueUser(name string, groups ...string) (pki.Pair, error) {
	return c.ca.Issue(pki.Subject{Name: name, Groups: groups})
}

// UserKubeconfig issues a user and returns its kubeconfig, with inline data only.
func (c *Cluster) UserKubeconfig(name string, groups ...string) ([]byte, error) {
	user, err := c.IssueUser(name, groups...)
	if err != nil {
		return nil, err
	}
	return clientcmd.Write(*keeper.Kubeconfig(c.Name(), c.Server(), c.CA(), user))
}

// Kill ends components at once (SIGKILL); none named means all of them. Calls to a killed API server are refused.
func (c *Cluster) Kill(ctx context.Context, components ...string) error {
	return c.client.Kill(ctx, c.Name(), components...)
}

// Pause suspends components (SIGSTOP). Their connections stay open without responses. The system accepts new
// connections, which get no responses either.
func (c *Cluster) Pause(ctx context.Context, components ...string) error {
	return c.client.Pause(ctx, c.Name(), components...)
}

// Resume lets paused components go on.
func (c *Cluster) Resume(ctx context.Context, components ...string) error {
	return c.client.Resume(ctx, c.Name(), components...)
}

// Restart kills components where they run, starts them again at the same address and with the same data, and
// returns when the cluster is ready.
func (c *Cluster) Restart(ctx context.Context, components ...string) error {
	return c.client.Restart(ctx, c.Name(), components...)
}

// Components returns what the cluster's processes do now.
func (c *Cluster) Components(ctx context.Context) ([]keeper.ComponentState, error) {
	state, err := c.client.State(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range state.Clusters {
		if one.Name == c.Name() {
			return one.Components, nil
		}
	}
	return nil, fmt.Errorf("cluster %s is gone", c.Name())
}
