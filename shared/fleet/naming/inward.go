package naming

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// inward rewrites what goes to a member. Without a suffix it is for none, and finds out whether for any something would be rewritten: it changes what
// could then be any member's, and fails where a member's own version is needed.
type inward struct {
	suffix, cluster string
	id              uint64
	changed         bool
}

func (in *inward) object(o map[string]any) error {
	if preconditions, ok := o["preconditions"].(map[string]any); ok {
		if err := in.version(preconditions); err != nil {
			return err
		}
	}
	if options, ok := o["deleteOptions"].(map[string]any); ok { // of an Eviction
		if err := in.object(options); err != nil {
			return err
		}
	}
	if target, ok := o["target"].(map[string]any); ok && o["kind"] == "Binding" { // the node
		in.rename(target)
	}
	if o["kind"] == "Event" || o["kind"] == nil && (o["involvedObject"] != nil || o["regarding"] != nil) { // the latter are patches
		for _, about := range []string{"involvedObject", "regarding", "related"} {
			if m, ok := o[about].(map[string]any); ok {
				in.rename(m)
			}
		}
	}
	if about := reviewed(o); about != nil {
		in.rename(about)
		in.namespace(about)
	}
	// Patches do not say their kind.
	if role, ok := o["roleRef"].(map[string]any); ok { // of a RoleBinding
		in.rename(role)
	}
	if spec, ok := o["spec"].(map[string]any); ok {
		if scaled, ok := spec["scaleTargetRef"].(map[string]any); ok { // of a HorizontalPodAutoscaler
			in.rename(scaled)
		}
		in.called(o["kind"], spec)
	}
	if metadata, ok := o["metadata"].(map[string]any); ok {
		return in.metadata(metadata)
	}
	return nil
}

// called takes @cluster from what kubectl run and kubectl create call as the object that they make, beside its name: labels, and containers. None
// of these may have an @ of its own.
func (in *inward) called(kind any, spec map[string]any) {
	selector, _ := spec["selector"].(map[string]any)
	if kind == "Service" || kind == "ReplicationController" {
		in.labels(selector)
	}
	in.labels(selector["matchLabels"])
	if kind == "Pod" {
		in.each(spec["containers"])
		if node, ok := spec["nodeName"].(string); ok {
			spec["nodeName"] = in.name(node)
		}
	}
	for of, kind := range map[string]string{"template": "Pod", "jobTemplate": "Job"} {
		template, _ := spec[of].(map[string]any)
		metadata, _ := template["metadata"].(map[string]any)
		in.labels(metadata["labels"])
		if inner, ok := template["spec"].(map[string]any); ok {
			in.called(kind, inner)
		}
	}
}

func (in *inward) labels(of any) {
	labels, _ := of.(map[string]any)
	for k, v := range labels {
		if text, ok := v.(string); ok {
			labels[k] = in.name(text)
		}
	}
}

func (in *inward) metadata(m map[string]any) error {
	in.rename(m)
	in.labels(m["labels"])
	in.namespace(m)
	in.each(m["ownerReferences"])
	if annotations, ok := m["annotations"].(map[string]any); ok {
		if err := in.annotations(annotations); err != nil {
			return err
		}
	}
	return in.version(m)
}

// reviews are the kinds by which is asked what somebody may do.
var reviews = []any{"SelfSubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectRulesReview"}

// reviewed returns what of an access review may have a name and a namespace; nil where nothing has.
func reviewed(o map[string]any) map[string]any {
	if !slices.Contains(reviews, o["kind"]) {
		return nil
	}
	spec, _ := o["spec"].(map[string]any)
	if o["kind"] == "SelfSubjectRulesReview" {
		return spec
	}
	about, _ := spec["resourceAttributes"].(map[string]any)
	return about
}

// namespace takes @cluster from the namespace of what has one.
func (in *inward) namespace(m map[string]any) {
	if namespace, ok := m["namespace"].(string); ok {
		m["namespace"] = in.name(namespace)
	}
}

// rename takes @cluster from what has a name.
func (in *inward) rename(m map[string]any) {
	if name, ok := m["name"].(string); ok {
		m["name"] = in.name(name)
	}
}

// each takes @cluster from the names of all that a list has, as ownerReferences.
func (in *inward) each(of any) {
	list, _ := of.([]any)
	for _, one := range list {
		if m, ok := one.(map[string]any); ok {
			in.rename(m)
		}
	}
}

func (in *inward) name(name string) string {
	base, ok := strings.CutSuffix(name, in.suffix)
	if in.suffix == "" {
		ok = strings.Contains(name, "@")
	}
	in.changed = in.changed || ok
	return base
}

func (in *inward) annotations(a map[string]any) error {
	if _, ok := a[merge.SourceAnnotation]; ok {
		delete(a, merge.SourceAnnotation)
		in.changed = true
	}
	text, ok := a[merge.LastApplied].(string)
	if !ok {
		return nil
	}
	applied, err := decodeBounded([]byte(text))
	if errors.Is(err, scan.ErrTooMany) {
		return fmt.Errorf("the annotation %s cannot be taken: %w; leave it out", merge.LastApplied, errTooMany)
	}
	object, ok := applied.(map[string]any)
	if err != nil || !ok {
		return nil //nolint:nilerr // not kubectl's; the member may judge it
	}
	inner := *in
	inner.changed = false
	if err := inner.object(object); err != nil || !inner.changed {
		return err
	}
	out, err := encode(object)
	if err != nil {
		return err
	}
	a[merge.LastApplied], in.changed = string(out)+"\n", true // as kubectl writes it
	return nil
}

// version replaces a composite resourceVersion by the member's own.
func (in *inward) version(m map[string]any) error {
	text, ok := m["resourceVersion"].(string)
	if !ok || text == "" {
		return nil
	}
	own, err := OwnVersion(text, in.cluster, in.id)
	if own != text {
		m["resourceVersion"], in.changed = own, true
	}
	return err
}

// OwnVersion returns what a resourceVersion is to one member: its part of a composite, or anything else as it is.
func OwnVersion(version, cluster string, id uint64) (string, error) {
	if !cursor.Composite(version) {
		return version, nil
	}
	v, err := cursor.ParseVersion(version)
	if err != nil {
		return version, err
	}
	own, ok := v.OfObject(id)
	if !ok {
		return version, fmt.Errorf("the resourceVersion says nothing of cluster %q: read the object again", cluster)
	}
	return own, nil
}
