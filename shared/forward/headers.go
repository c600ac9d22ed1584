package forward

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// hopByHop are the headers of one connection, beside those that Connection names (RFC 9110, section 7.6.1). Expect is
// among them because the gateway answers it itself.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect",
}

// neverForwarded are prefixes of request headers with a meaning for the gateway or for a proxy: what a client writes there
// must not reach a member.
var neverForwarded = []string{
	"Authorization", "Cookie", "Forwarded", "Impersonate-", "X-Remote-", "X-Forwarded-", "X-Real-Ip", "X-Amzn-", "X-Original-",
	"X-Clusterpass-",
	"Idempotency-Key", "X-Idempotency-Key", // net/http would take them for leave to send a write twice
}

// normal gives the form in which names are compared: servers behind us may read "_" as "-".
func normal(name string) string {
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// HasPrefix reports whether a header's name begins with prefix, in any case and with "_" for "-".
func HasPrefix(name, prefix string) bool { return strings.HasPrefix(normal(name), prefix) }

// withoutHops returns a copy of h without hop-by-hop headers.
func withoutHops(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for k, v := range h {
		out[k] = slices.Clone(v)
	}
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	return out
}

// requestHeader returns what of a client's header goes to a member, before the member's identity is added. Names with "_", which some
// servers read as "-", are left out; no Kubernetes client has one.
func requestHeader(h http.Header) http.Header {
	out := withoutHops(h)
	for name := range out {
		if strings.Contains(name, "_") || slices.ContainsFunc(neverForwarded, func(p string) bool { return HasPrefix(name, p) }) {
			delete(out, name)
		}
	}
	if id, ok := h[audit.IDHeader]; ok { // the gateway's, also if the client names it in Connection
		out[audit.IDHeader] = id
	}
	if protocols, ok := out["Sec-Websocket-Protocol"]; ok {
		out["Sec-Websocket-Protocol"] = withoutBearer(protocols)
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nil // keeps net/http from adding its own
	}
	return out
}

func withoutBearer(lines []string) []string {
	var kept []string
	for _, line := range lines {
		for p := range strings.SplitSeq(line, ",") {
			if p = strings.TrimSpace(p); p != "" && !strings.HasPrefix(p, identity.BearerProtocol) {
				kept = append(kept, p)
			}
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return []string{strings.Join(kept, ", ")}
}

// notAnswered are headers of a member that do not reach the client. All members share the gateway's origin, and these
// concern that origin, the client's credentials there, or the headers that the gateway itself adds.
var notAnswered = []string{
	"Set-Cookie", "Alt-Svc", "Clear-Site-Data", "Strict-Transport-Security", "Public-Key-Pins", "Refresh", "Service-Worker-Allowed",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Www-Authenticate", "Proxy-Authenticate",
	"Report-To", "Nel", "Reporting-Endpoints", "Content-Security-Policy", "Content-Security-Policy-Report-Only",
	"X-Content-Type-Options", "Cross-Origin-Resource-Policy",
}

// responseHeader returns what of a member's header goes to the client.
func responseHeader(h http.Header) http.Header {
	out := withoutHops(h)
	for _, name := range notAnswered {
		delete(out, name)
	}
	return out
}

// setIdentity adds to h what tells the member who calls, or fails: a call never goes on with less.
func setIdentity(ctx context.Context, h http.Header, c Call) error {
	m := c.Member
	if err := MayTell(m.Cluster, c.User, c.Bearer); err != nil {
		return err
	}
	switch m.Cluster.Mode() {
	case v1alpha1.Impersonate:
		if err := impersonate(h, c.User); err != nil {
			return &status.Error{Reason: status.Forbidden, Cluster: m.Cluster.Name, Err: err,
				Message: fmt.Sprintf("cluster %q cannot be told who calls: %v", m.Cluster.Name, err)}
		}
	case v1alpha1.Passthrough:
		h.Set("Authorization", "Bearer "+c.Bearer)
		return nil
	}
	return m.Authorize(ctx, h)
}

// MayTell returns why the identity of a cluster takes no call of u, who has a bearer token or "". Errors are *status.Error.
func MayTell(to *v1alpha1.Cluster, u *identity.User, bearer string) error {
	switch name := to.Name; to.Mode() {
	case v1alpha1.Impersonate:
	case v1alpha1.Direct:
		if u.Impersonator != "" {
			return status.New(status.Forbidden, name, "cluster %q is registered with identity direct and cannot be told that you call as somebody else (--as)", name)
		}
		if !to.MayDirect(u.Name) {
			return status.New(status.Forbidden, name, "cluster %q is registered with identity direct for other users; "+
				"its administrator may add you to spec.directUsers, or give it a credential that may impersonate", name)
		}
	case v1alpha1.Passthrough:
		if bearer == "" {
			return status.New(status.Unauthenticated, name, "cluster %q wants your own bearer token", name)
		}
	default:
		return status.New(status.Misconfigured, name, "cluster %q has identity %q, which cannot be served", name, to.Mode())
	}
	return nil
}

// impersonate writes u as Kubernetes' impersonation headers.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
func impersonate(h http.Header, u *identity.User) error {
	add := func(key, value string) error {
		// HTTP trims values and cannot carry control characters: another name would arrive.
		if value == "" || strings.TrimSpace(value) != value || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("%q cannot stand in a header", value)
		}
		h[key] = append(h[key], value)
		return nil
	}
	if err := add("Impersonate-User", u.Name); err != nil {
		return err
	}
	if u.UID != "" {
		if err := add("Impersonate-Uid", u.UID); err != nil {
			return err
		}
	}
	for _, g := range saidGroups(u) {
		if err := add("Impersonate-Group", g); err != nil {
			return err
		}
	}
	for k, values := range u.Extra {
		for _, v := range values {
			if err := add("Impersonate-Extra-"+escapeExtraKey(k), v); err != nil {
				return err
			}
		}
	}
	return nil
}

// saidGroups are the groups of u that a member must be told. What it adds itself is left out, since saying that needs a right of its own:
// system:authenticated, and the groups of a service account where those are all, for a member adds them only to one that is told of none.
func saidGroups(u *identity.User) []string {
	said := slices.DeleteFunc(slices.Clone(u.Groups), func(g string) bool { return g == identity.Authenticated })
	if (&identity.User{Name: u.Name, Groups: said}).ImpliedGroup() != identity.Authenticated {
		return u.Groups
	}
	if slices.Equal(slices.Compact(slices.Sorted(slices.Values(said))), identity.ServiceAccountGroups(u.Name)) {
		return nil
	}
	return said
}

// escapeExtraKey percent-encodes what a header's name cannot hold; keys of extras are lower case by definition.
func escapeExtraKey(key string) string {
	var b strings.Builder
	for _, c := range []byte(strings.ToLower(key)) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', strings.IndexByte("-_.!~*'", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// rewriteLocation maps a member's redirect to the URL under which the client reaches the same thing, or fails: clients
// send their credentials to wherever a redirect points.
func rewriteLocation(locations []string, rt route.Route, server *url.URL) (string, error) {
	if len(locations) != 1 || locations[0] == "" {
		return "", errors.New("to several places, or none")
	}
	u, err := server.Parse(server.EscapedPath() + rt.Path)
	if err == nil {
		u, err = u.Parse(locations[0])
	}
	if err != nil || u.Scheme != server.Scheme || u.Host != server.Host || u.User != nil {
		return "", errors.New("to another host")
	}
	path, ok := strings.CutPrefix(u.EscapedPath(), server.EscapedPath())
	out := rt.Prefix + path
	// The client will read it as any URL of ours: it must mean this cluster.
	to, err := route.Parse(out)
	if !ok || err != nil || to.Kind != rt.Kind || to.Cluster != rt.Cluster || to.Prefix != rt.Prefix || strings.HasPrefix(path, "//") {
		return "", errors.New("out of its own path")
	}
	if u.RawQuery != "" || u.ForceQuery {
		out += "?" + u.RawQuery
	}
	return out, nil
}
