package naming

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// Answer rewrites objects of one cluster for clients. It is not safe for concurrent use.
type Answer struct {
	cluster    string
	qualified  bool
	references *References
	claims     bool // names of claims in pods are name@cluster where the answer calls the claims so
	annotator  *merge.Annotator
	scanner    scan.Scanner
	more       []func(object map[string]any) // what else is rewritten
	// Turn, if not nil, is asked before so many bytes are decoded whole, and returns what is called once what they became is not held any more.
	Turn func(bytes int) (end func(), err error)
}

// NewAnswer returns an Answer for objects of a cluster with these References. If qualified, the names of objects and of
// their owners are name@cluster.
func NewAnswer(references *References, cluster string, qualified bool) *Answer {
	a := &Answer{cluster: cluster, qualified: qualified, references: references, annotator: merge.NewAnnotator(cluster)}
	a.annotator.Name, a.annotator.References = a.Name, a.replaceReferences
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

// ClaimsHere makes pods name their PersistentVolumeClaims as the answer names the claims themselves.
func (a *Answer) ClaimsHere() { a.claims = true }

// replaceReferences calls replace for each reference in an object that is written in another form than the cluster's.
func (a *Answer) replaceReferences(object []byte, replace merge.Replace) error {
	if !a.claims && !mayRead(object) {
		return nil
	}
	return a.references.answers.in(&a.scanner, object, 0, func(r *Reference, at scan.Field) error {
		by := a.unambiguous
		if a.claims && r.To == "PersistentVolumeClaim" {
			by = a.Name
		}
		replace(at, by)
		return nil
	})
}

// unambiguous returns the form in which a reference is read back as own. Without a cluster behind it, a name that ends
// with @ and a cluster would lose that.
func (a *Answer) unambiguous(own string) string {
	if reads(own) {
		return own + "@" + a.cluster
	}
	return own
}

// mayRead reports whether a string in JSON text may read as name@cluster. Most objects have none, and are not scanned.
func mayRead(text []byte) bool {
	if bytes.Contains(text, []byte(`\u0040`)) { // another form of @
		return true
	}
	for {
		at := bytes.IndexByte(text, '@')
		if at < 0 {
			return false
		}
		rest := bytes.TrimLeft(text[at+1:], "abcdefghijklmnopqrstuvwxyz0123456789-")
		if len(rest) > 0 && rest[0] == '"' {
			return true
		}
		text = rest
	}
}

// SetVersion has version give what is written in place of an object's own resourceVersion.
func (a *Answer) SetVersion(version func(own string) string) { a.annotator.Version = version }

// Name is what the answer calls an object of that name: name@cluster too where the name alone reads as another's in a cluster.
func (a *Answer) Name(own string) string {
	if a.qualified {
		return own + "@" + a.cluster
	}
	return a.unambiguous(own)
}

// Append appends an object, with where it came from, to dst.
func (a *Answer) Append(dst []byte, object merge.Object) ([]byte, error) {
	if len(a.more) > 0 {
		var err error
		if object, err = a.rewritten(object); err != nil {
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
