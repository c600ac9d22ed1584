// Package frontdoor is the HTTPS server of the local program, in place of the load balancer on AWS. [Server] selects a
// backend by the table of package route. [Shares] limits the processes that one caller occupies.
//
// A share counts processes, not requests, because a function continues after its client has gone.
package frontdoor

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"strings"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/quota"
	"github.com/clusterpass/clusterpass/shared/route"
)

// Server sends requests to backends.
type Server struct {
	// Functions handle the backends of the table. The bridge handles all other backends.
	Functions map[route.Backend]http.Handler
	Bridge    http.Handler
	// PerCluster limits each cluster's concurrent requests to functions. The bridge handles those beyond. nil: no limit.
	PerCluster *quota.Quota
	// Source selects where the sender's address is. Functions get that address as the one of their peer.
	Source limits.SourceMode
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, query, _ := strings.Cut(r.RequestURI, "?")
	fn, ok := s.Functions[route.Match(path, query, tableHeader(r)).To]
	if !ok {
		s.Bridge.ServeHTTP(w, r)
		return
	}
	release := func() {}
	if cluster := clusterOf(r); cluster != "" && s.PerCluster != nil {
		done, reached := s.PerCluster.Acquire(cluster)
		if reached != quota.None {
			s.Bridge.ServeHTTP(w, r)
			return
		}
		release = done
	}
	r = r.Clone(r.Context())
	if !s.Source.IsPeer() {
		r.RemoteAddr = "" // functions read the sender's address only here, and a balancer is not the sender
		if address := s.Source.Address(r); address.IsValid() {
			r.RemoteAddr = netip.AddrPortFrom(address, 0).String()
		}
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amzn-Mtls-") {
			delete(r.Header, name) // only this handler may set them
		}
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		r.Header.Set(string(identity.ALBHeader), identity.FormatALBHeader(r.TLS.PeerCertificates))
	}
	serveUntilIdle(fn, w, r, release)
}

// clusterOf returns the only cluster that a request names, or "". Names in the fleet end with @CLUSTER.
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

// tableHeader returns the header as a balancer sees it. net/http has removed Transfer-Encoding.
func tableHeader(r *http.Request) http.Header {
	if len(r.TransferEncoding) == 0 {
		return r.Header
	}
	h := r.Header.Clone()
	h["Transfer-Encoding"] = r.TransferEncoding
	return h
}

// TLS returns the server's TLS configuration. It requests client certificates, which the gateway verifies, as behind a
// balancer in passthrough mode. It offers HTTP/1.1 only, because upgrades need it.
func TLS(cert *tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{*cert},
		MinVersion:   tls.VersionTLS12,
		ClientAuth:   tls.RequestClientCert,
		NextProtos:   []string{"http/1.1"},
	}
}
