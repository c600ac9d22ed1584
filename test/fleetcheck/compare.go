package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/test/fleetcheck/generate"
)

const sourceAnnotation = "resource.karmada.io/cached-from-cluster"

type form struct {
	prefix      string
	isQualified bool // every name in an answer is name@cluster
}

var forms = []form{
	{"/fleet", false}, {"/fleet/@", true}, {"/bridge/fleet", false}, {"/bridge/fleet/@", true},
	{"/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy", false},
}

// shown describes the documented changes of the fleet to an object of a cluster.
type shown struct {
	kind               kind
	cluster            string
	isQualified        bool // the name is name@cluster
	qualifiesNamespace bool // the namespace is namespace@cluster
}

func (s shown) name(own string) string {
	if s.isQualified || readsAsQualified(own) {
		return own + "@" + s.cluster
	}
	return own
}

func readsAsQualified(own string) bool {
	i := strings.LastIndexByte(own, '@')
	return i > 0 && route.ValidClusterName(own[i+1:]) == nil
}

// of returns a copy of a cluster's object as the fleet returns it.
func (s shown) of(object map[string]any) map[string]any {
	o := generate.Clone(object)
	if details, ok := o["details"].(map[string]any); ok && o["kind"] == "Status" { // the answer to a deletion
		if own, ok := details["name"].(string); ok {
			details["name"] = s.name(own)
		}
		return o
	}
	m, _ := o["metadata"].(map[string]any)
	if m == nil {
		return o
	}
	annotations, _ := m["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		m["annotations"] = annotations
	}
	annotations[sourceAnnotation] = s.cluster
	if own, ok := m["name"].(string); ok {
		m["name"] = s.name(own)
	}
	if own, ok := m["namespace"].(string); ok && s.qualifiesNamespace {
		m["namespace"] = own + "@" + s.cluster
	}
	owners, _ := m["ownerReferences"].([]any)
	for _, owner := range owners {
		owner, _ := owner.(map[string]any)
		if own, ok := owner["name"].(string); ok {
			owner["name"] = s.name(own)
		}
	}
	rewriteReferences(s.kind, o, false, func(own string) string {
		if readsAsQualified(own) {
			return own + "@" + s.cluster
		}
		return own
	})
	return o
}

// withoutVersion returns a copy without the resourceVersion, which is the fleet's in events, and without the kind,
// which items of a list lack.
func withoutVersion(object map[string]any) map[string]any {
	o := maps.Clone(object)
	delete(o, "kind")
	delete(o, "apiVersion")
	if m, ok := o["metadata"].(map[string]any); ok {
		m = maps.Clone(m)
		delete(m, "resourceVersion")
		o["metadata"] = m
	}
	return o
}

// Some kinds have times in other fields than metadata.
var timestamp = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`)

// recent is the maximum age of times that an API server wrote in this run. Generated times are older.
const recent = 7 * 24 * time.Hour

// comparable removes the fields in which the objects of two equal writes differ: name, UID, version, times and assigned
// addresses.
func comparable(object map[string]any, name string) (map[string]any, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	replaced := strings.ReplaceAll(string(text), name, "NAME")
	if m, ok := object["metadata"].(map[string]any); ok {
		if uid, ok := m["uid"].(string); ok && uid != "" {
			replaced = strings.ReplaceAll(replaced, uid, "UID")
		}
	}
	replaced = timestamp.ReplaceAllStringFunc(replaced, func(text string) string {
		t, err := time.Parse(time.RFC3339, strings.Trim(text, `"`))
		if err != nil || time.Since(t).Abs() > recent {
			return text
		}
		return `"NOW"`
	})
	o := map[string]any{}
	if err := generate.Decode([]byte(replaced), &o); err != nil {
		return nil, err
	}
	if m, ok := o["metadata"].(map[string]any); ok {
		delete(m, "resourceVersion")
		managers, _ := m["managedFields"].([]any) // in the order of their times, which may differ by a second
		slices.SortFunc(managers, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	spec, _ := o["spec"].(map[string]any)
	switch o["kind"] {
	case "Service":
		for _, field := range []string{"clusterIP", "clusterIPs", "healthCheckNodePort", "ports"} {
			delete(spec, field)
		}
	case "Status": // the answer to a deletion
		if details, ok := o["details"].(map[string]any); ok {
			delete(details, "uid")
		}
	case "CertificateSigningRequest": // the API server notes the caller
		for _, field := range []string{"username", "uid", "groups", "extra"} {
			delete(spec, field)
		}
	}
	return o, nil
}

type objectKey struct{ cluster, namespace, name string }

func (k objectKey) String() string { return k.namespace + "/" + k.name + "@" + k.cluster }

func keyOf(cluster string, o map[string]any) objectKey {
	m, _ := o["metadata"].(map[string]any)
	namespace, _ := m["namespace"].(string)
	name, _ := m["name"].(string)
	return objectKey{cluster, namespace, name}
}

// shownKeyOf returns the key of an object as the fleet shows it.
func shownKeyOf(o map[string]any, f form) objectKey {
	m, _ := o["metadata"].(map[string]any)
	annotations, _ := m["annotations"].(map[string]any)
	cluster, _ := annotations[sourceAnnotation].(string)
	k := keyOf(cluster, o)
	if f.isQualified || (shown{cluster: cluster}).name(strings.TrimSuffix(k.name, "@"+cluster)) == k.name {
		k.name = strings.TrimSuffix(k.name, "@"+cluster)
	}
	return k
}

type state map[objectKey]map[string]any

// compareStates describes how got differs from want. Versions count if exact.
func compareStates(want, got state, exact bool) error {
	for key, w := range want {
		g, ok := got[key]
		if !ok {
			return fmt.Errorf("%v is missing", key)
		}
		if !exact {
			w, g = withoutVersion(w), withoutVersion(g)
		}
		if d := diff(w, g); d != "" {
			return fmt.Errorf("%v differs (-want +got):\n%s", key, d)
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			return fmt.Errorf("%v is not in the cluster", key)
		}
	}
	return nil
}
