package streams

import "github.com/clusterpass/clusterpass/shared/route"

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

// KindOf returns the kind of a request, or "" if it is no stream.
func KindOf(req route.Request) Kind {
	if !req.IsStream {
		return ""
	}
	switch r := req.Resource; {
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
