// Package keeper runs test clusters: the processes of each, on loopback, until it is told to stop.
//
// One keeper process runs one set of clusters. Whoever starts it (package cluster, for tests and for the clusters
// command alike) writes a [Spec] as one line of JSON to its standard input and reads a [Reply] as one line of
// JSON from its standard output once all clusters are ready; what it does meanwhile comes on standard error.
// After that it answers on the unix socket control.sock in its run directory (see [Client]). It ends on SIGINT or
// SIGTERM, on Stop, and at the end of its standard input: so clusters of a test end with the test's process,
// whatever ends that. Only after the line [Detach] does it go on without its starter. Package ownership says why
// nothing stays behind.
//
// Everything of a cluster is in its directory, which is open to its owner alone; etcd listens on a unix socket
// there. The API server is the one thing that other users of the machine can reach, and it takes no anonymous
// request. Its port is held by the keeper as long as the keeper lives, so a restarted API server has the same
// one, and nobody gets the port in between.
package keeper

import (
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpass/clusterpass/test/cluster/build"
)

// A Spec says which clusters to run.
type Spec struct {
	Run      string        `json:"run"`      // name of the run directory, a DNS label
	Clusters []ClusterSpec `json:"clusters"` // at least one
	Binaries string        `json:"binaries"` // directory of the programs of package build
	LogDir   string        `json:"logDir"`   // where logs go, below a directory a cluster; empty: the run directory
}

// A ClusterSpec says what one cluster is like.
type ClusterSpec struct {
	Name                  string   `json:"name"`                  // a DNS label; also the cluster's, context's and user's name in kubeconfigs
	APIServerArgs         []string `json:"apiServerArgs"`         // more flags for kube-apiserver
	ControllerManagerArgs []string `json:"controllerManagerArgs"` // more flags for kube-controller-manager
	NoKubelet             bool     `json:"noKubelet"`             // run no process kubelet: pods stay pending
}

// The components of a cluster, by name. They are the processes that faults can be put on.
const (
	Etcd              = build.Etcd
	APIServer         = build.APIServer
	ControllerManager = build.ControllerManager
	Scheduler         = build.Scheduler
	Kwok              = build.Kwok
	Kubelet           = "process-kubelet"
)

// Detach is the line on standard input after which a keeper goes on when its standard input ends.
const Detach = "detach"

// A Reply is what a keeper says when its clusters are ready, or when they cannot be.
type Reply struct {
	State *State `json:"state,omitempty"`
	Error string `json:"error,omitempty"`
}

// A State is what a keeper runs.
type State struct {
	Run      string         `json:"run"`
	Dir      string         `json:"dir"` // the run directory
	PID      int            `json:"pid"` // the keeper
	Binaries string         `json:"binaries"`
	Clusters []ClusterState `json:"clusters"`
}

// A ClusterState is one cluster.
type ClusterState struct {
	Name       string           `json:"name"`
	Server     string           `json:"server"`         // https://127.0.0.1:port
	Kubeconfig string           `json:"kubeconfig"`     // file: the administrator's, with inline data only
	CA         string           `json:"ca"`             // file: certificate of the authority of servers and users
	CAKey      string           `json:"caKey"`          // file: its key
	FrontProxy string           `json:"frontProxy"`     // file: certificate of the request-header authority
	Node       string           `json:"node,omitempty"` // the process kubelet's node
	Logs       string           `json:"logs"`           // directory of the components' logs
	Components []ComponentState `json:"components"`
}

// A ComponentState is one process of a cluster.
type ComponentState struct {
	Name  string `json:"name"`
	PID   int    `json:"pid"`
	State string `json:"state"` // running, paused, or how it ended
}

// Validate returns what is wrong with the spec.
func (s *Spec) Validate() error {
	if err := label("run", s.Run); err != nil {
		return err
	}
	if len(s.Clusters) == 0 {
		return errors.New("clusters: name at least one")
	}
	seen := map[string]bool{}
	for _, c := range s.Clusters {
		if err := label("cluster", c.Name); err != nil {
			return err
		}
		if seen[c.Name] {
			return fmt.Errorf("cluster %q: named twice", c.Name)
		}
		seen[c.Name] = true
	}
	if !filepath.IsAbs(s.Binaries) {
		return fmt.Errorf("binaries %q: not an absolute path", s.Binaries)
	}
	if s.LogDir != "" && !filepath.IsAbs(s.LogDir) {
		return fmt.Errorf("log directory %q: not an absolute path", s.LogDir)
	}
	return nil
}

// reserved are names in a run directory that no cluster may take.
var reserved = map[string]bool{"bin": true, "kubeconfig": true, "control": true}

func label(what, name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%s name %q: %s", what, name, problems[0])
	}
	if what == "cluster" && reserved[name] {
		return fmt.Errorf("cluster name %q: reserved", name)
	}
	return nil
}
