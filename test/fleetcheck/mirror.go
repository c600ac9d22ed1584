package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// write is the same request for both objects of a pair.
type write struct {
	pair        *pair
	at          placement
	form        form
	method      string
	isCreate    bool   // the path is the collection's
	subresource string // with its slash
	query       url.Values
	contentType string
	body        func(name, namespace string) ([]byte, error)
}

func (w *write) String() string {
	return fmt.Sprintf("%s %v%s by %v below %s as %s %s",
		w.method, w.pair, w.subresource, w.at, w.form.prefix, w.contentType, w.query.Encode())
}

func (w *write) request(prefix, name, namespace string) (request, error) {
	path := w.pair.kind.object(namespace, name)
	if w.isCreate {
		path = w.pair.kind.collection(namespace)
	}
	r := request{method: w.method, path: prefix + path + w.subresource, contentType: w.contentType}
	r.path += "?" + w.query.Encode()
	var err error
	if w.body != nil {
		r.body, err = w.body(name, namespace)
	}
	return r, err
}

// mirror sends the write to the cluster and through the fleet, and compares the answers. It returns the cluster's.
func (r *runner) mirror(ctx context.Context, w *write) (*answer, error) {
	p := w.pair
	direct, err := w.request("", p.twin, p.namespace)
	if err != nil {
		return nil, err
	}
	name, namespace := p.names(w.at)
	through, err := w.request(w.form.prefix, name, namespace)
	if err != nil {
		return nil, err
	}
	want, err := p.member.direct.do(ctx, direct)
	if err != nil {
		return nil, fmt.Errorf("%v: write directly: %w", w, err)
	}
	got, err := r.send(ctx, w, through)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", w, err)
	}
	r.counts.writes++
	r.note("%v: %d", w, want.code)
	if err := r.compareAnswers(w, want, got); err != nil {
		return nil, fmt.Errorf("%v: %w\nbody: %s", w, err, head(through.body))
	}
	return want, nil
}

// send repeats a write that the fleet refused because of a slow cluster. An error that came at once, or of a write that
// was stored, is a fault.
func (r *runner) send(ctx context.Context, w *write, through request) (*answer, error) {
	var got *answer
	var fault error
	err := waittest.Poll(ctx, func(ctx context.Context) error {
		before := r.version(ctx, w.pair)
		start := time.Now()
		a, err := r.gateway.do(ctx, through)
		if err != nil {
			fault = err
			return nil
		}
		got = a
		if !isUnavailable(a.code) {
			return nil
		}
		if r.version(ctx, w.pair) != before {
			fault = fmt.Errorf("code %d after %v, although the write is stored: %s", a.code, time.Since(start), head(a.body))
			return nil
		}
		return fmt.Errorf("code %d: %s", a.code, head(a.body))
	})
	return got, errors.Join(fault, err)
}

// version returns the resourceVersion of the pair's object in its cluster, or a status code.
func (r *runner) version(ctx context.Context, p *pair) string {
	a, err := p.member.direct.do(ctx, request{method: "GET", path: p.kind.object(p.namespace, p.name)})
	if err != nil {
		return err.Error()
	}
	o, err := a.object()
	m, _ := o["metadata"].(map[string]any)
	version, ok := m["resourceVersion"].(string)
	if err != nil || !ok {
		return fmt.Sprint(a.code)
	}
	return version
}

func (r *runner) compareAnswers(w *write, want, got *answer) error {
	if want.code != got.code {
		return fmt.Errorf("the fleet answers %d, the cluster %d\nfleet: %s\ncluster: %s",
			got.code, want.code, head(got.body), head(want.body))
	}
	if !want.isSuccess() {
		return compareRefusals(want, got)
	}
	return r.compareObjects(w.pair, w.pair.shownAs(w.at, w.form), want, got)
}

// compareObjects compares the fleet's answer for a pair with the cluster's answer for its twin.
func (r *runner) compareObjects(p *pair, as shown, want, got *answer) error {
	w, err := want.object()
	if err != nil {
		return err
	}
	g, err := got.object()
	if err != nil {
		return err
	}
	if w, err = comparable(w, p.twinToken()); err != nil {
		return err
	}
	if g, err = comparable(g, p.token); err != nil {
		return err
	}
	if d := diff(as.of(w), g); d != "" {
		return fmt.Errorf("the fleet's answer differs from the cluster's (-cluster +fleet):\n%s", d)
	}
	return nil
}

// compareRefusals compares two errors: code, reason and the refused fields.
func compareRefusals(want, got *answer) error {
	w, err := want.status()
	if err != nil {
		return err
	}
	g, err := got.status()
	if err != nil {
		return err
	}
	wantFields, gotFields := refusedFields(w), refusedFields(g)
	if w.Reason != g.Reason || !slices.Equal(wantFields, gotFields) {
		return fmt.Errorf("the fleet refuses with %s %v, the cluster with %s %v\nfleet: %s\ncluster: %s",
			g.Reason, gotFields, w.Reason, wantFields, head(got.body), head(want.body))
	}
	return nil
}

// refusedFields returns the fields that an error names. Causes without a field are the gateway's own reasons.
func refusedFields(s *metav1.Status) []string {
	var fields []string
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			if c.Field != "" {
				fields = append(fields, string(c.Type)+" "+c.Field)
			}
		}
	}
	slices.Sort(fields)
	return fields
}

// forget removes a pair whose objects are gone. It fails if only one of them is.
func (r *runner) forget(ctx context.Context, p *pair) error {
	var codes []int
	for _, name := range []string{p.name, p.twin} {
		a, err := p.member.direct.do(ctx, request{method: "GET", path: p.kind.object(p.namespace, name)})
		if err != nil {
			return err
		}
		codes = append(codes, a.code)
	}
	if codes[0] != codes[1] {
		return fmt.Errorf("%v: after the same DELETE, codes %v: %s", p, codes, strings.Join([]string{p.name, p.twin}, ", "))
	}
	if codes[0] == http.StatusNotFound {
		r.pairs = slices.DeleteFunc(r.pairs, func(o *pair) bool { return o == p })
	}
	return nil
}
