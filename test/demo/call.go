package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/clusterpass/clusterpass/test/cluster"
)

// A call is one kubectl command through the gateway.
type call struct {
	args    []string
	direct  []string               // arguments of the same command at a cluster; nil means args without their cluster
	refused bool                   // whether gateway and cluster must refuse it
	until   func(line string) bool // ends a stream; nil if the command ends by itself
}

// show runs a call, prints its output, and prints its time beside that of each direct call. The time of a stream is
// that until its first line.
func (d *demo) show(ctx context.Context, c call) error {
	d.printf("$ kubectl %s\n", quote(c.args))
	through, err := d.time(ctx, d.kubeconfig(), d.out, c.args, c)
	if err != nil {
		return err
	}
	var direct []string
	for _, member := range d.targets(c.args) {
		one := c
		if c.until != nil {
			one.until = func(string) bool { return true }
		}
		took, err := d.time(ctx, member.KubeconfigFile(), io.Discard, c.directArgs(), one)
		if err != nil {
			return fmt.Errorf("the same command at %s itself: %w", member.Name(), err)
		}
		direct = append(direct, seconds(took))
	}
	what := ""
	if c.until != nil {
		what = "first line after "
	}
	d.printf("# %s%s, directly %s\n", what, seconds(through), strings.Join(direct, " + "))
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// targets returns the clusters that a call reaches.
func (d *demo) targets(args []string) []*cluster.Cluster {
	var named []*cluster.Cluster
	for _, c := range d.clusters {
		isNamed := func(arg string) bool { return arg == c.Name() || strings.HasSuffix(arg, "@"+c.Name()) }
		if slices.ContainsFunc(args, isNamed) {
			named = append(named, c)
		}
	}
	if len(named) > 0 {
		return named
	}
	return d.clusters
}

// directArgs returns the arguments for a kubeconfig that has one cluster.
func (c call) directArgs() []string {
	if c.direct != nil {
		return c.direct
	}
	var args []string
	for i := 0; i < len(c.args); i++ {
		if c.args[i] == "--context" || c.args[i] == "--kubeconfig" {
			i++
			continue
		}
		name, _, _ := strings.Cut(c.args[i], "@")
		args = append(args, name)
	}
	return args
}

// time runs kubectl and returns its duration or, for a stream, the time until its first line.
func (d *demo) time(
	ctx context.Context, kubeconfig string, out io.Writer, args []string, c call,
) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it does not end within %v", patience))
	defer cancel()
	cmd := d.command(ctx, d.kubectl, kubeconfig, args...)
	began := time.Now()
	if c.until == nil {
		cmd.Stdout, cmd.Stderr = out, out
		err = cmd.Run()
		took = time.Since(began)
		var exit *exec.ExitError
		if isRefused := errors.As(err, &exit); isRefused && c.refused {
			err = nil
		} else if err == nil && c.refused {
			err = errors.New("it was to be refused, and succeeded")
		}
	} else {
		took, err = stream(cmd, out, c.until)
	}
	if err != nil {
		return 0, fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), cmp.Or(context.Cause(ctx), err))
	}
	return took, nil
}

// stream prints the lines of a command until done returns true, and interrupts it. It returns the time until the first
// line.
func stream(cmd *exec.Cmd, out io.Writer, done func(line string) bool) (first time.Duration, err error) {
	cmd.Stderr = out
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	isDone := false
	for lines := bufio.NewScanner(stdout); !isDone && lines.Scan(); {
		if first == 0 {
			first = time.Since(began)
		}
		_, _ = fmt.Fprintln(out, lines.Text())
		isDone = done(lines.Text())
	}
	_ = cmd.Process.Signal(syscall.SIGINT)
	go func() { _, _ = io.Copy(io.Discard, stdout) }() // ends with the command
	ended := cmd.Wait()
	if !isDone {
		return 0, errors.Join(errors.New("the stream ended early"), ended)
	}
	_, _ = fmt.Fprintln(out, "^C")
	return first, nil
}

// output returns the standard output of a kubectl command that the demo does not show.
func (d *demo) output(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := d.command(ctx, d.kubectl, kubeconfig, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.String(), nil
}

// clusterpassCommand shows a command of clusterpass. If file is not empty, the output goes there.
func (d *demo) clusterpassCommand(ctx context.Context, file string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := d.command(ctx, d.clusterpass, d.kubeconfig(), args...)
	cmd.Stdout, cmd.Stderr = d.out, d.out
	redirect := ""
	if file != "" {
		f, err := os.OpenFile(filepath.Join(d.dir, file), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		cmd.Stdout, redirect = f, " > "+file
	}
	d.printf("$ clusterpass %s%s\n", quote(args), redirect)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("clusterpass %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func (d *demo) command(ctx context.Context, program, kubeconfig string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+filepath.Join(d.dir, "cache"),
		"CLUSTERPASS_STORE=dir:"+d.store())
	return cmd
}

func quote(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		if out[i] = a; strings.ContainsAny(a, " $\"'{}\\") {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}
