package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

func (r *runner) compareGets(ctx context.Context) error {
	for _, p := range r.pairs {
		if !p.member.registered {
			continue
		}
		at, f := r.place(p, false)
		name, namespace := p.names(at)
		path := f.prefix + p.kind.object(namespace, name)
		r.note("GET %s", path)
		direct, err := p.member.direct.do(ctx, request{method: "GET", path: p.kind.object(p.namespace, p.name)})
		if err != nil {
			return err
		}
		through, err := r.read(ctx, path)
		if err != nil {
			return err
		}
		if direct.code != through.code {
			const text = "GET %s: the fleet answers %d, the cluster %d: %s"
			return fmt.Errorf(text, path, through.code, direct.code, head(through.body))
		}
		if !direct.isSuccess() { // an event that has expired
			continue
		}
		want, err := direct.object()
		if err != nil {
			return err
		}
		got, err := through.object()
		if err != nil {
			return err
		}
		if d := diff(p.shownAs(at, f).of(want), got); d != "" {
			return fmt.Errorf("GET %s: the fleet's answer differs (-cluster +fleet):\n%s", path, d)
		}
	}
	return nil
}

func (r *runner) read(ctx context.Context, path string) (got *answer, err error) {
	err = waittest.Poll(ctx, func(ctx context.Context) error {
		if got, err = r.gateway.do(ctx, request{method: "GET", path: path}); err != nil {
			return err
		}
		if warning := r.memberWarning(got.header); isUnavailable(got.code) || warning != "" {
			return fmt.Errorf("GET %s: code %d, warning %q: %s", path, got.code, warning, head(got.body))
		}
		return nil
	})
	return got, err
}

// memberWarning returns the warnings about clusters that did not answer. API servers warn of deprecated kinds, too.
func (r *runner) memberWarning(header http.Header) string {
	text := strings.Join(header.Values("Warning"), "\n")
	if slices.ContainsFunc(r.members, func(m *member) bool { return strings.Contains(text, m.name) }) {
		return text
	}
	return ""
}

// compareBareNames reads objects by their names alone: found in one cluster, ambiguous in several, or absent.
func (r *runner) compareBareNames(ctx context.Context) error {
	for range 4 {
		k, namespace, f := generate.Pick(r.src, customKinds), "", generate.Pick(r.src, forms)
		if k.isNamespaced {
			namespace = generate.Pick(r.src, namespaces)
		}
		name := fmt.Sprintf("%s%02d", nameToken, r.src.IntN(namesOfKind))
		want := []int{http.StatusNotFound, http.StatusOK, http.StatusConflict}
		have, err := r.countObjects(ctx, k, namespace, name)
		if err != nil {
			return err
		}
		path := f.prefix + k.object(namespace, name)
		r.note("GET %s, which %d clusters have", path, have)
		a, err := r.read(ctx, path)
		if err != nil {
			return err
		}
		if a.code != want[min(have, 2)] {
			return fmt.Errorf("GET %s, which %d clusters have: code %d: %s", path, have, a.code, head(a.body))
		}
		if a.code != http.StatusOK {
			if _, err := a.status(); err != nil {
				return fmt.Errorf("GET %s: %w", path, err)
			}
		}
		if err := r.compareBareWrites(ctx, path, have); err != nil {
			return err
		}
		if left, err := r.countObjects(ctx, k, namespace, name); err != nil || left != have {
			return errors.Join(err, fmt.Errorf("%d clusters have %s after refused deletions, %d had it", left, path, have))
		}
	}
	return nil
}

func (r *runner) countObjects(ctx context.Context, k kind, namespace, name string) (int, error) {
	n := 0
	for _, m := range r.members {
		a, err := m.direct.do(ctx, request{method: "GET", path: k.object(namespace, name)})
		if err != nil {
			return 0, err
		}
		if a.isSuccess() && m.registered {
			n++
		}
	}
	return n, nil
}

// compareBareWrites expects a refusal of a deletion and a patch by a name alone.
func (r *runner) compareBareWrites(ctx context.Context, path string, have int) error {
	want := []int{http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusConflict}[min(have, 2)]
	for _, req := range []request{
		{method: "DELETE", path: path},
		{method: "PATCH", path: path, contentType: typeMerge, body: []byte(`{"spec": {"bare": true}}`)},
	} {
		var got *answer
		err := waittest.Poll(ctx, func(ctx context.Context) (err error) {
			if got, err = r.gateway.do(ctx, req); err == nil && isUnavailable(got.code) {
				err = fmt.Errorf("code %d: %s", got.code, head(got.body))
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s %s: %w", req.method, path, err)
		}
		if _, err := got.status(); err != nil || got.code != want {
			const text = "%s %s by its name alone, which %d clusters have: code %d, want %d: %s"
			return errors.Join(err, fmt.Errorf(text, req.method, path, have, got.code, want, head(got.body)))
		}
	}
	return nil
}
