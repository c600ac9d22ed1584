// Package cluster starts real Kubernetes clusters on this machine for tests, the demo and benchmarks. Each cluster runs
// etcd, the control plane, kwok and the process kubelet (test/kubelet), on loopback and with its own CA.
//
// The clusters end with the process that started them; see test/cluster/ownership. They need Linux, the go command in
// PATH and a working directory inside the checkout.
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

// A Cluster is one running cluster. Its methods are safe for concurrent use. Addresses and credentials survive
// restarts.
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

// FrontProxyCAFile returns the CA of the clients whose X-Remote-* headers aggregated API servers trust.
func (c *Cluster) FrontProxyCAFile() string { return c.state.FrontProxy }

// Kubeconfig returns the administrator's kubeconfig, with inline data only.
func (c *Cluster) Kubeconfig() []byte { return c.kubeconfig }

// KubeconfigFile returns the file of Kubeconfig; it exists as long as the cluster does.
func (c *Cluster) KubeconfigFile() string { return c.state.Kubeconfig }

// RESTConfig returns a copy of the administrator's client configuration, without a limit of requests.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.rest) }

// IssueUser creates a client certificate for a user, whose only rights are those of RBAC.
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

// Kill ends components at once (SIGKILL); none named means all. Calls to a killed API server are refused.
func (c *Cluster) Kill(ctx context.Context, components ...string) error {
	return c.client.Kill(ctx, c.Name(), components...)
}

// Pause suspends components (SIGSTOP). Old and new connections stay open without responses.
func (c *Cluster) Pause(ctx context.Context, components ...string) error {
	return c.client.Pause(ctx, c.Name(), components...)
}

// Resume continues paused components.
func (c *Cluster) Resume(ctx context.Context, components ...string) error {
	return c.client.Resume(ctx, c.Name(), components...)
}

// Restart kills and starts components with the same address and data. It returns when the cluster is ready.
func (c *Cluster) Restart(ctx context.Context, components ...string) error {
	return c.client.Restart(ctx, c.Name(), components...)
}

// Components returns the states of the cluster's processes.
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
