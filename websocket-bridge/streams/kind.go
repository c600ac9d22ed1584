package streams

import (
	"net/http"

	"github.com/clusterpass/clusterpass/shared/route"
)

// Kind is the kind of a stream in limits and metrics.
type Kind string

// The kinds.
const (
	Watch       Kind = "watch"
	Logs        Kind = "logs"
	Exec        Kind = "exec"
	Attach      Kind = "attach"
	PortForward Kind = "portforward"
	Proxy       Kind = "proxy"   // through the member to a pod, service or node
	Upgrade     Kind = "upgrade" // any other upgrade
)

// KindOf returns the kind of a request, or "" if route.Streams is false for it.
func KindOf(method, path, rawQuery string, header http.Header) Kind {
	if !route.Streams(method, path, rawQuery, header) {
		return ""
	}
	r := route.ParseResource(method, path, rawQuery)
	switch {
	case r.Verb == "watch":
		return Watch
	case r.Verb == "proxy" || r.Subresource == "proxy":
		return Proxy
	case r.Subresource == "log":
		return Logs
	case r.Subresource == "exec":
		return Exec
	case r.Subresource == "attach":
		return Attach
	case r.Subresource == "portforward":
		return PortForward
	default:
		return Upgrade
	}
}
