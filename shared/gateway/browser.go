package gateway

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Origins are the origins of web pages that may open websockets and write through a visitor's browser. Pages of the
// gateway's own origin are always allowed.
type Origins []string

// Decode implements envconfig.Decoder. Origins are separated by commas and have the form scheme://host[:port].
func (o *Origins) Decode(v string) error {
	*o = nil
	for origin := range strings.SplitSeq(v, ",") {
		if origin = strings.TrimSpace(origin); origin == "" {
			continue
		}
		if err := http.NewCrossOriginProtection().AddTrustedOrigin(origin); err != nil {
			return errors.New("want origins such as https://console.example.com, separated by commas")
		}
		*o = append(*o, origin)
	}
	return nil
}

func (o Origins) protection() *http.CrossOriginProtection {
	p := http.NewCrossOriginProtection()
	for _, origin := range o {
		if err := p.AddTrustedOrigin(origin); err != nil {
			panic(fmt.Sprintf("gateway.Origins: %v", err))
		}
	}
	return p
}

// checkOrigin refuses websockets and writes of pages whose origin is not trusted. A browser adds its client certificate
// to such requests, so that a page would act with the rights of its visitor.
//
// A write with a bearer token passes: a page can set the Authorization header only after a CORS preflight, which the
// gateway never grants. Credentials of other schemes do not pass, because browsers can add them to the requests of any
// page.
func (g *Gateway) checkOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if isWebSocket(r.Header) && origin != "" && !slices.Contains(g.cfg.Origins, origin) && !isOwnOrigin(origin, r) {
		return refuseOrigin("websocket", origin)
	}
	if hasBearerToken(r.Header) {
		return nil
	}
	if err := g.crossOrigin.Check(r); err != nil || origin == "null" && !isSafeMethod(r.Method) {
		return refuseOrigin("write", origin)
	}
	return nil
}

func refuseOrigin(requestKind, origin string) error {
	if origin == "" {
		return status.New(status.Forbidden, "", "the %s is refused: its header Sec-Fetch-Site names a page of another "+
			"origin, but it has no Origin header; send the Origin, or a bearer token", requestKind)
	}
	return status.New(status.Forbidden, "", "the %s is refused: it comes from a page of %q, which is not trusted; "+
		"to trust an origin other than null, add it to CLUSTERPASS_WEBSOCKET_ORIGINS", requestKind, origin)
}

func isWebSocket(h http.Header) bool {
	return slices.ContainsFunc(h.Values("Upgrade"), func(v string) bool { return strings.EqualFold(v, "websocket") })
}

// isOwnOrigin reports whether origin is the gateway's. A page of http://HOST may not use https://HOST, because an
// attacker in the visitor's network could forge such a page. A load balancer that ends TLS sends X-Forwarded-Proto.
func isOwnOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return false
	}
	isSecure := r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
	return u.Scheme == "https" || u.Scheme == "http" && !isSecure
}

func hasBearerToken(h http.Header) bool {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && strings.TrimSpace(token) != ""
}

// isSafeMethod reports whether a method is safe: by definition it changes nothing, and may be repeated.
func isSafeMethod(method string) bool { return route.IsRead(method) || method == http.MethodOptions }

// sandbox keeps a browser from running a response as a page of the gateway's origin. A script there could call every
// cluster with the visitor's certificate. Package forward drops these headers of a member's response.
func sandbox(h http.Header) {
	maps.Copy(h, sandboxHeader)
}

// sandboxHeader is shared by all responses, to save allocations. It must not be modified.
var sandboxHeader = http.Header{
	"Content-Security-Policy":      {"sandbox"},
	"X-Content-Type-Options":       {"nosniff"},
	"Cross-Origin-Resource-Policy": {"same-origin"},
}
