package naming

import (
	"errors"
	"strconv"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// Answer rewrites objects of one cluster for clients. It is not safe for concurrent use.
type Answer struct {
	cluster   string
	qualified bool
	annotator *merge.Annotator
	more      []func(object map[string]any) // what else is rewritten
	lists     bool                          // objects that are too large for more pass without it
	// Turn, if not nil, is asked before so many bytes are decoded whole, and returns what is called once what they became is not held any more.
	Turn func(bytes int) (end func(), err error)
}

// NewAnswer returns an Answer for a cluster. qualified says that each name is to be name@cluster.
func NewAnswer(cluster string, qualified bool) *Answer {
	a := &Answer{cluster: cluster, qualified: qualified, annotator: merge.NewAnnotator(cluster)}
	a.annotator.Name = a.Name
	return a
}

// SelectHere has the selectors by which kubectl finds the pods of an object say that they are to be in this cluster.
func (a *Answer) SelectHere() {
	a.more = append(a.more, func(o map[string]any) {
		if labels := podLabels(o); labels != nil {
			labels[ClusterLabel] = a.cluster
		}
	})
}

// NamespaceHere has the namespace of an object be namespace@cluster, as a client asked for it, or is to ask for what is in it.
func (a *Answer) NamespaceHere() {
	a.annotator.InNamespace = func(own string) string { return own + "@" + a.cluster }
}

// ClaimsHere makes pods name their PersistentVolumeClaims as the answer names these. A pod of over 200,000 values
// keeps its own names, since one pod must not fail the list of all clusters.
func (a *Answer) ClaimsHere() {
	a.lists = true
	a.more = append(a.more, func(o map[string]any) {
		spec, _ := o["spec"].(map[string]any)
		volumes, _ := spec["volumes"].([]any)
		for _, v := range volumes {
			volume, _ := v.(map[string]any)
			claim, _ := volume["persistentVolumeClaim"].(map[string]any)
			if name, ok := claim["claimName"].(string); ok {
				claim["claimName"] = a.Name(name)
			}
		}
	})
}

// SetVersion has version give what is written in place of an object's own resourceVersion.
func (a *Answer) SetVersion(version func(own string) string) { a.annotator.Version = version }

// Name is what the answer calls an object of that name: name@cluster too where the name alone reads as another's in a cluster.
func (a *Answer) Name(own string) string {
	if a.qualified || reads(own) {
		return own + "@" + a.cluster
	}
	return own
}

// Append appends an object, with where it came from, to dst.
func (a *Answer) Append(dst []byte, object merge.Object) ([]byte, error) {
	if len(a.more) > 0 {
		rewritten, err := a.rewritten(object)
		switch {
		case err == nil:
			object = rewritten
		case !a.lists || !errors.Is(err, scan.ErrTooMany):
			return dst, err
		}
	}
	return a.annotator.Append(dst, object)
}

// Namespace is that of the object before.
func (a *Answer) Namespace() string { return a.annotator.Namespace() }

// rewritten returns an object with what else is rewritten.
func (a *Answer) rewritten(object merge.Object) (merge.Object, error) {
	end, err := a.turn(len(object.Text))
	if err != nil {
		return merge.Object{}, err
	}
	defer end()
	value, err := decodeBounded(object.Text)
	if err != nil {
		return merge.Object{}, err
	}
	o, ok := value.(map[string]any)
	if !ok {
		return merge.Object{}, errUnreadable
	}
	for _, rewrite := range a.more {
		rewrite(o)
	}
	out, err := encode(o)
	if err != nil {
		return merge.Object{}, err
	}
	return merge.ObjectOf(out)
}

// maxValues bounds an object that is decoded whole, of which each value may take some hundred bytes then. (What fits in the
// 1.5 MB that etcd takes has fewer, unless nearly all of it are numbers.)
const maxValues = 200_000

// decodeBounded is decode of what a cluster sends.
func decodeBounded(data []byte) (any, error) {
	if err := scan.Bounded(data, maxValues); err != nil {
		return nil, err
	}
	return decode(data)
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

func (a *Answer) turn(bytes int) (end func(), err error) {
	if a.Turn == nil {
		return func() {}, nil
	}
	return a.Turn(bytes)
}

// Status rewrites the names in a Status.
func (a *Answer) Status(status []byte) []byte {
	end, err := a.turn(len(status))
	if err != nil {
		return status
	}
	defer end()
	value, err := decodeBounded(status)
	o, _ := value.(map[string]any)
	details, _ := o["details"].(map[string]any)
	own, _ := details["name"].(string)
	if err != nil || own == "" || a.Name(own) == own {
		return status
	}
	details["name"] = a.Name(own)
	if message, ok := o["message"].(string); ok {
		o["message"] = strings.ReplaceAll(message, strconv.Quote(own), strconv.Quote(a.Name(own)))
	}
	if out, err := encode(o); err == nil {
		return append(out, '\n')
	}
	return status
}
