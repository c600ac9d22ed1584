package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const (
	conformance = `\[sig-(api-machinery|cli)\].*%s.*\[Conformance\]`
	// needsImages selects the specs that need the program of an image. Test clusters ignore images and have no network of
	// pods, so each of these specs would wait for minutes and fail.
	needsImages = `AdmissionWebhook|CustomResourceConversionWebhook|CustomResourceFieldSelectors|\] Aggregator |` +
		`Guestbook|Update Demo|Kubectl logs|Kubectl expose`
	// seed makes every run, on every target, use the same order.
	seed = "1"
	// grace is how long e2e.test may clean up after its timeout.
	grace = 30 * time.Second
)

type suite struct {
	target        string // its name
	context       string // in the kubeconfig
	program       string // path of e2e.test
	kubectl       string
	kubeconfig    string
	serverHasPath bool   // whether the URL in the kubeconfig has a path
	focus         string // a regular expression; "" for all specs
	dir           string // of its log and report
	progress      *progress
}

// run returns the specs' results. Specs that fail are no error.
func (s *suite) run(ctx context.Context) (*report, error) {
	home := filepath.Join(s.dir, "home") // kubectl's caches; two targets share none
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(home) }() // as a rule nothing of interest remains there
	log, err := os.Create(filepath.Join(s.dir, "e2e.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	kubectl, err := s.command()
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, suiteTimeout+2*grace)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.program, s.flags(kubectl)...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}
	cmd.Stdout = io.MultiWriter(log, &specLines{progress: s.progress, target: s.target})
	cmd.Stderr = cmd.Stdout
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	start := time.Now()
	ran := runGroup(cmd)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: e2e.test was stopped after %s: %w; see %s",
			s.target, time.Since(start).Round(time.Second), context.Cause(ctx), log.Name())
	}
	var exit *exec.ExitError
	if ran != nil && !errors.As(ran, &exit) {
		return nil, fmt.Errorf("%s: run e2e.test: %w", s.target, ran)
	}
	r, err := readReport(filepath.Join(s.dir, "junit_01.xml"))
	if err != nil {
		return nil, fmt.Errorf("%s: e2e.test left no report: %w; see %s", s.target, errors.Join(err, ran), log.Name())
	}
	r.target, r.duration = s.target, time.Since(start)
	return r, nil
}

func (s *suite) flags(kubectl string) []string {
	focus := s.focus
	if focus != "" {
		focus = "(" + focus + ")"
	}
	return []string{
		"--kubeconfig=" + s.kubeconfig, "--context=" + s.context, "--kubectl-path=" + kubectl,
		"--provider=skeleton",
		"--disable-log-dump", "--dump-logs-on-failure=false",
		"--node-schedulable-timeout=" + startTimeout.String(), "--system-pods-startup-timeout=" + startTimeout.String(),
		"--report-dir=" + s.dir, "--e2e-output-dir=" + s.dir,
		"--ginkgo.focus=" + fmt.Sprintf(conformance, focus), "--ginkgo.skip=" + needsImages, "--ginkgo.seed=" + seed,
		"--ginkgo.timeout=" + suiteTimeout.String(), "--ginkgo.grace-period=" + grace.String(),
		"--ginkgo.v", "--ginkgo.no-color",
		"--test.timeout=0", // ginkgo's timeout still writes a report
	}
}

// command returns the kubectl that the specs run. Without --append-server-path, kubectl proxy drops the path of the
// server's URL, and the specs do not set it. See docs/reference/urls.md.
func (s *suite) command() (string, error) {
	if !s.serverHasPath {
		return s.kubectl, nil
	}
	path := filepath.Join(s.dir, "kubectl")
	script := fmt.Sprintf(`#!/bin/sh
for arg; do
  [ "$arg" = proxy ] && exec '%[1]s' "$@" --append-server-path
done
exec '%[1]s' "$@"
`, s.kubectl)
	return path, os.WriteFile(path, []byte(script), 0o700)
}

// runGroup kills the rest of cmd's process group when cmd has ended. The kernel kills cmd when the starting thread
// ends, so runGroup locks it.
func runGroup(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }() // usually the group is empty
	return cmd.Wait()
}
