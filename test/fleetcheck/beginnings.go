package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

const initialEventsEnd = "k8s.io/initial-events-end"

// compareBeginnings compares watches that begin without a version, with all objects or only with later events.
func (r *runner) compareBeginnings(ctx context.Context) error {
	for i, withObjects := range []bool{false, true} {
		s, f := r.selection(generate.Pick(r.src, customKinds)), generate.Pick(r.src, forms)
		if !r.hasMember(s) {
			continue
		}
		r.note("watch %s%s with sendInitialEvents=%t", f.prefix, s, withObjects)
		var fault error
		err := waittest.Poll(ctx, func(ctx context.Context) error {
			err := r.compareBeginning(ctx, s, f, withObjects, fmt.Sprintf("begun%d-%d", r.ops, i))
			if slow := (*slowError)(nil); err == nil || isSlow(err, &slow) {
				return err
			}
			fault = err
			return nil
		})
		if fault == nil {
			fault = err
		}
		if fault != nil {
			return fmt.Errorf("watch %s%s with sendInitialEvents=%t: %w", f.prefix, s, withObjects, fault)
		}
	}
	return nil
}

// compareBeginning creates and deletes an object in each cluster. The watch must have no other events, except of
// objects that exist before.
func (r *runner) compareBeginning(ctx context.Context, s selection, f form, withObjects bool, name string) error {
	ctx, cancel := context.WithTimeout(ctx, waittest.Patience)
	defer cancel()
	query := url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
		"sendInitialEvents": {fmt.Sprint(withObjects)},
	}
	resp, err := r.gateway.open(ctx, request{method: "GET", path: f.prefix + s.path(query, true)})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case isUnavailable(resp.StatusCode), r.memberWarning(resp.Header) != "":
		return &slowError{fmt.Errorf("code %d, warning %q", resp.StatusCode, resp.Header.Get("Warning"))}
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("code %d", resp.StatusCode)
	}
	events := &beginning{lines: bufio.NewReader(resp.Body), form: f, state: state{}}
	if withObjects {
		want, err := r.union(ctx, s, f)
		if err != nil {
			return err
		}
		if err := events.readInitial(want); err != nil {
			return err
		}
	}
	for _, m := range r.members {
		if !s.includes(m) {
			continue
		}
		if err := r.writeBeside(ctx, s, m, name, events); err != nil {
			return err
		}
	}
	return nil
}

// writeBeside creates and deletes an object in a cluster, and expects exactly those events.
func (r *runner) writeBeside(ctx context.Context, s selection, m *member, name string, events *beginning) error {
	namespace := s.namespace
	if s.kind.isNamespaced && namespace == "" {
		namespace = namespaces[0]
	}
	o := map[string]any{"apiVersion": s.kind.gvk.GroupVersion().String(), "kind": s.kind.gvk.Kind}
	o["metadata"] = map[string]any{"labels": map[string]any{generate.Label: "yes"}} // no selection excludes it
	body, err := encode(o, name, namespace, typeJSON)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		event string
		request
	}{
		{"ADDED", request{method: "POST", path: s.kind.collection(namespace), body: body}},
		{"DELETED", request{method: "DELETE", path: s.kind.object(namespace, name)}},
	} {
		a, err := m.direct.do(ctx, step.request)
		if err == nil && !a.isSuccess() {
			err = fmt.Errorf("%s %s directly: code %d: %s", step.method, step.path, a.code, head(a.body))
		}
		if err != nil {
			return err
		}
		e, err := events.next()
		if err != nil {
			return err
		}
		want := objectKey{m.name, namespace, name}
		if got := shownKeyOf(e.Object, events.form); e.Type != step.event || got != want {
			return fmt.Errorf("the event after the write is %s of %v, want %s of %v", e.Type, got, step.event, want)
		}
	}
	return nil
}

type beginning struct {
	lines *bufio.Reader
	form  form
	state state
}

func (b *beginning) read() (watchEvent, error) {
	line, err := b.lines.ReadBytes('\n')
	if err != nil {
		return watchEvent{}, fmt.Errorf("the watch ended: %w", err)
	}
	var e watchEvent
	if err := generate.Decode(line, &e); err != nil {
		return e, fmt.Errorf("read an event: %w: %s", err, head(line))
	}
	if e.Type == "ERROR" {
		return e, fmt.Errorf("the watch ended: %s", head(line))
	}
	return e, nil
}

func (b *beginning) next() (watchEvent, error) {
	for {
		if e, err := b.read(); err != nil || e.Type != "BOOKMARK" {
			return e, err
		}
	}
}

// readInitial reads up to the bookmark behind the initial events, and compares their objects.
func (b *beginning) readInitial(want state) error {
	for {
		e, err := b.read()
		if err != nil {
			return err
		}
		m, _ := e.Object["metadata"].(map[string]any)
		annotations, _ := m["annotations"].(map[string]any)
		switch {
		case e.Type == "BOOKMARK" && annotations[initialEventsEnd] == "true":
			return compareStates(want, b.state, false)
		case e.Type == "ADDED":
			b.state[shownKeyOf(e.Object, b.form)] = e.Object
		case e.Type != "BOOKMARK":
			return fmt.Errorf("an initial event is %s", e.Type)
		}
	}
}
