package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/test/cluster"
)

type demo struct {
	ctx      context.Context
	clusters *cluster.Set
	dir      string
	pass     string
}

func run(ctx context.Context, exit bool) (err error) {
	d := &demo{ctx: ctx}
	if d.dir, err = os.MkdirTemp("", "clusterpass-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	d.pass = filepath.Join(d.dir, "clusterpass.kubeconfig")

	say("Two real Kubernetes clusters, member1 and member2, each with its own etcd and certificate authority.")
	if d.clusters, err = cluster.New(ctx, cluster.Options{Clusters: []string{"member1", "member2"},
		Progress: os.Stdout}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.clusters.Stop()) }()
	if err := d.populate(); err != nil {
		return err
	}

	say("The gateway: an HTTPS server, the functions as on AWS Lambda, and the bridge.")
	gatewayCtx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	started := make(chan struct{})
	go func() { ended <- d.gateway(gatewayCtx, started) }()
	defer func() { stop(); <-ended }()
	select {
	case <-started:
	case err := <-ended:
		ended <- nil
		return err
	case <-ctx.Done():
		return nil
	}
	if err := d.walk(); err != nil {
		return err
	}
	if err := d.fleet(); err != nil {
		return err
	}
	if err := d.streams(); err != nil {
		return err
	}
	if exit {
		return nil
	}
	say("The gateway stays up until ctrl-C. In another terminal:")
	fmt.Printf("  export KUBECONFIG=%s\n  kubectl --context member2 get pods -A\n\n", d.pass)
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		ended <- nil
		return err
	}
}

func (d *demo) populate() error {
	say("Pods in both clusters, which run as processes of this machine.")
	this, err := os.Executable()
	if err != nil {
		return err
	}
	for _, c := range d.clusters.Clusters() {
		path := filepath.Join(d.dir, "pods.yaml")
		manifest := strings.NewReplacer("CLUSTER", c.Name(), "THIS", this).Replace(pods)
		if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
			return err
		}
		for _, args := range [][]string{
			{"apply", "-f", path},
			{"rollout", "status", "deployment/web", "--timeout=90s"},
			{"wait", "--for=condition=Ready", "pod/site", "--timeout=90s"},
		} {
			if err := d.kubectl(c.KubeconfigFile(), io.Discard, args...); err != nil {
				return err
			}
		}
	}
	return nil
}

const pods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: web
        command: [sh, -c, "while :; do echo hello from CLUSTER; sleep 1; done"]
---
apiVersion: v1
kind: Pod
metadata: {name: site}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: site, image: any, command: [THIS, --site]}]
`

// gateway closes started when it serves both clusters.
func (d *demo) gateway(ctx context.Context, started chan struct{}) error {
	// make builds the functions and runs the demo in the root of the checkout.
	exe, err := filepath.Abs("dist/local/functions")
	if err != nil {
		return err
	}
	cfg := &server.Config{
		Listen: "127.0.0.1:0", Data: filepath.Join(d.dir, "data"), Functions: server.Process, FunctionsDir: exe,
		Kubeconfig: d.pass, Register: d.clusters.KubeconfigFile(), DrainTimeout: 2 * time.Second,
		Shared: assembly.Shared{LogLevel: slog.LevelError},
	}
	return server.Run(ctx, cfg, server.Output{Progress: os.Stdout}, func() { close(started) })
}

func (d *demo) walk() error {
	steps := []struct {
		about string
		args  []string
	}{
		{"One kubeconfig, a context for each cluster.", []string{"config", "get-contexts", "-o", "name"}},
		{"Read one cluster, then the other.", []string{"--context", "member1", "get", "nodes,pods", "-o", "wide"}},
		{"", []string{"--context", "member2", "get", "pods"}},
		{"The same by the URL that Karmada has.", []string{"--context", "clusterpass", "get", "--raw",
			"/apis/cluster.karmada.io/v1alpha1/clusters/member2/proxy/version"}},
		{"Write.", []string{"--context", "member1", "create", "configmap", "note", "--from-literal=from=the gateway"}},
		{"", []string{"--context", "member1", "get", "configmap", "note", "-o", "jsonpath={.data.from}{\"\\n\"}"}},
		{"", []string{"--context", "member1", "scale", "deployment/web", "--replicas=3"}},
		{"Watch until it is done: this goes through the bridge.", []string{"--context", "member1", "rollout", "status",
			"deployment/web", "--timeout=60s"}},
		{"Logs, and a command in a container.", []string{"--context", "member2", "logs", "deployment/web", "--tail=1"}},
		{"", []string{"--context", "member2", "exec", "deployment/web", "--", "sh", "-c", "echo I am process $$"}},
		{"Errors of a cluster arrive unchanged.", []string{"--context", "member1", "get", "pod", "nosuch"}},
		{"Errors of the gateway have a reason and advice.", []string{"--context", "clusterpass", "get", "--raw",
			"/clusters/nosuch/version"}},
	}
	for _, s := range steps {
		if s.about != "" {
			say("%s", s.about)
		}
		err := d.show(s.args...)
		var exit *exec.ExitError
		refusal := strings.Contains(strings.Join(s.args, " "), "nosuch")
		if (err != nil) != refusal || (refusal && !errors.As(err, &exit)) {
			return fmt.Errorf("kubectl %s: %w", strings.Join(s.args, " "), errors.Join(err, d.ctx.Err()))
		}
	}
	return nil
}

func (d *demo) show(args ...string) error {
	fmt.Printf("$ kubectl %s\n", quote(args))
	return d.kubectl(d.pass, os.Stdout, args...)
}

func (d *demo) kubectl(kubeconfig string, out io.Writer, args ...string) error {
	ctx, cancel := context.WithTimeout(d.ctx, 2*time.Minute)
	defer cancel()
	cmd := d.command(ctx, kubeconfig, args...)
	cmd.Stdout, cmd.Stderr = out, os.Stdout
	return cmd.Run()
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

func say(format string, args ...any) { fmt.Printf("\n# "+format+"\n", args...) }
