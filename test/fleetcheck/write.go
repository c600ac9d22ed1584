package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

const (
	typeJSON     = "application/json"
	typeYAML     = "application/yaml"
	typeProtobuf = "application/vnd.kubernetes.protobuf"
	typeApply    = "application/apply-patch+yaml"
	typeMerge    = "application/merge-patch+json"
	typeJSON6902 = "application/json-patch+json"
	typeStrategy = "application/strategic-merge-patch+json"
)

const manager = "fleetcheck"

func (r *runner) write(ctx context.Context) error {
	switch n := r.src.IntN(10); {
	case n == 0:
		return r.plant(ctx)
	case n < 6 || len(r.pairs) == 0:
		return r.create(ctx)
	}
	p := r.healthyPair()
	if p == nil {
		return nil
	}
	switch r.src.IntN(6) {
	case 0:
		return r.delete(ctx, p)
	case 1, 2:
		return r.replace(ctx, p)
	case 3:
		return r.apply(ctx, p)
	}
	return r.patch(ctx, p)
}

// generateFor returns a random object of the kind. An API server may still refuse it.
func (r *runner) generateFor(ctx context.Context, p *pair) (map[string]any, error) {
	if p.kind.isCustom {
		return r.src.Custom(p.kind.gvk.GroupVersion().String(), p.kind.gvk.Kind), nil
	}
	o, err := r.src.Typed(p.kind.gvk)
	if err != nil {
		return nil, err
	}
	r.counts.generated++
	r.counts.generatedKinds[p.kind.resource]++
	isAccepted, err := r.repair(ctx, p, o)
	if err != nil {
		return nil, err
	}
	if isAccepted {
		r.counts.accepted++
		r.counts.acceptedKinds[p.kind.resource]++
	}
	return o, nil
}

// repair removes refused fields from an object, and reports whether its cluster accepts it then.
func (r *runner) repair(ctx context.Context, p *pair, o map[string]any) (bool, error) {
	const attempts = 10
	for range attempts {
		body, err := encode(o, p.twin, p.namespace, typeJSON)
		if err != nil {
			return false, err
		}
		path := p.kind.collection(p.namespace) + "?dryRun=All"
		a, err := p.member.direct.do(ctx, request{method: "POST", path: path, body: body})
		if err != nil {
			return false, err
		}
		if a.isSuccess() {
			return true, nil
		}
		s, err := a.status()
		if err != nil {
			return false, err
		}
		if s.Details == nil || !generate.Repair(o, s.Details.Causes) {
			break
		}
	}
	return false, nil
}

func (r *runner) create(ctx context.Context) error {
	k := generate.Pick(r.src, customKinds)
	switch r.src.IntN(4) {
	case 0:
		k = generate.Pick(r.src, r.kinds)
	case 1:
		k = generate.Pick(r.src, r.referring)
	}
	p := r.newPair(k)
	if p == nil {
		return nil
	}
	contentType := typeJSON
	switch r.src.IntN(4) {
	case 0:
		contentType = typeYAML
	case 1:
		if !k.isCustom {
			contentType = typeProtobuf
		}
	}
	o, err := r.generateFor(ctx, p)
	if err != nil {
		return err
	}
	at, f := r.place(p, true)
	if at == byAnnotation {
		generate.Annotate(o, "clusterpass.io/cluster", p.member.name)
	}
	if contentType == typeProtobuf {
		if _, err := encode(o, p.twin, p.namespace, contentType); err != nil { // it is no such object; the cluster refuses it
			contentType = typeJSON
		}
	}
	w := &write{pair: p, at: at, form: f, method: "POST", isCreate: true, contentType: contentType, query: r.writeQuery()}
	w.body = r.encoder(p, o, contentType)
	a, err := r.mirror(ctx, w)
	if err == nil && a.isSuccess() && w.query.Get("dryRun") == "" {
		r.pairs = append(r.pairs, p)
	}
	return err
}

// plant creates an object in one cluster directly, as other clients do. It may have the fleet's own annotation.
func (r *runner) plant(ctx context.Context) error {
	p := r.newPair(generate.Pick(r.src, customKinds))
	if p == nil {
		return nil
	}
	o := r.src.Custom(p.kind.gvk.GroupVersion().String(), p.kind.gvk.Kind)
	r.src.Forge(o)
	body, err := encode(o, fmt.Sprintf("plant%d", r.ops), p.namespace, typeJSON)
	if err != nil {
		return err
	}
	a, err := p.member.direct.do(ctx, request{method: "POST", path: p.kind.collection(p.namespace), body: body})
	if err == nil {
		r.note("plant %s in %s: %d", p.kind.resource, p.member.name, a.code)
	}
	return err
}

func (r *runner) writeQuery() url.Values {
	query := url.Values{"fieldManager": {manager}}
	if r.src.Chance(6) {
		query.Set("dryRun", "All")
	}
	if r.src.Chance(3) {
		query.Set("fieldValidation", generate.Pick(r.src, []string{"Ignore", "Warn", "Strict"}))
	}
	return query
}

// replace writes an object back after a change, as it was read in each place.
func (r *runner) replace(ctx context.Context, p *pair) error {
	at, f := r.place(p, false)
	change := r.src.Uint64()
	name, namespace := p.names(at)
	direct, err := p.member.direct.do(ctx, request{method: "GET", path: p.kind.object(p.namespace, p.twin)})
	if err != nil {
		return err
	}
	through, err := r.send(ctx, &write{pair: p}, request{method: "GET", path: f.prefix + p.kind.object(namespace, name)})
	if err != nil {
		return err
	}
	if err := r.compareObjects(p, p.shownAs(at, f), direct, through); err != nil {
		return fmt.Errorf("GET %v by %v below %s: %w", p, at, f.prefix, err)
	}
	objects := map[bool]map[string]any{}
	for isTwin, a := range map[bool]*answer{true: direct, false: through} {
		o, err := a.object()
		if err != nil {
			return err
		}
		generate.New(r.seed, change).Change(o, p.kind.isCustom)
		objects[isTwin] = o
	}
	w := &write{pair: p, at: at, form: f, method: "PUT", contentType: typeJSON, query: r.writeQuery()}
	w.body = func(name, _ string) ([]byte, error) { return json.Marshal(objects[name == p.twin]) }
	_, err = r.mirror(ctx, w)
	return err
}

func (r *runner) apply(ctx context.Context, p *pair) error {
	o := map[string]any{"apiVersion": p.kind.gvk.GroupVersion().String(), "kind": p.kind.gvk.Kind}
	o["metadata"] = r.src.Metadata()
	if p.kind.isCustom {
		o["spec"] = r.src.Object(3)
	}
	at, f := r.place(p, false)
	w := &write{pair: p, at: at, form: f, method: "PATCH", contentType: typeApply, query: r.writeQuery()}
	w.query.Set("fieldManager", generate.Pick(r.src, []string{"one", "two"}))
	if r.src.Chance(2) {
		w.query.Set("force", "true")
	}
	w.body = r.encoder(p, o, typeYAML)
	_, err := r.mirror(ctx, w)
	return err
}

func (r *runner) patch(ctx context.Context, p *pair) error {
	change := map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{r.src.Label(): r.src.Label()},
		"annotations": map[string]any{r.src.Label(): r.src.Text(), "fixed": r.src.Text()},
	}}
	at, f := r.place(p, false)
	w := &write{pair: p, at: at, form: f, method: "PATCH", contentType: typeMerge, query: r.writeQuery()}
	if p.kind.isCustom {
		change["spec"] = r.src.Object(3)
		if r.src.Chance(3) {
			w.subresource = "/status"
			change["status"] = r.src.Object(3)
		}
	} else if r.src.Chance(2) {
		w.contentType = typeStrategy
	}
	var body any = change
	if r.src.Chance(3) {
		w.contentType = typeJSON6902
		annotations := change["metadata"].(map[string]any)["annotations"]
		body = []any{map[string]any{"op": "add", "path": "/metadata/annotations", "value": annotations}}
	}
	through := body
	if w.contentType != typeJSON6902 {
		through = r.qualify(p, change)
	}
	w.body = func(name, _ string) ([]byte, error) {
		if name == p.twin {
			return json.Marshal(body)
		}
		return json.Marshal(through)
	}
	_, err := r.mirror(ctx, w)
	return err
}

func (r *runner) delete(ctx context.Context, p *pair) error {
	at, f := r.place(p, false)
	w := &write{pair: p, at: at, form: f, method: "DELETE", contentType: typeJSON, query: url.Values{}}
	if r.src.Chance(2) {
		policy := generate.Pick(r.src, []string{"Orphan", "Background", "Foreground"})
		w.query.Set("propagationPolicy", policy)
	}
	if r.src.Chance(2) {
		w.query.Set("gracePeriodSeconds", "0")
	}
	a, err := r.mirror(ctx, w)
	if err == nil && (a.isSuccess() || a.code == http.StatusNotFound) {
		err = r.forget(ctx, p)
	}
	return err
}

// encoder encodes an object for the cluster, and with its references qualified for the fleet.
func (r *runner) encoder(p *pair, o map[string]any, contentType string) func(name, namespace string) ([]byte, error) {
	through := r.qualify(p, o)
	return func(name, namespace string) ([]byte, error) {
		if name == p.twin {
			return encode(o, name, namespace, contentType)
		}
		return encode(through, name, namespace, contentType)
	}
}

func encode(o map[string]any, name, namespace, contentType string) ([]byte, error) {
	o = generate.Clone(o)
	m := o["metadata"].(map[string]any)
	if m["name"] = name; namespace != "" {
		m["namespace"] = namespace
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	switch contentType {
	case typeYAML:
		return yaml.JSONToYAML(escape(text))
	case typeProtobuf:
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
		if err != nil {
			return nil, err
		}
		return runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), object)
	}
	return text, nil
}

// escape writes the characters of JSON text as \u that YAML does not permit as they are.
func escape(text []byte) []byte {
	var b bytes.Buffer
	for _, c := range string(text) {
		if c > '~' && c < 0x10000 {
			fmt.Fprintf(&b, `\u%04x`, c)
		} else {
			b.WriteRune(c)
		}
	}
	return b.Bytes()
}
