package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

type list struct {
	state    state
	version  string
	next     string // continue
	warnings []string
}

type refusal struct {
	request string
	answer  *answer
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s: code %d: %s", r.request, r.answer.code, head(r.answer.body))
}

// listFleet returns keys as the clusters have the objects, and objects as the fleet shows them.
func (r *runner) listFleet(ctx context.Context, path string, f form) (*list, error) {
	return readList(ctx, r.gateway, path, func(o map[string]any) objectKey { return shownKeyOf(o, f) })
}

func listDirect(ctx context.Context, m *member, path string) (*list, error) {
	return readList(ctx, m.direct, path, func(o map[string]any) objectKey { return keyOf(m.name, o) })
}

func readList(ctx context.Context, e endpoint, path string, key func(o map[string]any) objectKey) (*list, error) {
	a, err := e.do(ctx, request{method: "GET", path: path})
	if err != nil {
		return nil, err
	}
	if a.code != http.StatusOK {
		if _, err := a.status(); err != nil {
			return nil, fmt.Errorf("GET %s: %w", path, err)
		}
		return nil, &refusal{"GET " + path, a}
	}
	var body struct {
		Metadata struct{ Continue, ResourceVersion string }
		Items    []map[string]any
	}
	if err := generate.Decode(a.body, &body); err != nil {
		return nil, fmt.Errorf("GET %s: read the list: %w", path, err)
	}
	l := &list{state: state{}, version: body.Metadata.ResourceVersion, next: body.Metadata.Continue}
	l.warnings = a.header.Values("Warning")
	for _, o := range body.Items {
		k := key(o)
		if _, ok := l.state[k]; ok {
			return nil, fmt.Errorf("GET %s: %v is in the list twice", path, k)
		}
		l.state[k] = o
	}
	return l, nil
}

type selection struct {
	kind      kind
	namespace string // "" for all
	selector  string // of labels
	clusters  []string
}

// selection never selects objects that no run wrote.
func (r *runner) selection(k kind) selection {
	s := selection{kind: k, selector: generate.Label}
	if k.isNamespaced && r.src.Chance(2) {
		s.namespace = generate.Pick(r.src, namespaces)
	}
	if r.src.Chance(3) {
		s.selector += ",group!=" + generate.Pick(r.src, []string{"a", "b", "c"})
	}
	if r.src.Chance(4) {
		for _, m := range r.members {
			if r.src.Chance(2) {
				s.clusters = append(s.clusters, m.name)
			}
		}
	}
	return s
}

func (s selection) path(more url.Values, atFleet bool) string {
	query := url.Values{"labelSelector": {s.selector}}
	if atFleet && len(s.clusters) > 0 {
		query.Set("clusters", strings.Join(s.clusters, ","))
	}
	for k, v := range more {
		query[k] = v
	}
	return s.kind.collection(s.namespace) + "?" + query.Encode()
}

func (s selection) String() string { return s.path(nil, true) }

func (s selection) includes(m *member) bool {
	return m.registered && (len(s.clusters) == 0 || slices.Contains(s.clusters, m.name))
}

func (r *runner) hasMember(s selection) bool { return slices.ContainsFunc(r.members, s.includes) }

// union returns the objects of all clusters that are not down, as the fleet shows them.
func (r *runner) union(ctx context.Context, s selection, f form) (state, error) {
	all := state{}
	for _, m := range r.members {
		if !s.includes(m) || m.down {
			continue
		}
		l, err := listDirect(ctx, m, s.path(nil, false))
		if err != nil {
			return nil, fmt.Errorf("list %s directly: %w", m.name, err)
		}
		for key, o := range l.state {
			all[key] = shown{kind: s.kind, cluster: m.name, isQualified: f.isQualified}.of(o)
		}
	}
	return all, nil
}

// someKinds returns custom kinds, and n kinds of written objects.
func (r *runner) someKinds(n int) []kind {
	kinds := slices.Clone(customKinds)
	for range n {
		if len(r.pairs) > 0 {
			kinds = append(kinds, generate.Pick(r.src, r.pairs).kind)
		} else {
			kinds = append(kinds, generate.Pick(r.src, r.kinds))
		}
	}
	return kinds
}

func (r *runner) compareLists(ctx context.Context) error {
	for _, k := range r.someKinds(6) {
		s, f := r.selection(k), generate.Pick(r.src, forms)
		if !r.hasMember(s) {
			continue
		}
		r.note("list %s%s", f.prefix, s)
		if err := r.compareList(ctx, s, f, nil); err != nil {
			return err
		}
	}
	return nil
}

// atRest repeats a comparison if a cluster was slow or objects changed meanwhile. Any other difference fails at once.
func (r *runner) atRest(
	ctx context.Context, s selection, f form, compare func(ctx context.Context, want state) error,
) error {
	var failed error
	err := waittest.Poll(ctx, func(ctx context.Context) error {
		want, err := r.union(ctx, s, f)
		if err != nil {
			return err
		}
		err = compare(ctx, want)
		if slow := (*slowError)(nil); err == nil || isSlow(err, &slow) {
			return err
		}
		again, listErr := r.union(ctx, s, f)
		if listErr != nil {
			return listErr
		}
		if changed := compareStates(want, again, true); changed != nil { // events expire, for example
			return fmt.Errorf("the clusters do not rest: %w", changed)
		}
		failed = err
		return nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// compareList expects warnings about the clusters that are down.
func (r *runner) compareList(ctx context.Context, s selection, f form, down []*member) error {
	return r.atRest(ctx, s, f, func(ctx context.Context, want state) error {
		l, err := r.listFleet(ctx, f.prefix+s.path(nil, true), f)
		if err != nil {
			return slowIfUnavailable(err)
		}
		if err := r.wantWarnings(l.warnings, s, down); err != nil {
			return err
		}
		if err := compareStates(want, l.state, true); err != nil {
			return fmt.Errorf("list %s%s: %w", f.prefix, s, err)
		}
		return nil
	})
}

// wantWarnings fails if a cluster that is down is omitted without a warning. A warning about another one is slowness.
func (r *runner) wantWarnings(warnings []string, s selection, down []*member) error {
	text := strings.Join(warnings, "\n")
	for _, m := range r.members {
		isDown := slices.Contains(down, m)
		switch isNamed := strings.Contains(text, m.name); {
		case s.includes(m) && isDown && !isNamed:
			return fmt.Errorf("list %s: no warning names %s, which is down: %q", s, m.name, warnings)
		case !isDown && isNamed:
			return &slowError{fmt.Errorf("list %s: %s", s, text)}
		}
	}
	return nil
}
