package naming

import (
	"errors"
	"fmt"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// inward rewrites a body for a member. Without a suffix it is for none. It then changes what could be any member's, so
// that changed tells whether a member gets another body, and collects the references that could name a cluster.
type inward struct {
	references      *References
	suffix, cluster string
	id              uint64
	changed         bool
	nested          bool        // the object is that of a merge.LastApplied
	collected       []reference // without a suffix alone
	err             error       // the first, of a version
}

// reference is a field of a body whose text could name a cluster.
type reference struct {
	path, name string
}

// object rewrites an object, or a patch that has its form. Patches do not have a kind, so that the resource decides.
func (in *inward) object(o map[string]any) error {
	in.references.requests.rewrite(o, in.replace)
	metadata, _ := o["metadata"].(map[string]any)
	return in.annotationsOf(metadata)
}

// annotationsOf rewrites the annotations of metadata.
func (in *inward) annotationsOf(metadata map[string]any) error {
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		return in.annotations(annotations)
	}
	return nil
}

// replace returns the member's own form of the text at a reference.
func (in *inward) replace(r *Reference, text string) string {
	if r.Scope == scopeVersion {
		return in.version(text)
	}
	if in.suffix == "" && r.Scope != ScopeSelf && strings.Contains(text, "@") {
		in.collected = append(in.collected, reference{r.Path, text})
	}
	return in.name(text)
}

// name removes @cluster from a name.
func (in *inward) name(name string) string {
	base, ok := strings.CutSuffix(name, in.suffix)
	if in.suffix == "" {
		ok = strings.Contains(name, "@")
	}
	in.changed = in.changed || ok
	return base
}

// annotations removes the source and rewrites merge.LastApplied, but not one within it. kubectl never nests it, and
// each level would double the text.
func (in *inward) annotations(a map[string]any) error {
	if _, ok := a[merge.SourceAnnotation]; ok {
		delete(a, merge.SourceAnnotation)
		in.changed = true
	}
	text, ok := a[merge.LastApplied].(string)
	if !ok || in.nested {
		return nil
	}
	applied, err := decodeBounded([]byte(text))
	if errors.Is(err, scan.ErrTooMany) {
		return fmt.Errorf("the annotation %s is refused: %w; omit it", merge.LastApplied, errTooMany)
	}
	object, ok := applied.(map[string]any)
	if err != nil || !ok {
		return nil //nolint:nilerr // not kubectl's; the member may judge it
	}
	inner := *in
	inner.changed, inner.nested, inner.collected = false, true, nil // it is no part of the object
	err = inner.object(object)
	if in.err = inner.err; err != nil || !inner.changed {
		return err
	}
	out, err := encode(object)
	if err != nil {
		return err
	}
	a[merge.LastApplied], in.changed = string(out)+"\n", true // as kubectl writes it
	return nil
}

// version returns the member's own version of a composite resourceVersion. The first error becomes in.err.
func (in *inward) version(text string) string {
	own, err := OwnVersion(text, in.cluster, in.id)
	if in.err == nil {
		in.err = err
	}
	in.changed = in.changed || own != text
	return own
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
		return version, fmt.Errorf("the resourceVersion has no version of cluster %q: read the object again", cluster)
	}
	return own, nil
}
