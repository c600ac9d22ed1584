package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"github.com/google/pprof/profile"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/config/flags"
	"github.com/clusterpass/clusterpass/shared/heap"
)

// profilesVariable names a directory. If it is set, this program also runs the gateways. It writes profiles of them and
// of bare proxies there.
const profilesVariable = "BENCH_PROFILES"

// gatewayCommand runs this program as a gateway. The flags of infra/local follow.
const gatewayCommand = "gateway"

const builtGateway = "dist/local/clusterpass-local"

// gatewayProgram returns the program that runs a gateway, and its first arguments.
func gatewayProgram() (string, []string, error) {
	if os.Getenv(profilesVariable) != "" {
		self, err := os.Executable()
		return self, []string{gatewayCommand}, err
	}
	program, err := filepath.Abs(builtGateway)
	return program, nil, err
}

// serveProfiled runs a gateway with the flags of infra/local until ctx ends, and exits. It writes profiles.
func serveProfiled(ctx context.Context, args []string) {
	os.Args = append(os.Args[:1], args...)
	cfg := &server.Config{}
	flags.Main("", cfg, func() error {
		heap.BoundGrowth()
		return runWithProfiles(gatewayCommand, func() error {
			return server.Run(ctx, cfg, server.Output{Progress: os.Stdout, Log: os.Stderr}, func() {})
		})
	})
}

// mutexFraction is the sampling rate of waits for locks: one of 100.
const mutexFraction = 100

// runWithProfiles calls run, and writes profiles of it if profilesVariable is set. Their names are NAME-PID-KIND.pprof,
// where KIND is cpu, mutex or heap. The profile of the heap shows its last garbage collection.
func runWithProfiles(name string, run func() error) (err error) {
	dir := os.Getenv(profilesVariable)
	if dir == "" {
		return run()
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	create := func(kind string) (*os.File, error) {
		return os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.pprof", name, os.Getpid(), kind)))
	}
	cpu, err := create("cpu")
	if err != nil {
		return err
	}
	runtime.SetMutexProfileFraction(mutexFraction)
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return errors.Join(err, cpu.Close())
	}
	err = run()
	pprof.StopCPUProfile()
	err = errors.Join(err, cpu.Close())
	for _, kind := range []string{"mutex", "heap"} {
		f, createErr := create(kind)
		if createErr != nil {
			return errors.Join(err, createErr)
		}
		err = errors.Join(err, pprof.Lookup(kind).WriteTo(f, 0), f.Close())
	}
	return err
}

// mergeCommand merges profiles. Its arguments are their directory and the new file.
const mergeCommand = "merge-profiles"

// mergeProfiles writes the sum of the CPU profiles of gateways in dir to a file, without the paths of this machine.
func mergeProfiles(dir, file string) error {
	names, err := filepath.Glob(filepath.Join(dir, gatewayCommand+"-*-cpu.pprof"))
	if err != nil {
		return err
	}
	var all []*profile.Profile
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		p, err := profile.ParseData(data)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		// The compiler reads functions and lines. Without addresses, many stacks are equal.
		if err := p.Aggregate(true, true, true, true, false, false); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no CPU profiles of gateways", dir)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return err
	}
	for _, m := range merged.Mapping {
		m.File = gatewayCommand
	}
	for _, f := range merged.Function {
		if filepath.IsAbs(f.Filename) {
			return fmt.Errorf("the program was not built with -trimpath: %s", f.Filename)
		}
	}
	var out bytes.Buffer
	if err := merged.Write(&out); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o600)
}

// profileOfBuild returns the name of the profile with which the gateway was compiled, or "none".
func profileOfBuild() string {
	info, err := buildinfo.ReadFile(builtGateway)
	if err != nil {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "-pgo" {
			return filepath.Base(s.Value)
		}
	}
	return "none"
}
