package naming

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// Answer rewrites objects of one cluster for clients. It is not safe for concurrent use.
type Answer struct {
	cluster, suffix string
	selects         bool
	annotator       *merge.Annotator
}

// NewAnswer returns an Answer for a cluster. named says that the client addressed the object by name@cluster and is to see that name.
func NewAnswer(cluster string, named bool) *Answer {
	a := &Answer{cluster: cluster, annotator: merge.NewAnnotator(cluster)}
	if named {
		a.suffix = "@" + cluster
	}
	return a
}

// SelectHere has the selectors by which kubectl finds the pods of an object say that they are to be in this cluster.
func (a *Answer) SelectHere() { a.selects = true }

// Suffix is what names end with in the answer: "", or @cluster.
func (a *Answer) Suffix() string { return a.suffix }

// SetVersion has version give what is written in place of an object's own resourceVersion.
func (a *Answer) SetVersion(version func(own string) string) { a.annotator.Version = version }

// Append appends an object, with where it came from, to dst.
func (a *Answer) Append(dst []byte, object jsontext.Value) ([]byte, error) {
	if a.suffix == "" && !a.selects {
		return a.annotator.Append(dst, object)
	}
	value, err := decode(object)
	if err != nil {
		return dst, err
	}
	o, ok := value.(map[string]any)
	if !ok {
		return dst, errUnreadable
	}
	if a.suffix != "" {
		a.object(o)
	}
	if a.selects {
		if labels := podLabels(o); labels != nil {
			labels[ClusterLabel] = a.cluster
		}
	}
	text, err := encode(o)
	if err != nil {
		return dst, err
	}
	return a.annotator.Append(dst, jsontext.Value(text))
}

// Namespace is that of the object before.
func (a *Answer) Namespace() string { return a.annotator.Namespace() }

func (a *Answer) object(o map[string]any) {
	m, ok := o["metadata"].(map[string]any)
	if !ok {
		return
	}
	if name, ok := m["name"].(string); ok && name != "" {
		m["name"] = name + a.suffix
	}
	owners, _ := m["ownerReferences"].([]any) // they are in the same cluster
	for _, one := range owners {
		if owner, ok := one.(map[string]any); ok {
			if name, ok := owner["name"].(string); ok && name != "" {
				owner["name"] = name + a.suffix
			}
		}
	}
	annotations, _ := m["annotations"].(map[string]any)
	text, ok := annotations[lastApplied].(string)
	if !ok {
		return
	}
	if applied, err := decode([]byte(text)); err == nil {
		if object, ok := applied.(map[string]any); ok {
			a.object(object)
			if out, err := encode(object); err == nil {
				annotations[lastApplied] = string(out) + "\n"
			}
		}
	}
}

// podLabels returns the labels by which an object chooses pods, if it is of a kind that does; else nil.
func podLabels(o map[string]any) map[string]any {
	spec, _ := o["spec"].(map[string]any)
	selector, _ := spec["selector"].(map[string]any)
	switch o["kind"] {
	case "Service", "ReplicationController":
		if len(selector) > 0 { // else it chooses none
			return selector
		}
	case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job":
		if selector == nil {
			return nil
		}
		labels, ok := selector["matchLabels"].(map[string]any)
		if !ok {
			labels = map[string]any{}
			selector["matchLabels"] = labels
		}
		return labels
	}
	return nil
}

// Status rewrites the names in a Status.
func (a *Answer) Status(status []byte) []byte {
	value, err := decode(status)
	o, _ := value.(map[string]any)
	details, _ := o["details"].(map[string]any)
	name, _ := details["name"].(string)
	if err != nil || name == "" || a.suffix == "" {
		return status
	}
	details["name"] = name + a.suffix
	if message, ok := o["message"].(string); ok {
		o["message"] = strings.ReplaceAll(message, strconv.Quote(name), strconv.Quote(name+a.suffix))
	}
	if out, err := encode(o); err == nil {
		return append(out, '\n')
	}
	return status
}
