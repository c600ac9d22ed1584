package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/clusterpass/clusterpass/test/cluster/build"
	"github.com/clusterpass/clusterpass/test/cluster/keeper"
	"github.com/clusterpass/clusterpass/test/cluster/ownership"
)

// stopTimeout is the time for a set to stop before it is killed.
const stopTimeout = 2 * time.Minute

// KeepCommand is the subcommand of the keeper.
const (
	keeperCommand = "test/cluster/cmd/clusters"
	KeepCommand   = "keep"
)

// Options describe a set of clusters. The zero value is one cluster, member1.
type Options struct {
	Clusters              []string  // names, DNS labels; default: member1
	APIServerArgs         []string  // more flags for each kube-apiserver
	ControllerManagerArgs []string  // more flags for each kube-controller-manager
	NoKubelet             bool      // no process kubelet and no node: pods stay pending
	Minimal               bool      // only etcd, kube-apiserver and the kubelet: no controllers, and pods name their node
	Run                   string    // name of the run, a DNS label, at most one alive; default: a name of its own
	LogDir                string    // keep the components' logs below this directory; default: they go with the set
	Tools                 string    // directory of the programs clusters and process-kubelet; default: they are built
	Progress              io.Writer // where building and starting are reported; default: os.Stderr
}

// A Set is clusters that run in parallel. Its methods are safe for concurrent use.
type Set struct {
	dir      string
	kubectl  string
	built    string
	clusters []*Cluster
	client   *keeper.Client
	keeper   *kept // nil when another process started it
	detached atomic.Bool
}

// New starts a set of clusters and returns when all of them are ready. The caller must call Stop. The set also stops
// when this process ends. ctx limits only the start.
func New(ctx context.Context, o Options) (*Set, error) {
	if len(o.Clusters) == 0 {
		o.Clusters = []string{"member1"}
	}
	if o.Run == "" {
		o.Run = fmt.Sprintf("p%d-%x", os.Getpid(), time.Now().UnixNano())
	}
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	for _, dir := range []*string{&o.LogDir, &o.Tools} {
		if *dir == "" {
			continue
		}
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return nil, fmt.Errorf("find the directory %s: %w", *dir, err)
		}
		*dir = abs
	}
	ensure := build.Ensure
	if o.Minimal {
		ensure = build.EnsureMinimal
	}
	binaries, err := ensure(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	spec := keeper.Spec{Run: o.Run, Binaries: binaries.Dir, LogDir: o.LogDir, Tools: o.Tools}
	for _, name := range o.Clusters {
		spec.Clusters = append(spec.Clusters, keeper.ClusterSpec{
			Name: name, APIServerArgs: o.APIServerArgs, ControllerManagerArgs: o.ControllerManagerArgs, NoKubelet: o.NoKubelet,
			Minimal: o.Minimal,
		})
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	began := time.Now()
	k, state, err := keep(ctx, spec, o.Progress)
	if err != nil {
		return nil, fmt.Errorf("start clusters: %w", err)
	}
	for _, c := range state.Clusters {
		_, _ = fmt.Fprintf(o.Progress, "cluster %s is ready after %.1fs at %s\n", c.Name, time.Since(began).Seconds(),
			c.Server)
	}
	s, err := newSet(state, binaries.Kubectl)
	if err != nil {
		return nil, errors.Join(err, k.stop())
	}
	s.keeper = k
	return s, nil
}

// Open returns the set of a run that another process started.
func Open(ctx context.Context, run string) (*Set, error) {
	dir := filepath.Join(ownership.Root(), run)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no clusters called %q run", run)
	}
	state, err := keeper.NewClient(dir).State(ctx)
	if err != nil {
		return nil, err
	}
	kubectl, err := exec.LookPath(build.Kubectl)
	if err != nil { // then it was built with the others
		kubectl = filepath.Join(state.Binaries, build.Kubectl)
	}
	return newSet(state, kubectl)
}

func newSet(state *keeper.State, kubectl string) (*Set, error) {
	s := &Set{
		dir: state.Dir, kubectl: kubectl, built: filepath.Join(state.Binaries, build.Kubectl),
		client: keeper.NewClient(state.Dir),
	}
	if _, err := os.Stat(s.built); err != nil { // a directory of existing programs may have none
		s.built = kubectl
	}
	for _, one := range state.Clusters {
		c, err := open(one, s.client)
		if err != nil {
			return nil, err
		}
		s.clusters = append(s.clusters, c)
	}
	return s, nil
}

// Cluster returns the cluster called name, which must be one of the set's.
func (s *Set) Cluster(name string) *Cluster {
	for _, c := range s.clusters {
		if c.Name() == name {
			return c
		}
	}
	panic(fmt.Sprintf("the set has no cluster %q", name))
}

// Clusters returns the set's clusters in the order they were named.
func (s *Set) Clusters() []*Cluster { return s.clusters }

// Kubectl returns the path of a kubectl: PATH's, or else the built one.
func (s *Set) Kubectl() string { return s.kubectl }

// BuiltKubectl returns the kubectl of the clusters' version, or PATH's if EnvBinaries names a directory without one.
func (s *Set) BuiltKubectl() string { return s.built }

// Dir returns the run directory, which is gone when the set is.
func (s *Set) Dir() string { return s.dir }

// KubeconfigFile returns a kubeconfig with a context for each cluster, named as the cluster; the first is current.
func (s *Set) KubeconfigFile() string { return filepath.Join(s.dir, "kubeconfig") }

// Stop stops the clusters and returns when nothing of them is left. Stopping a stopped set does nothing.
func (s *Set) Stop() error {
	if s.keeper != nil && !s.detached.Load() {
		return s.keeper.stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return s.client.Stop(ctx)
}

// Detach lets the clusters outlive this process. Only Stop of an opened set, or the clusters command, ends them.
func (s *Set) Detach() error {
	if s.keeper == nil {
		return nil
	}
	if _, err := io.WriteString(s.keeper.stdin, keeper.Detach+"\n"); err != nil {
		return fmt.Errorf("let the clusters go: %w", err)
	}
	s.detached.Store(true)
	return nil
}

type kept struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  *tail
	once  sync.Once
	err   error
}

func keep(ctx context.Context, spec keeper.Spec, progress io.Writer) (*kept, *keeper.State, error) {
	tool, err := spec.Tool(ctx, keeperCommand, progress)
	if err != nil {
		return nil, nil, err
	}
	k := &kept{said: &tail{next: progress}}
	k.cmd = exec.Command(tool.Path, KeepCommand, spec.Run) // it outlives ctx, which bounds the start only
	k.cmd.Stderr = k.said
	// In a separate session, the keeper gets no ctrl-C or hang-up of a terminal. It sees this process's end.
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, inErr := k.cmd.StdinPipe()
	stdout, outErr := k.cmd.StdoutPipe()
	err = errors.Join(inErr, outErr)
	if err == nil {
		err = k.cmd.Start()
	}
	tool.Release()
	if err != nil {
		return nil, nil, err
	}
	k.stdin = stdin

	defer k.said.keepToItself()
	// Until the clusters are ready, the end of ctx ends the keeper.
	unbind := context.AfterFunc(ctx, func() { _ = k.cmd.Process.Signal(syscall.SIGTERM) })
	defer unbind()
	if err := json.NewEncoder(stdin).Encode(spec); err != nil {
		return nil, nil, errors.Join(err, k.stop())
	}
	var reply keeper.Reply
	err = json.NewDecoder(stdout).Decode(&reply)
	switch {
	case err == nil && reply.State != nil:
		return k, reply.State, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil:
		err = errors.New(reply.Error)
	default: // it ended without a message
		err = fmt.Errorf("the keeper ended before the clusters were ready: %s", k.said.text())
	}
	_ = k.stop() // its exit code adds nothing
	return nil, nil, err
}

func (k *kept) stop() error {
	k.once.Do(func() {
		k.stdin.Close()
		timer := time.AfterFunc(stopTimeout, func() { _ = k.cmd.Process.Kill() })
		defer timer.Stop()
		if err := k.cmd.Wait(); err != nil {
			k.err = fmt.Errorf("the keeper of the clusters: %w\n%s", err, k.said.text())
		}
	})
	return k.err
}

type tail struct {
	mu   sync.Mutex
	next io.Writer
	last []byte
}

func (t *tail) keepToItself() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = io.Discard
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const keep = 8 << 10
	t.last = append(t.last, p...)
	t.last = t.last[max(0, len(t.last)-keep):]
	_, _ = t.next.Write(p) // a failed write of the progress is ignored
	return len(p), nil
}

func (t *tail) text() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.TrimSpace(t.last)
}
