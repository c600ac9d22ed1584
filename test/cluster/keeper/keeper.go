package keeper

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/test/cluster/ownership"
)

// startTimeout is the maximum time until a cluster is ready. An idle machine needs seconds.
const startTimeout = 5 * time.Minute

const kubeletCommand = "test/kubelet/cmd/process-kubelet"

// Run is the keeper. It reads a Spec from in, and writes one Reply to out when the clusters are ready or have failed.
// It ends the clusters when ctx ends, when it is stopped, or when in ends unless it was detached. No other code of this
// program may use child processes. An error in the Reply is not returned.
func Run(ctx context.Context, in io.Reader, out, progress io.Writer) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	replied := false
	reply := func(r Reply) error {
		replied = true
		return json.NewEncoder(out).Encode(r)
	}
	err := run(ctx, stop, in, progress, reply)
	if err != nil && !replied {
		return reply(Reply{Error: err.Error()})
	}
	return err
}

func run(ctx context.Context, stop context.CancelCauseFunc, in io.Reader, progress io.Writer,
	reply func(Reply) error) (err error) {
	spec, err := readSpec(in, stop)
	if err != nil {
		return err
	}
	if err := ownership.Adopt(); err != nil {
		return err
	}
	dir, err := ownership.Create(spec.Run)
	if err != nil {
		return err
	}
	k := &keeper{run: dir, spec: spec, spawner: newSpawner(), stop: stop, progress: progress}
	defer func() { err = errors.Join(err, k.end()) }()

	if err := k.prepare(ctx); err != nil {
		return err
	}
	control, err := k.serve()
	if err != nil {
		return err
	}
	defer control.Close()
	if err := k.start(ctx); err != nil {
		return err
	}
	state := k.state()
	if err := reply(Reply{State: &state}); err != nil {
		return fmt.Errorf("report the state: %w", err)
	}
	<-ctx.Done()
	return nil
}

var (
	errInputEnded = errors.New("standard input ended")
	errStopAsked  = errors.New("a stop was requested")
)

func readSpec(in io.Reader, stop context.CancelCauseFunc) (*Spec, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		return nil, fmt.Errorf("read the specification: %w", cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
	}
	spec := &Spec{}
	if err := json.Unmarshal(lines.Bytes(), spec); err != nil {
		return nil, fmt.Errorf("read the specification: %w", err)
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	// This blocks in a read until the starter detaches, closes its end or dies.
	go func() {
		for lines.Scan() {
			if lines.Text() == Detach {
				return
			}
		}
		stop(errInputEnded)
	}()
	return spec, nil
}

type keeper struct {
	run      *ownership.RunDir
	spec     *Spec
	spawner  *spawner
	members  []*member
	stop     context.CancelCauseFunc
	progress io.Writer
}

func (k *keeper) prepare(ctx context.Context) error {
	kubelet, err := k.kubelet(ctx)
	if err != nil {
		return err
	}
	merged := clientcmdapi.NewConfig()
	for _, c := range k.spec.Clusters {
		m, err := newMember(k.run, k.spec, c, kubelet, k.spawner)
		if err != nil {
			return err
		}
		k.members = append(k.members, m)
		one, err := clientcmd.LoadFromFile(m.files.admin)
		if err != nil {
			return fmt.Errorf("read the kubeconfig of %s: %w", c.Name, err)
		}
		if merged.CurrentContext == "" {
			merged.CurrentContext = c.Name
		}
		merged.Clusters[c.Name] = one.Clusters[c.Name]
		merged.AuthInfos[c.Name] = one.AuthInfos[c.Name]
		merged.Contexts[c.Name] = one.Contexts[c.Name]
	}
	for name := range merged.Clusters { // they are merged into another file
		merged.Clusters[name].LocationOfOrigin = ""
		merged.AuthInfos[name].LocationOfOrigin = ""
		merged.Contexts[name].LocationOfOrigin = ""
	}
	if err := clientcmd.WriteToFile(*merged, filepath.Join(k.run.Path, "kubeconfig")); err != nil {
		return fmt.Errorf("write the merged kubeconfig: %w", err)
	}
	return nil
}

func (k *keeper) kubelet(ctx context.Context) (string, error) {
	wanted := false
	for _, c := range k.spec.Clusters {
		wanted = wanted || !c.NoKubelet
	}
	if !wanted {
		return "", nil
	}
	tool, err := k.spec.Tool(ctx, kubeletCommand, k.progress)
	if err != nil {
		return "", err
	}
	defer tool.Release()
	path := filepath.Join(k.run.Path, "bin", Kubelet)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("make the directory of programs: %w", err)
	}
	return path, tool.CopyTo(path)
}

func (k *keeper) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	all, ctx := errgroup.WithContext(ctx)
	for _, m := range k.members {
		all.Go(func() error { return m.start(ctx, m.components()) })
	}
	return all.Wait()
}

func (k *keeper) end() error {
	var all errgroup.Group
	for _, m := range k.members {
		all.Go(func() error { m.stop(); return nil })
	}
	_ = all.Wait()
	k.spawner.close()
	return errors.Join(ownership.KillDescendants(), k.run.Remove())
}

func (k *keeper) state() State {
	s := State{Run: k.spec.Run, Dir: k.run.Path, PID: os.Getpid(), Binaries: k.spec.Binaries}
	for _, m := range k.members {
		s.Clusters = append(s.Clusters, m.state())
	}
	return s
}
