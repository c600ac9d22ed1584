package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

type options struct {
	seed     uint64
	duration time.Duration
	clusters int
	calm     bool // no faults
	verbose  bool
	out      io.Writer
}

var namespaces = []string{"fleetcheck", "fleetcheck-b"}

const writesPerRound = 12

type runner struct {
	options
	*world
	src          *generate.Source // source of the operation that runs
	kinds        []kind
	referring    []kind // those of kinds that have references
	pairs        []*pair
	watchers     []*watcher
	watching     context.Context // ends with the run
	stopWatching context.CancelFunc
	epoch        epoch
	ops          uint64
	history      []string // the last operations
	counts       counts
}

type counts struct {
	writes, checks, faults         int
	generated, accepted            int
	acceptedKinds, generatedKinds  map[string]int
	relists, resumptions, watchEvs int
}

// check runs the comparison. An error contains the seed.
func check(ctx context.Context, o options) (err error) {
	_, _ = fmt.Fprintf(o.out, "seed %d\n", o.seed)
	w, err := newWorld(ctx, o.clusters, o.out)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nthe last warnings of the gateway:\n%s", err, w.warnings())
		}
		err = errors.Join(err, w.close())
	}()
	r := &runner{options: o, world: w}
	r.counts.acceptedKinds, r.counts.generatedKinds = map[string]int{}, map[string]int{}
	r.watching, r.stopWatching = context.WithCancel(ctx)
	defer r.stopWatchers()
	if err := r.prepare(ctx); err != nil {
		return fmt.Errorf("prepare the clusters: %w", err)
	}
	start := time.Now()
	for round := 1; round == 1 || time.Since(start) < o.duration; round++ {
		if err := r.round(ctx, round); err != nil {
			return fmt.Errorf("seed %d: round %d: operation %d: %w\nthe last operations:\n%s",
				o.seed, round, r.ops, err, strings.Join(r.history, "\n"))
		}
	}
	r.summarize(time.Since(start))
	return nil
}

// begin starts an operation with its own random stream.
func (r *runner) begin() {
	r.ops++
	r.src = generate.New(r.seed, r.ops)
}

func (r *runner) note(format string, args ...any) {
	line := fmt.Sprintf("%s #%d %s", time.Now().UTC().Format("15:04:05"), r.ops, fmt.Sprintf(format, args...))
	if r.verbose {
		_, _ = fmt.Fprintln(r.out, line)
	}
	const maxLines = 40
	if r.history = append(r.history, line); len(r.history) > maxLines {
		r.history = r.history[1:]
	}
}

func (r *runner) summarize(elapsed time.Duration) {
	c := r.counts
	for _, w := range r.watchers {
		relists, resumptions, events := w.counts()
		c.relists, c.resumptions, c.watchEvs = c.relists+relists, c.resumptions+resumptions, c.watchEvs+events
	}
	_, _ = fmt.Fprintf(r.out, "%v: %d operations, %d pairs of writes, %d comparisons, %d faults of clusters\n",
		elapsed.Round(time.Second), r.ops, c.writes, c.checks, c.faults)
	_, _ = fmt.Fprintf(r.out, "random objects: %d of %d accepted, of %d kinds of %d\n",
		c.accepted, c.generated, len(c.acceptedKinds), len(c.generatedKinds))
	_, _ = fmt.Fprintf(r.out, "watches: %d events, %d resumptions, %d new lists\n", c.watchEvs, c.resumptions, c.relists)
}

// prepare creates namespaces and custom kinds, stops the controllers, and makes everything global.
func (r *runner) prepare(ctx context.Context) error {
	if err := r.noteIDs(ctx); err != nil {
		return err
	}
	for _, m := range r.members {
		for _, namespace := range namespaces {
			body := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q}}`, namespace)
			a, err := m.direct.do(ctx, request{method: "POST", path: "/api/v1/namespaces", body: []byte(body)})
			if err == nil && !a.isSuccess() {
				err = errors.New(head(a.body))
			}
			if err != nil {
				return fmt.Errorf("create namespace %s in %s: %w", namespace, m.name, err)
			}
			err = waittest.Poll(ctx, func(ctx context.Context) error { // pods need it
				path := "/api/v1/namespaces/" + namespace + "/serviceaccounts/default"
				return wantCode(ctx, m.direct, path, http.StatusOK)
			})
			if err != nil {
				return err
			}
		}
		if err := m.cluster.Kill(ctx, cluster.ControllerManager, cluster.Scheduler, cluster.Kwok); err != nil {
			return err
		}
		if err := defineCustomKinds(ctx, m); err != nil {
			return err
		}
	}
	const registry = `{"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry", "metadata": {"name": "all"},
	 "spec": {"targetCluster": {}, "resourceSelectors": [{"apiVersion": "*", "kind": "*"}]}}`
	const path = "/apis/search.karmada.io/v1alpha1/resourceregistries"
	a, err := r.gateway.do(ctx, request{method: "POST", path: path, body: []byte(registry)})
	if err == nil && !a.isSuccess() {
		err = fmt.Errorf("create the ResourceRegistry: %s", head(a.body))
	}
	if err != nil {
		return err
	}
	if r.kinds, err = typedKinds(r.members[0]); err != nil {
		return err
	}
	if r.referring, err = withReferences(r.kinds); err != nil {
		return err
	}
	return r.settle(ctx)
}

func (r *runner) round(ctx context.Context, n int) error {
	if n == 1 {
		r.begin()
		if err := r.startWatchers(ctx); err != nil {
			return err
		}
	}
	r.begin()
	r.relistSome()
	for range writesPerRound {
		r.begin()
		if err := r.write(ctx); err != nil {
			return err
		}
		r.cutWatcher()
	}
	if r.begin(); !r.calm {
		if err := r.disturb(ctx, n); err != nil {
			return err
		}
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	r.note("everything is at rest")
	steps := []func(context.Context) error{
		r.compareLists, r.comparePages, r.compareGets, r.compareErrors, r.compareBareNames, r.compareBeginnings,
		r.compareWatches,
	}
	for _, step := range steps {
		r.begin()
		if err := step(ctx); err != nil {
			return err
		}
		r.counts.checks++
	}
	return nil
}

// settle waits until every registered cluster answers in every form of the fleet, and no other does.
func (r *runner) settle(ctx context.Context) error {
	defer r.epoch.next()
	for _, f := range forms {
		for _, k := range append(slices.Clone(customKinds), kind{configMap, "configmaps", true, false}) {
			path := f.prefix + k.collection("") + "?strict=true&limit=500&labelSelector=" + generate.Label
			err := waittest.Poll(ctx, func(ctx context.Context) error {
				a, err := r.gateway.do(ctx, request{method: "GET", path: path})
				if err == nil && (a.code != http.StatusOK || a.header.Get("Warning") != "") {
					const text = "GET %s: code %d, warning %q: %s"
					err = fmt.Errorf(text, path, a.code, a.header.Get("Warning"), head(a.body))
				}
				if err != nil {
					return err
				}
				return r.namesMembers(ctx, f)
			})
			if err != nil {
				return fmt.Errorf("the fleet does not come to rest within %v: %w", waittest.Patience, err)
			}
		}
	}
	return nil
}

// namesMembers fails unless exactly the registered clusters answer in a form of the fleet. Each has a kube-system.
func (r *runner) namesMembers(ctx context.Context, f form) error {
	path := f.prefix + "/api/v1/namespaces?fieldSelector=metadata.name%3Dkube-system"
	items, err := r.listFleet(ctx, path, f)
	if err != nil {
		return err
	}
	var got, want []string
	for key := range items.state {
		got = append(got, key.cluster)
	}
	for _, m := range r.members {
		if m.registered {
			want = append(want, m.name)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		return fmt.Errorf("GET %s: clusters %v answer, want %v", path, got, want)
	}
	return nil
}
