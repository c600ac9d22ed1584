package generate

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Decode reads JSON without changing numbers.
func Decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

var (
	supported = regexp.MustCompile(`supported values: "([^"]*)"`)
	indexed   = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)
)

// Repair removes or replaces the fields that an API server refused, and reports whether it changed the object.
func Repair(o map[string]any, causes []metav1.StatusCause) bool {
	changed := false
	for _, c := range causes {
		path := splitPath(c.Field)
		if len(path) == 0 || path[0] == "metadata" || path[0] == "kind" || path[0] == "apiVersion" {
			continue
		}
		switch m := supported.FindStringSubmatch(c.Message); {
		case c.Type == metav1.CauseTypeFieldValueRequired && setMissing(o, path):
			changed = true
		case m != nil && set(o, path, m[1]):
			changed = true
		case m == nil && remove(o, path), len(path) > 1 && remove(o, path[:len(path)-1]):
			changed = true
		}
	}
	return changed
}

// splitPath splits a path of validation, such as spec.ports[0].name or data[key].
func splitPath(field string) []string {
	var path []string
	for _, part := range indexed.FindAllString(field, -1) {
		if part[0] == '[' {
			part = part[1 : len(part)-1]
		}
		path = append(path, part)
	}
	return path
}

// parent returns the object or list that contains the last element of a path; nil if there is none.
func parent(o any, path []string) any {
	for _, p := range path[:len(path)-1] {
		switch v := o.(type) {
		case map[string]any:
			o = v[p]
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i >= len(v) {
				return nil
			}
			o = v[i]
		default:
			return nil
		}
	}
	return o
}

// remove deletes a field, or the list that contains an element, and reports whether it was there.
func remove(o map[string]any, path []string) bool {
	switch v := parent(o, path).(type) {
	case map[string]any:
		_, ok := v[path[len(path)-1]]
		delete(v, path[len(path)-1])
		return ok
	case []any: // the indices of other causes stay right where lists go as a whole
		return len(path) > 1 && remove(o, path[:len(path)-1])
	}
	return false
}

func set(o map[string]any, path []string, value any) bool {
	v, ok := parent(o, path).(map[string]any)
	last := path[len(path)-1]
	if !ok || v[last] == value {
		return false
	}
	v[last] = value
	return true
}

// required are values of fields that validation requires; other fields become a short text.
var required = map[string]any{
	"rules": []any{map[string]any{"verbs": []any{"get"}, "apiGroups": []any{""}, "resources": []any{"pods"}}},
	"port":  json.Number("80"), "storage": "1Gi", "nodeSelectorTerms": nil, "capacity": map[string]any{"storage": "1Gi"},
	"accessModes": []any{"ReadWriteOnce"}, "hostPath": map[string]any{"path": "/x"}, "schedule": "5 4 * * *",
	"path": "/x", "mountPath": "/x", "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
	"selector": map[string]any{"matchLabels": map[string]any{"app": "x"}}, "provisioner": "fleetcheck.example/x",
	"driver": "fleetcheck.example", "handler": "x", "controller": "fleetcheck.example/x", "kind": "Role",
	"maxReplicas": json.Number("3"), "addressType": "IPv4", "addresses": []any{"10.1.2.3"}, "topologyKey": "a.example/b",
}

func setMissing(o map[string]any, path []string) bool {
	v, ok := parent(o, path).(map[string]any)
	last := path[len(path)-1]
	if !ok {
		return false
	}
	if was, there := v[last]; there && was != nil && was != "" {
		return false
	}
	value, known := required[last]
	if !known {
		value = "x1"
	} else if value == nil {
		return false
	}
	v[last] = clone(value)
	return true
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for k, e := range v {
			c[k] = clone(e)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, e := range v {
			c[i] = clone(e)
		}
		return c
	}
	return v
}

// Clone copies an object.
func Clone(o map[string]any) map[string]any { return clone(o).(map[string]any) }
