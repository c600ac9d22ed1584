package main

import (
	"context"
	"errors"
	"strings"
	"time"
)

var listPods = call{args: []string{"--context", "fleet", "get", "pods", "-A"}}

// pass is the kubeconfig of a pass that may read one cluster.
const pass = "ann.kubeconfig"

// walk shows what the gateway does with both clusters.
func (d *demo) walk(ctx context.Context) error {
	for _, s := range []struct {
		about string
		do    func(context.Context) error
	}{
		{"The pods of all clusters.", d.shows(listPods)},
		{"One cluster, by its context.", d.shows(call{args: []string{"--context", "member2", "get", "nodes"}})},
		{"Each cluster has a pod web, so @ names the cluster.", d.shows(
			call{args: []string{"--context", "fleet", "exec", "web@member2", "--", "sh", "-c", "echo process $$ of $HOSTNAME"}},
			call{args: []string{"--context", "fleet", "create", "configmap", "note@member1", "--from-literal=from=fleet"},
				direct: []string{"create", "configmap", "note-direct", "--from-literal=from=fleet"}},
			call{args: []string{"--context", "member1", "get", "configmap", "note", "-o", "jsonpath={.data.from}{\"\\n\"}"}},
		)},
		{"Streams: a log, and a watch of both clusters while a pod starts in member2.", d.streams},
		{"A pass for Ann: she may read member1, and nothing else.", d.pass},
		{"What a user runs if something does not work.", func(ctx context.Context) error {
			return d.clusterpassCommand(ctx, "", "doctor")
		}},
	} {
		d.explain("%s", s.about)
		if err := s.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) shows(calls ...call) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, c := range calls {
			if err := d.show(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
}

func (d *demo) streams(ctx context.Context) error {
	lines := 0
	err := d.show(ctx, call{
		args:  []string{"--context", "fleet", "logs", "--follow", "--tail=1", "web@member1"},
		until: func(string) bool { lines++; return lines == 3 },
	})
	if err != nil {
		return err
	}
	// The watch prints existing pods first. Then a pod starts, which the gateway does not create.
	const late = "late"
	var created chan error
	existing := len(d.clusters) * len(podNames)
	lines = 0
	err = d.show(ctx, call{
		args: []string{"--context", "fleet", "get", "pods", "--watch"},
		until: func(line string) bool {
			if lines++; lines == existing+1 { // the first line is the header
				created = make(chan error, 1)
				go func() { created <- createPod(ctx, d.clusters[1], late) }()
			}
			return strings.HasPrefix(line, late) && strings.Contains(line, "Running")
		},
	})
	if created != nil {
		err = errors.Join(err, <-created)
	}
	return err
}

func (d *demo) pass(ctx context.Context) error {
	if err := d.clusterpassCommand(ctx, pass, "pass", "create", "ann", "--user", "ann", "--group", "system:masters",
		"--cluster", "member1", "--verb", "get"); err != nil {
		return err
	}
	return d.shows(
		call{args: []string{"--kubeconfig", pass, "--context", "member1", "get", "pods"}},
		call{args: []string{"--kubeconfig", pass, "--context", "member1", "delete", "pod", "web"},
			direct: []string{"--as", "ann", "delete", "pod", "web"}, refused: true},
	)(ctx)
}

// waitForFleet returns when the fleet lists the pods of a cluster. The gateway reads its stores now and then.
func (d *demo) waitForFleet(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the fleet does not list the pods of "+name))
	defer cancel()
	for {
		out, err := d.output(ctx, d.kubeconfig(), "--context", "fleet", "get", "pods", "-o", "name", "-l",
			"clusterpass.io/cluster="+name)
		if err == nil && strings.Count(out, "\n") == len(podNames) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
