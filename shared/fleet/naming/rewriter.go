package naming

import (
	"errors"
	"fmt"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// requestRewriter rewrites a body for one member. Without a suffix, it finds whether any member needs a rewrite, and
// collects the references that could name a cluster.
type requestRewriter struct {
	references      *References
	suffix, cluster string // the member's name, with and without @; both "" for no member
	id              uint64 // the member's
	changed         bool
	nested          bool        // set for the object in the annotation merge.LastApplied
	collected       []reference // only without a suffix
	err             error       // for the first resourceVersion that cannot be replaced
}

type reference struct {
	path, name string
}

// object rewrites o. It applies the References of the requested resource, because a patch has no kind.
func (in *requestRewriter) object(o map[string]any) error {
	in.references.requests.rewrite(o, in.replace)
	metadata, _ := o["metadata"].(map[string]any)
	return in.annotationsOf(metadata)
}

func (in *requestRewriter) annotationsOf(metadata map[string]any) error {
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		return in.rewriteAnnotations(annotations)
	}
	return nil
}

func (in *requestRewriter) replace(r *Reference, text string) string {
	if r.Scope == scopeVersion {
		return in.replaceVersion(text)
	}
	if in.suffix == "" && r.Scope != ScopeSelf && strings.Contains(text, "@") {
		in.collected = append(in.collected, reference{r.Path, text})
	}
	return in.cutCluster(text)
}

func (in *requestRewriter) cutCluster(name string) string {
	base, ok := strings.CutSuffix(name, in.suffix)
	if in.suffix == "" {
		ok = strings.Contains(name, "@")
	}
	in.changed = in.changed || ok
	return base
}

// rewriteAnnotations leaves a merge.LastApplied within another unchanged. kubectl writes none, and each level would
// double the text.
func (in *requestRewriter) rewriteAnnotations(a map[string]any) error {
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
		return fmt.Errorf("the annotation %s cannot be decoded: %w; leave it out",
			merge.LastApplied, errTooMany)
	}
	object, ok := applied.(map[string]any)
	if err != nil || !ok {
		return nil //nolint:nilerr // it stays unchanged, because kubectl did not write it
	}
	inner := *in
	inner.changed, inner.nested = false, true
	inner.collected = nil // references in the annotation do not decide the cluster
	err = inner.object(object)
	if in.err = inner.err; err != nil || !inner.changed {
		return err
	}
	out, err := encode(object)
	if err != nil {
		return err
	}
	a[merge.LastApplied], in.changed = string(out)+"\n", true // kubectl ends it with a newline
	return nil
}

func (in *requestRewriter) replaceVersion(text string) string {
	own, err := OwnVersion(text, in.cluster, in.id)
	if in.err == nil {
		in.err = err
	}
	in.changed = in.changed || own != text
	return own
}

// OwnVersion converts a resourceVersion of the fleet to the one to send to a member. It returns any other unchanged.
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
		return version, fmt.Errorf("the resourceVersion is not valid in cluster %q: it is of other clusters; read the "+
			"object again", cluster)
	}
	return own, nil
}
