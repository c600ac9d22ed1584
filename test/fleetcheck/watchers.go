package main

import (
	"context"
	"fmt"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

func (r *runner) startWatchers(ctx context.Context) error {
	kinds := append(r.someKinds(0), customKinds[0], kind{configMap, "configmaps", true, false})
	for i, k := range kinds {
		s := selection{kind: k, selector: generate.Label}
		if i > 1 {
			s = r.selection(k)
		}
		w := &watcher{r: r, selection: s, form: forms[i%len(forms)], done: make(chan struct{})}
		r.note("watch %s%s", w.form.prefix, s)
		r.watchers = append(r.watchers, w)
		go w.run(r.watching)
	}
	return ctx.Err()
}

// relistSome makes some watches list again. Their expiry is then unexpected until the next disturbance.
func (r *runner) relistSome() {
	for i, w := range r.watchers {
		if r.src.Chance(2) {
			r.note("cut watch %d, to list again", i)
			w.resumeFrom(-1)
		}
	}
}

func (r *runner) stopWatchers() {
	r.stopWatching()
	for _, w := range r.watchers {
		<-w.done
	}
}

func (r *runner) cutWatcher() {
	if len(r.watchers) == 0 || !r.src.Chance(3) {
		return
	}
	i, ago := r.src.IntN(len(r.watchers)), r.src.IntN(8)
	r.note("cut watch %d, to resume %d events before", i, ago)
	r.watchers[i].resumeFrom(ago)
}

// compareWatches waits until every watch has the clusters' objects.
func (r *runner) compareWatches(ctx context.Context) error {
	for i, w := range r.watchers {
		r.note("compare watch %d of %s%s", i, w.form.prefix, w.selection)
		err := waittest.Poll(ctx, func(ctx context.Context) error {
			if w.failure() != nil {
				return nil
			}
			want, err := r.union(ctx, w.selection, w.form)
			if err != nil {
				return err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			return compareStates(want, w.state, false)
		})
		if fault := w.failure(); fault != nil {
			return fault
		}
		if err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			return fmt.Errorf("watch %s%s differs from the clusters for %v, its last request ended with %q: %w",
				w.form.prefix, w.selection, waittest.Patience, w.last, err)
		}
	}
	return nil
}
