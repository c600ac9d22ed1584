package route

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Resource describes a path of the Kubernetes API, as kube-apiserver's RequestInfo does.
type Resource struct {
	IsResource bool // false for a path such as /version; then only Verb is set
	Verb       string
	// HasLegacyPrefix reports whether watch/ or proxy/ precedes the resource, as in /api/v1/watch/pods.
	HasLegacyPrefix bool
	APIGroup        string
	APIVersion      string
	Namespace       string
	Resource        string
	Subresource     string
	Name            string
	// Tail is the path after a subresource, unescaped and without its leading slash. Only a proxy has one in Kubernetes.
	Tail string
}

// IsRead reports whether the method is GET or HEAD, the methods by which Kubernetes reads.
func IsRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }

var methodVerbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodHead: "get",
	http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// namespaceSubresources follow a namespace's name, but are not resources in it.
var namespaceSubresources = []string{"status", "finalize"}

// ParseResource reads an escaped path of the Kubernetes API and its query like kube-apiserver.
func ParseResource(method, path, rawQuery string) Resource {
	r := Resource{Verb: strings.ToLower(method)}
	// kube-apiserver unescapes before it splits, so an escaped slash is a separator.
	if u, err := url.PathUnescape(path); err == nil {
		path = u
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		r.APIVersion, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		r.APIGroup, r.APIVersion, parts = parts[1], parts[2], parts[3:]
	default:
		return r
	}
	r.IsResource, r.Verb = true, methodVerbs[method]
	if parts[0] == "watch" || parts[0] == "proxy" {
		r.HasLegacyPrefix = true
		if len(parts) < 2 {
			r.IsResource = false
			return r
		}
		r.Verb, parts = parts[0], parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		r.Namespace = parts[1]
		if len(parts) > 2 && !slices.Contains(namespaceSubresources, parts[2]) {
			parts = parts[2:]
		}
	}
	r.setTarget(parts)
	r.setCollectionVerb(rawQuery)
	return r
}

func (r *Resource) setTarget(parts []string) {
	r.Resource = parts[0]
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	if len(parts) > 2 && r.Verb != "proxy" {
		r.Subresource = parts[2]
	}
	if r.Subresource != "" && len(parts) > 3 {
		r.Tail = strings.Join(parts[3:], "/")
	}
}

func (r *Resource) setCollectionVerb(rawQuery string) {
	switch {
	case r.Name == "" && r.Verb == "delete":
		r.Verb = "deletecollection"
	case r.Verb != "get":
	case (r.Name == "" || r.Resource != "" && r.Subresource == "") && Truthy(rawQuery, "watch"):
		// The old form of a watch names one object.
		r.Verb = "watch"
	case r.Name == "":
		r.Verb = "list"
	}
}

// Truthy reports whether Kubernetes reads the first value of a parameter as true. Absent, "0" and "false" are false.
// Everything else is true, including an empty value.
func Truthy(rawQuery, key string) bool {
	if !strings.Contains(rawQuery, key) && !strings.Contains(rawQuery, "%") {
		return false
	}
	q, _ := url.ParseQuery(rawQuery) // parameters that cannot be parsed are ignored, as in kube-apiserver
	return TruthyIn(q, key)
}

// TruthyIn is like Truthy, for a parsed query.
func TruthyIn(query url.Values, key string) bool {
	v, ok := query[key]
	return ok && v[0] != "0" && !strings.EqualFold(v[0], "false")
}
