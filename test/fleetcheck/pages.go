package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

var errExpired = errors.New("the continue token has expired")

func (r *runner) comparePages(ctx context.Context) error {
	for _, k := range r.someKinds(2) {
		s, f := r.selection(k), generate.Pick(r.src, forms)
		if !r.hasMember(s) {
			continue
		}
		limits := r.limits()
		r.note("pages of %v of %s%s", limits, f.prefix, s)
		err := r.atRest(ctx, s, f, func(ctx context.Context, want state) error {
			got, err := r.pages(ctx, s, f, limits, func() error { return nil })
			if err != nil {
				return slowIfUnavailable(err)
			}
			if err := compareStates(want, got, true); err != nil {
				return fmt.Errorf("pages of %v of %s%s: %w", limits, f.prefix, s, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.compareMovingPages(ctx)
}

func (r *runner) limits() []int {
	var limits []int
	for range 4 {
		limits = append(limits, generate.Pick(r.src, []int{1, 2, 3, 5, 8, 13, 100, 500}))
	}
	return limits
}

// pages calls between after each page but the last.
func (r *runner) pages(ctx context.Context, s selection, f form, limits []int, between func() error) (state, error) {
	all, token := state{}, ""
	for page := 0; ; page++ {
		query := url.Values{"limit": {strconv.Itoa(limits[page%len(limits)])}}
		if token != "" {
			query.Set("continue", token)
		}
		l, err := r.listFleet(ctx, f.prefix+s.path(query, true), f)
		var refused *refusal
		if errors.As(err, &refused) && refused.answer.code == http.StatusGone && token != "" {
			return nil, errExpired
		}
		if err != nil {
			return nil, err
		}
		if err := r.wantWarnings(l.warnings, s, nil); err != nil {
			return nil, err
		}
		if limit := limits[page%len(limits)]; len(l.state) > limit {
			return nil, fmt.Errorf("%s%s: a page of limit %d has %d objects", f.prefix, s.path(query, true), limit, len(l.state))
		}
		for key, o := range l.state {
			if _, ok := all[key]; ok {
				return nil, fmt.Errorf("%s%s: %v is in two pages", f.prefix, s, key)
			}
			all[key] = o
		}
		if token = l.next; token == "" {
			return all, nil
		}
		if err := between(); err != nil {
			return nil, err
		}
	}
}

// compareMovingPages writes between pages. The pages must show each cluster at one moment: the beginning, or after one
// of the writes.
func (r *runner) compareMovingPages(ctx context.Context) error {
	s := selection{kind: generate.Pick(r.src, customKinds), selector: generate.Label}
	f, limits := generate.Pick(r.src, forms), []int{1 + r.src.IntN(8)}
	snapshots := map[string][]state{}
	record := func() error {
		all, err := r.union(ctx, s, f)
		for _, m := range r.members {
			snapshots[m.name] = append(snapshots[m.name], part(all, m.name))
		}
		return err
	}
	if err := record(); err != nil {
		return err
	}
	compacts := !r.calm && r.src.Chance(4)
	r.note("pages of %v of %s%s while objects are written; compaction: %v", limits, f.prefix, s, compacts)
	writes := 0
	got, err := r.pages(ctx, s, f, limits, func() error {
		if writes++; writes > 3 {
			return nil
		}
		if compacts && writes == 2 {
			r.epoch.next()
			if err := compact(ctx, r.set, r.healthyMember()); err != nil {
				return err
			}
		}
		if err := r.write(ctx); err != nil {
			return err
		}
		return record()
	})
	var slow *slowError
	switch {
	case errors.Is(err, errExpired) && compacts, isSlow(slowIfUnavailable(err), &slow):
		return nil // as documented, and a cluster was slow
	case err != nil:
		return err
	}
	for _, m := range r.members {
		var differs error
		for _, snapshot := range snapshots[m.name] {
			if differs = compareStates(snapshot, part(got, m.name), true); differs == nil {
				break
			}
		}
		if differs != nil {
			return fmt.Errorf("pages of %s%s show no moment of %s; the last one: %w", f.prefix, s, m.name, differs)
		}
	}
	return nil
}

func part(all state, cluster string) state {
	own := maps.Clone(all)
	maps.DeleteFunc(own, func(k objectKey, _ map[string]any) bool { return k.cluster != cluster })
	return own
}
