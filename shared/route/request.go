package route

import (
	"net/http"
	"slices"
	"strings"
)

// Request is a parsed request. It is immutable.
type Request struct {
	Route    Route
	Query    string   // raw, as sent
	Resource Resource // of Route.Path
	// IsStream is set for watches, followed logs, exec, attach, port-forward, proxy subresources and upgrades. Such a
	// request may outlive a function, or needs its own connection.
	IsStream bool
}

// ParseRequest parses a request's URI, as in http.Request.RequestURI. Errors wrap ErrPath.
func ParseRequest(method, uri string, header http.Header) (Request, error) {
	path, query, _ := strings.Cut(uri, "?")
	r, err := Parse(path)
	if err != nil {
		return Request{}, err
	}
	return NewRequest(method, r, query, header), nil
}

// NewRequest returns the request of a method, a route, a raw query and a header.
func NewRequest(method string, r Route, query string, header http.Header) Request {
	res := ParseResource(method, r.Path, query)
	isStream := len(header["Upgrade"]) > 0 || isLongRunning(res, query)
	return Request{Route: r, Query: query, Resource: res, IsStream: isStream}
}

// ToCluster returns the same request, addressed to a member cluster.
func (r Request) ToCluster(name string) Request {
	r.Route.Kind, r.Route.Cluster = Cluster, name
	return r
}

// WithoutUpgrade returns the same request for a client that does not switch protocols.
func (r Request) WithoutUpgrade() Request {
	r.IsStream = isLongRunning(r.Resource, r.Query)
	return r
}

var streamingSubresources = []string{"exec", "attach", "portforward", "proxy"}

func isLongRunning(r Resource, query string) bool {
	return r.Verb == "watch" || r.Verb == "proxy" ||
		slices.Contains(streamingSubresources, r.Subresource) ||
		(r.Subresource == "log" && Truthy(query, "follow"))
}
