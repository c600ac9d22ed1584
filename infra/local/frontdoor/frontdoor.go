// Package frontdoor is the front door on one machine: HTTPS, and the same table of routes that the load balancer on AWS
// has. Like that balancer it decides by path, query and headers where a request goes.
//
//   - [Shares] limits the processes of a function that one caller occupies. [CallerKey] identifies the caller.
//
// Invariants:
//   - A share counts processes, not requests: a function works on after its client has gone.
package frontdoor

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"strings"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/websocket-bridge/quota"
)

// Door sends requests to backends.
type Door struct {
	// Functions answer what the table sends to them; what has no function is the bridge's.
	Functions map[route.Backend]http.Handler
	Bridge    http.Handler
	// PerCluster limits the requests of each cluster that functions answer at the same time. The bridge, which has quotas,
	// answers the others: a cluster that hangs must not use up the functions. nil is no limit.
	PerCluster *quota.Quota
	// Source selects where the address of a request's sender is. Functions get that address as the one of their peer.
	Source limits.SourceMode
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, query, _ := strings.Cut(r.RequestURI, "?")
	fn, ok := d.Functions[route.Match(path, query, tableHeader(r)).To]
	if !ok {
		d.Bridge.ServeHTTP(w, r)
		return
	}
	release := func() {}
	if cluster := clusterOf(r); cluster != "" && d.PerCluster != nil {
		done, reached := d.PerCluster.Take(cluster)
		if reached != quota.None {
			d.Bridge.ServeHTTP(w, r)
			return
		}
		release = done
	}
	r = r.Clone(r.Context())
	if !d.Source.IsPeer() {
		r.RemoteAddr = "" // functions read the sender's address here alone, and a balancer is not the sender
		if address := d.Source.Address(r); address.IsValid() {
			r.RemoteAddr = netip.AddrPortFrom(address, 0).String()
		}
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amzn-Mtls-") {
			delete(r.Header, name) // only the door itself says so
		}
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		r.Header.Set(string(identity.ALBHeader), identity.FormatALBHeader(r.TLS.PeerCertificates))
	}
	serveHolding(fn, w, r, release)
}

// clusterOf returns the only cluster that a request names, "" for none or several. Requests to the fleet name it in an
// object's name or namespace, behind the last @.
func clusterOf(r *http.Request) string {
	req, err := route.ParseRequest(r.Method, r.RequestURI, r.Header)
	if err != nil || req.Route.Kind == route.Gateway {
		return ""
	}
	if req.Route.Kind == route.Cluster {
		return req.Route.Cluster
	}
	for _, name := range []string{req.Resource.Name, req.Resource.Namespace} {
		if i := strings.LastIndexByte(name, '@'); i >= 0 {
			return name[i+1:]
		}
	}
	return ""
}

// tableHeader is the header as a balancer sees it: net/http has taken Transfer-Encoding out.
func tableHeader(r *http.Request) http.Header {
	if len(r.TransferEncoding) == 0 {
		return r.Header
	}
	h := r.Header.Clone()
	h["Transfer-Encoding"] = r.TransferEncoding
	return h
}

// TLS is the door's side of every connection: client certificates are asked for and verified by the gateway, not here, as
// with a balancer in passthrough mode. HTTP/1.1 only, since upgrades need it.
func TLS(cert *tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{*cert},
		MinVersion:   tls.VersionTLS12,
		ClientAuth:   tls.RequestClientCert,
		NextProtos:   []string{"http/1.1"},
	}
}
