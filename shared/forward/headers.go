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

// hopByHop are the headers of one connection, in addition to those that Connection names (RFC 9110, section 7.6.1). The
// gateway answers Expect itself.
var hopByHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true,
	"Proxy-Authorization": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Expect": true,
}

// neverForwarded are prefixes of request headers with a meaning for the gateway or for proxies.
var neverForwarded = []string{
	"Authorization", "Cookie", "Forwarded", "Impersonate-", "X-Remote-", "X-Forwarded-", "X-Real-Ip", "X-Amzn-",
	"X-Original-",
	"X-Clusterpass-",
	"Idempotency-Key", "X-Idempotency-Key", // net/http would retry a write that has one
}

// normalizeName returns the canonical form of a header's name. Some servers read "_" as "-".
func normalizeName(name string) string {
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// HasPrefix reports whether a header's name starts with prefix, in any case and with "_" read as "-".
func HasPrefix(name, prefix string) bool { return strings.HasPrefix(normalizeName(name), prefix) }

// copyEndToEnd returns h without hop-by-hop headers and those that isDropped reports. The copy shares its values with
// h, to save allocations. Do not modify the values.
func copyEndToEnd(h http.Header, isDropped func(name string) bool) http.Header {
	out := make(http.Header, len(h)+4) // an identity follows
	for name, values := range h {
		if !hopByHop[name] && !isDropped(name) {
			out[name] = values
		}
	}
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	return out
}

func requestHeader(h http.Header) http.Header {
	out := copyEndToEnd(h, isNeverForwarded)
	if id, ok := h[audit.IDHeader]; ok { // the gateway's own ID, even if the client lists it in Connection
		out[audit.IDHeader] = id
	}
	if protocols, ok := out["Sec-Websocket-Protocol"]; ok {
		out["Sec-Websocket-Protocol"] = withoutBearer(protocols)
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nil // stops net/http from adding its own
	}
	return out
}

// isNeverForwarded also refuses names with "_", because some servers read it as "-". No Kubernetes client sends them.
func isNeverForwarded(name string) bool {
	if strings.Contains(name, "_") {
		return true
	}
	name = http.CanonicalHeaderKey(name)
	return slices.ContainsFunc(neverForwarded, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
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

// droppedResponseHeaders concern the gateway's origin, which all members share, or the client's credentials there.
// addHeader drops those that the gateway sets itself.
var droppedResponseHeaders = map[string]bool{
	"Set-Cookie": true, "Alt-Svc": true, "Clear-Site-Data": true, "Strict-Transport-Security": true,
	"Public-Key-Pins": true, "Refresh": true, "Service-Worker-Allowed": true,
	"Access-Control-Allow-Origin": true, "Access-Control-Allow-Credentials": true,
	"Www-Authenticate": true, "Proxy-Authenticate": true,
	"Report-To": true, "Nel": true, "Reporting-Endpoints": true,
	"Content-Security-Policy-Report-Only": true,
}

func responseHeader(h http.Header) http.Header {
	return copyEndToEnd(h, func(name string) bool { return droppedResponseHeaders[name] })
}

func setIdentity(ctx context.Context, h http.Header, c *Call) error {
	m := c.Member
	if err := MayTell(m.Cluster, c.User, c.Bearer); err != nil {
		return err
	}
	switch m.Cluster.Mode() {
	case v1alpha1.Impersonate:
		if err := impersonate(h, c.User); err != nil {
			return &status.Error{Reason: status.Forbidden, Cluster: m.Cluster.Name, Err: err,
				Message: fmt.Sprintf("cluster %q cannot receive your identity: %v", m.Cluster.Name, err)}
		}
	case v1alpha1.Passthrough:
		h.Set("Authorization", "Bearer "+c.Bearer)
		return nil
	}
	return m.Authorize(ctx, h)
}

// MayTell returns a *status.Error if u's identity cannot be conveyed to a cluster. bearer is the caller's own token, or
// "".
func MayTell(to *v1alpha1.Cluster, u *identity.User, bearer string) error {
	switch name := to.Name; to.Mode() {
	case v1alpha1.Impersonate:
	case v1alpha1.Direct:
		if u.Impersonator != "" {
			return status.New(status.Forbidden, name,
				"cluster %q is registered with identity direct, which cannot convey impersonation; call it without --as", name)
		}
		if !to.MayDirect(u.Name) {
			return status.New(status.Forbidden, name, "cluster %q is registered with identity direct for other users; "+
				"its administrator may add you to spec.directUsers, or give it a credential that may impersonate", name)
		}
	case v1alpha1.Passthrough:
		if bearer == "" {
			return status.New(status.Unauthenticated, name, "cluster %q needs your own bearer token", name)
		}
	default:
		return status.New(status.Misconfigured, name, "cluster %q has identity %q, which cannot be served", name, to.Mode())
	}
	return nil
}

// impersonate sets Kubernetes' impersonation headers for u.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
func impersonate(h http.Header, u *identity.User) error {
	add := func(key, value string) error {
		// HTTP trims values and forbids control characters, so another name would arrive.
		if value == "" || strings.TrimSpace(value) != value ||
			strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("%q is not valid in a header", value)
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
	for _, g := range impersonatedGroups(u) {
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

// impersonatedGroups omits groups that the member adds itself, since naming them needs a right of its own. A member
// always adds system:authenticated. It adds the groups of a service account only if no group is sent.
func impersonatedGroups(u *identity.User) []string {
	groups := u.Groups
	if slices.Contains(groups, identity.Authenticated) {
		groups = slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return g == identity.Authenticated })
	}
	if (&identity.User{Name: u.Name, Groups: groups}).ImpliedGroup() != identity.Authenticated {
		return u.Groups
	}
	implied := identity.ServiceAccountGroups(u.Name)
	if len(implied) > 0 && slices.Equal(slices.Compact(slices.Sorted(slices.Values(groups))), implied) {
		return nil
	}
	return groups
}

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

// rewriteLocation maps a member's redirect to the gateway's URL of the same target. Any other target is an error,
// because clients send their credentials wherever a redirect points.
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
	// The client requests this URL next, so it must address the same cluster.
	to, err := route.Parse(out)
	if !ok || err != nil || to.Kind != rt.Kind || to.Cluster != rt.Cluster || to.Prefix != rt.Prefix ||
		strings.HasPrefix(path, "//") {
		return "", errors.New("out of its own path")
	}
	if u.RawQuery != "" || u.ForceQuery {
		out += "?" + u.RawQuery
	}
	return out, nil
}
