// Package keeper runs the processes of one set of test clusters on loopback until it is stopped.
//
// Its parent, package cluster, writes a [Spec] as one line of JSON to its standard input. The keeper answers with a
// [Reply] on standard output when all clusters are ready. Then it serves the unix socket control.sock in its run
// directory (see [Client]).
//
// The keeper ends on SIGINT, SIGTERM or Stop, and at the end of its standard input unless it read the line [Detach]. So
// clusters of a test end with the test's process; see package ownership.
//
// Only the owner can read a cluster's directory, with etcd's unix socket. Other users can reach only the API server,
// which refuses anonymous requests. The keeper reserves its port for restarts.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpass/clusterpass/test/cluster/build"
)

// A Spec describes the clusters to run.
type Spec struct {
	Run      string        `json:"run"`      // name of the run directory, a DNS label
	Clusters []ClusterSpec `json:"clusters"` // at least one
	Binaries string        `json:"binaries"` // directory of the programs of package build
	LogDir   string        `json:"logDir"`   // where logs go, below a directory a cluster; empty: the run directory
	Tools    string        `json:"tools"`    // directory of this module's programs; empty: they are built
}

// Tool returns a program of this module.
func (s *Spec) Tool(ctx context.Context, command string, progress io.Writer) (*build.Tool, error) {
	if s.Tools != "" {
		return build.FindTool(s.Tools, command), nil
	}
	return build.NewTool(ctx, command, progress)
}

// A ClusterSpec describes one cluster.
type ClusterSpec struct {
	// Name is a DNS label. It is also the cluster's, context's and user's name in kubeconfigs.
	Name                  string   `json:"name"`
	APIServerArgs         []string `json:"apiServerArgs"`         // more flags for kube-apiserver
	ControllerManagerArgs []string `json:"controllerManagerArgs"` // more flags for kube-controller-manager
	NoKubelet             bool     `json:"noKubelet"`             // run no process kubelet: pods stay pending
	Minimal               bool     `json:"minimal"`               // run no controller manager, scheduler and kwok
}

// The components of a cluster, by name.
const (
	Etcd              = build.Etcd
	APIServer         = build.APIServer
	ControllerManager = build.ControllerManager
	Scheduler         = build.Scheduler
	Kwok              = build.Kwok
	Kubelet           = "process-kubelet"
)

// Detach is the line on standard input after which a keeper outlives its standard input.
const Detach = "detach"

// A Reply is the keeper's result: the clusters are ready, or have failed.
type Reply struct {
	State *State `json:"state,omitempty"`
	Error string `json:"error,omitempty"`
}

// A State describes the clusters of a keeper.
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

// Validate returns the first error in the spec.
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
	if s.Tools != "" && !filepath.IsAbs(s.Tools) {
		return fmt.Errorf("tools %q: not an absolute path", s.Tools)
	}
	return nil
}

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
