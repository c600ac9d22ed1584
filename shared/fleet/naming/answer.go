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
	claims     bool                    // see QualifyClaims
	namespaces bool                    // see QualifyNamespaces
	version    func(own string) string // see SetVersion; nil until then
	annotator  *merge.Annotator
	scanner    scan.Scanner
	rewrites   []func(object map[string]any) // run before the annotator
	slots      DecodeSlots
}

// DecodeSlots limits the objects that are decoded whole at once. members.Client implements it.
type DecodeSlots interface {
	// AcquireDecodeSlot blocks until that many bytes may be decoded. release frees the slot.
	AcquireDecodeSlot(bytes int) (release func(), err error)
}

// NewAnswer returns an Answer for objects of a cluster. If qualified, names and those of owners are name@cluster.
func NewAnswer(references *References, cluster string, qualified bool, slots DecodeSlots) *Answer {
	a := &Answer{cluster: cluster, qualified: qualified, references: references, slots: slots}
	a.annotator = merge.NewAnnotator(cluster, a)
	return a
}

// AddClusterToSelectors adds this cluster to the selectors by which kubectl finds the pods of an object.
func (a *Answer) AddClusterToSelectors() {
	a.rewrites = append(a.rewrites, func(o map[string]any) {
		if labels := podLabels(o); labels != nil {
			labels[ClusterLabel] = a.cluster
		}
	})
}

// QualifyNamespaces writes namespaces as namespace@cluster, so that the client's next request stays in this cluster.
func (a *Answer) QualifyNamespaces() { a.namespaces = true }

// QualifyClaims writes a pod's references to PersistentVolumeClaims as Name writes the names of the claims.
func (a *Answer) QualifyClaims() { a.claims = true }

// ReplaceReferences implements merge.Rewriter.
func (a *Answer) ReplaceReferences(object []byte, replace merge.Replace) error {
	if !a.claims && !mayBeQualified(object) {
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

// unambiguous appends this cluster to a name that itself has the form name@cluster. A request for the result finds own.
func (a *Answer) unambiguous(own string) string {
	if isQualified(own) {
		return own + "@" + a.cluster
	}
	return own
}

// mayBeQualified reports whether JSON text may contain name@cluster. Most objects do not, and are not scanned.
func mayBeQualified(text []byte) bool {
	if bytes.Contains(text, []byte(`\u0040`)) { // another form of @
		return true
	}
	for {
		at := bytes.IndexByte(text, '@')
		if at < 0 {
			return false
		}
		rest := bytes.TrimLeft(text[at+1:], "abcdefghijklmnopqrstuvwxyz0123456789-")
		if len(rest) > 0 && (rest[0] == '"' || rest[0] == '\\') { // the rest of the name may be escaped
			return true
		}
		text = rest
	}
}

// SetVersion sets the function that returns the resourceVersion to write in place of an object's own.
func (a *Answer) SetVersion(version func(own string) string) { a.version = version }

// Version returns the resourceVersion that the client sees.
func (a *Answer) Version(own string) string {
	if a.version == nil {
		return own
	}
	return a.version(own)
}

// InNamespace returns the namespace that the client sees: namespace@cluster after QualifyNamespaces.
func (a *Answer) InNamespace(own string) string {
	if a.namespaces {
		return own + "@" + a.cluster
	}
	return own
}

// Name returns the name that the client sees: name@cluster if the Answer is qualified, or if own has that form itself.
func (a *Answer) Name(own string) string {
	if a.qualified {
		return own + "@" + a.cluster
	}
	return a.unambiguous(own)
}

// Append appends an object to dst, with an annotation that names its cluster.
func (a *Answer) Append(dst []byte, object merge.Object) ([]byte, error) {
	if len(a.rewrites) > 0 {
		var err error
		if object, err = a.applyRewrites(object); err != nil {
			return dst, err
		}
	}
	return a.annotator.Append(dst, object)
}

// Namespace returns the namespace of the object that was appended last.
func (a *Answer) Namespace() string { return a.annotator.Namespace() }

// ForgetNamespace makes Namespace return "", until the next object.
func (a *Answer) ForgetNamespace() { a.annotator.ForgetNamespace() }

func (a *Answer) applyRewrites(object merge.Object) (merge.Object, error) {
	release, err := a.slots.AcquireDecodeSlot(len(object.Text))
	if err != nil {
		return merge.Object{}, err
	}
	defer release()
	value, err := decodeBounded(object.Text)
	if err != nil {
		return merge.Object{}, err
	}
	o, ok := value.(map[string]any)
	if !ok {
		return merge.Object{}, errUnreadable
	}
	for _, rewrite := range a.rewrites {
		rewrite(o)
	}
	out, err := encode(o)
	if err != nil {
		return merge.Object{}, err
	}
	return merge.ObjectOf(out)
}

// maxValues limits the values of an object that is decoded whole, since each may need some hundred bytes. An object
// within etcd's limit of 1.5 MB has fewer, unless nearly all of them are numbers.
const maxValues = 200_000

func decodeBounded(data []byte) (any, error) {
	if err := scan.CheckValueCount(data, maxValues); err != nil {
		return nil, err
	}
	return decode(data)
}

func podLabels(o map[string]any) map[string]any {
	spec, _ := o["spec"].(map[string]any)
	selector, _ := spec["selector"].(map[string]any)
	switch o["kind"] {
	case "Service", "ReplicationController":
		if len(selector) > 0 { // an empty selector matches no pods
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

// Status qualifies the object's name in a Status. A Status that cannot be decoded is returned unchanged.
func (a *Answer) Status(status []byte) []byte {
	release, err := a.slots.AcquireDecodeSlot(len(status))
	if err != nil {
		return status
	}
	defer release()
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
