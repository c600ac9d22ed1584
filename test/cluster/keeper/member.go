package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/test/cluster/ownership"
)

type member struct {
	spec      ClusterSpec
	dir       string
	files     *files
	port      *heldPort
	processes []*process // in the order of starting

	mu      sync.Mutex // locked during operations on the processes
	stopped bool
}

// Components of the second list need a running API server.
var (
	firstComponents = []string{Etcd, APIServer}
	laterComponents = []string{ControllerManager, Scheduler, Kwok, Kubelet}
)

func newMember(run *ownership.RunDir, spec *Spec, c ClusterSpec, kubelet string, s *spawner) (*member, error) {
	m := &member{spec: c, dir: filepath.Join(run.Path, c.Name)}
	var err error
	if m.port, err = holdPort(); err != nil {
		return nil, err
	}
	if m.files, err = writeFiles(m.dir, c.Name, m.port.number); err != nil {
		return nil, err
	}
	logs := filepath.Join(m.dir, "logs")
	if spec.LogDir != "" {
		logs = filepath.Join(spec.LogDir, c.Name)
	}
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return nil, fmt.Errorf("make the log directory: %w", err)
	}
	m.files.logs = logs

	add := func(name, path string, args []string) *process {
		p := &process{
			name: name, command: append([]string{path}, args...), dir: m.dir, spawner: s,
			env: append(os.Environ(), ownership.Mark(run.Path), garbageCollection),
			log: filepath.Join(logs, name+".log"),
		}
		m.processes = append(m.processes, p)
		return p
	}
	binary := func(name string) string { return filepath.Join(spec.Binaries, name) }
	etcd := add(Etcd, binary(Etcd), etcdArgs(m.files))
	etcd.before = func() { _ = os.Remove(m.files.path(etcdSocket)) } // a killed etcd leaves it
	add(APIServer, binary(APIServer), slices.Concat(apiServerArgs(m.files, m.port.number, c.Minimal), c.APIServerArgs))
	if !c.Minimal {
		add(ControllerManager, binary(ControllerManager), append(controllerManagerArgs(m.files), c.ControllerManagerArgs...))
		add(Scheduler, binary(Scheduler), schedulerArgs(m.files))
		kwok := add(Kwok, binary(Kwok), kwokArgs(m.files))
		kwok.env = append(kwok.env, kwokDirEnv+"="+m.dir)
	}
	if !c.NoKubelet {
		add(Kubelet, kubelet, kubeletArgs(m.files))
	}
	return m, nil
}

func (m *member) start(ctx context.Context, names []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.startLocked(ctx, names)
}

func (m *member) startLocked(ctx context.Context, names []string) error {
	if m.stopped {
		return errStopAsked
	}
	ready, err := newReadiness(m)
	if err != nil {
		return err
	}
	defer ready.close()
	startThose := func(these []string) error {
		for _, p := range m.processes {
			if slices.Contains(these, p.name) && slices.Contains(names, p.name) {
				if err := p.start(); err != nil {
					return err
				}
				ready.started = append(ready.started, p)
			}
		}
		return nil
	}
	if err := startThose(firstComponents); err != nil {
		return err
	}
	if err := ready.apiServer(ctx); err != nil {
		return err
	}
	if err := startThose(laterComponents); err != nil {
		return err
	}
	return ready.cluster(ctx)
}

func (m *member) apply(ctx context.Context, fault string, names []string) error {
	if len(names) == 0 {
		names = m.components()
	}
	var chosen []*process
	for _, name := range names {
		i := slices.IndexFunc(m.processes, func(p *process) bool { return p.name == name })
		if i < 0 {
			return fmt.Errorf("cluster %s has no component %q, only %v", m.spec.Name, name, m.components())
		}
		chosen = append(chosen, m.processes[i])
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	switch fault {
	case faultKill, faultRestart:
		for _, p := range chosen {
			p.kill()
		}
		if fault == faultRestart {
			return m.startLocked(ctx, names)
		}
	case faultPause:
		for _, p := range chosen {
			errs = append(errs, p.pause())
		}
	case faultResume:
		for _, p := range chosen {
			errs = append(errs, p.resume())
		}
	default:
		return fmt.Errorf("unknown fault %q", fault)
	}
	return errors.Join(errs...)
}

func (m *member) components() []string {
	names := make([]string, len(m.processes))
	for i, p := range m.processes {
		names[i] = p.name
	}
	return names
}

// stop kills everything. Only the kubelet gets time, to end its containers. No other component has data worth saving.
func (m *member) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	for _, p := range slices.Backward(m.processes) {
		if p.name == Kubelet {
			p.terminate(3 * time.Second)
		}
		p.kill()
	}
	m.port.close()
}

func (m *member) state() ClusterState {
	s := ClusterState{
		Name:       m.spec.Name,
		Server:     m.files.server,
		Kubeconfig: m.files.admin,
		CA:         m.files.ca.cert,
		CAKey:      m.files.ca.key,
		FrontProxy: m.files.frontProxyCA.cert,
		Logs:       m.files.logs,
	}
	for _, p := range m.processes {
		s.Components = append(s.Components, p.state())
		if p.name == Kubelet {
			s.Node = m.files.node
		}
	}
	return s
}
