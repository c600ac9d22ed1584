// Package route parses the gateway's URLs. It does no I/O and has no state.
//
// Invariants:
//   - Route.Path is a suffix of the escaped input, so that the gateway forwards exactly the bytes that the client sent.
//   - Paths with dot segments or empty segments, escaped or not, are refused. The gateway, its access rules and the
//     member might read them differently.
package route

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Kind is the kind of target that a URL addresses.
type Kind int

// The kinds.
const (
	Gateway Kind = iota // the gateway's own API and, behind it, the control-plane cluster
	Cluster             // one member cluster
	Fleet               // many clusters as one
)

// Route is a parsed path.
type Route struct {
	Kind    Kind
	Cluster string // the member's name; set for Cluster only
	// AllClusters is set for the fleet URL clusters/*/proxy, which selects all clusters without a registry.
	AllClusters bool
	// Qualified is set for fleet URLs with the segment "@" after the prefix. Names in the response are name@cluster.
	Qualified bool
	Prefix    string // the part before Path, as sent; "" for Gateway without /bridge
	Path      string // the path at the member, fleet or gateway: escaped, starts with "/"
	Bridge    bool   // the URL started with /bridge, so that the bridge serves it
}

// ErrPath is wrapped by every error of Parse.
var ErrPath = errors.New("invalid path")

var (
	// dotSegment finds "." and ".." segments with any of their characters escaped. Some servers read a backslash as a
	// separator.
	dotSegment = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:^|/|\\|%2f|%5c)(?:\.|%2e){1,2}(?:$|/|\\|%2f|%5c)`)
	})
	emptySegment = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:/|\\|%2f|%5c){2}`)
	})
)

// reserved are the first segments that the gateway's URLs use, now or in future.
var reserved = []string{
	"agent", "api", "apis", "bridge", "clusterpass", "clusters", "console", "fleet", "healthz", "jwks", "livez", "logs",
	"metrics", "oauth2", "oidc",
	"openapi", "openid", "proxy", "readyz", "static", "version", "well-known",
}

// addonRoots are the first segments of a Kubernetes API path. stolostron's cluster-proxy-addon has /{cluster}/{root}.
var addonRoots = []string{
	".well-known", "api", "apis", "healthz", "livez", "logs", "metrics", "openapi", "openid", "readyz", "version",
}

// In a cluster form the cluster's name stands between before and after.
var (
	clusterForms = []struct{ before, after string }{
		{"/clusters/", ""},
		{"/apis/cluster.karmada.io/v1alpha1/clusters/", "/proxy"},
		{"/apis/cluster.karpor.io/v1beta1/clusters/", "/proxy"},
		{"/apis/kusionstack.io/Cluster/", "/proxy"},
	}
	fleetForms = []string{"/fleet", karmadaFleet}
)

const karmadaFleet = "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy"

func isLabel(s string) bool {
	isOther := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' }
	return s != "" && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-' && !strings.ContainsFunc(s, isOther)
}

// ValidClusterName returns an error unless name is a DNS-1123 label that the gateway's URLs do not use.
func ValidClusterName(name string) error {
	if !isLabel(name) {
		return fmt.Errorf(
			"cluster name %q: want at most 63 lower case letters, digits and '-', with a letter or digit at both ends, such "+
				"as member1", name)
	}
	if slices.Contains(reserved, name) {
		return fmt.Errorf("cluster name %q: the gateway's URLs use it; choose another, such as %s-1", name, name)
	}
	return nil
}

// Parse parses an escaped path without its query. Errors wrap ErrPath.
func Parse(path string) (Route, error) {
	if !strings.HasPrefix(path, "/") {
		return Route{}, fmt.Errorf("%w: it must start with /", ErrPath)
	}
	if strings.ContainsAny(path, ".%") && dotSegment().MatchString(path) { // most paths have neither
		return Route{}, fmt.Errorf("%w: '.' and '..' segments are refused", ErrPath)
	}
	rest, bridge := cut(path, "/bridge")
	if !bridge {
		rest = path
	} else if _, twice := cut(rest, "/bridge"); twice {
		return Route{}, fmt.Errorf("%w: /bridge appears twice", ErrPath)
	}
	r, err := parse(rest)
	if err != nil {
		return Route{}, err
	}
	if hasEmptySegment(path, r.Path) {
		return Route{}, fmt.Errorf("%w: empty segments are refused, write one '/'", ErrPath)
	}
	r.Bridge = bridge
	r.Prefix = strings.TrimSuffix(path, r.Path)
	if r.Path == "" {
		r.Path = "/"
	}
	return r, nil
}

// hasEmptySegment allows empty segments in the tail of a proxy subresource, which belongs to an application. apiPath is
// a suffix of path.
func hasEmptySegment(path, apiPath string) bool {
	if !strings.ContainsAny(path, `\%`) && !strings.Contains(path, "//") {
		return false
	}
	at := emptySegment().FindStringIndex(path)
	if at == nil {
		return false
	}
	begin := len(path) - len(apiPath)
	return at[0] < begin || ParseResource(http.MethodGet, path[begin:at[0]], "").Subresource != "proxy"
}

func parse(path string) (Route, error) {
	for _, f := range clusterForms {
		after, ok := strings.CutPrefix(path, f.before)
		if !ok {
			continue
		}
		name, tail := segment(after)
		tail, ok = cut(tail, f.after)
		if !ok || name == "" {
			break // clusters/{c} without /proxy is the gateway's own resource
		}
		if f.after != "" && (name == "*" || strings.EqualFold(name, "%2A")) {
			return fleet(tail, true), nil
		}
		if !isLabel(name) {
			return Route{}, fmt.Errorf("%w: %q is not a cluster's name", ErrPath, name)
		}
		return Route{Kind: Cluster, Cluster: name, Path: tail}, nil
	}
	for _, f := range fleetForms {
		if tail, ok := cut(path, f); ok {
			return fleet(tail, false), nil
		}
	}
	name, tail := segment(path[min(1, len(path)):])
	if isLabel(name) && !slices.Contains(reserved, name) && tail != "" {
		if root, _ := segment(tail[1:]); slices.Contains(addonRoots, root) {
			return Route{Kind: Cluster, Cluster: name, Path: tail}, nil
		}
	}
	return Route{Kind: Gateway, Path: path}, nil
}

// fleet returns the route of a fleet URL whose prefix was removed. No path of the Kubernetes API starts with "/@".
// Karmada's prefix may appear twice: kubectl get --raw, since 1.34, adds the kubeconfig's server path to a path that
// already has it.
func fleet(tail string, all bool) Route {
	r := Route{Kind: Fleet, AllClusters: all, Path: tail}
	for {
		if rest, ok := cut(r.Path, "/@"); ok {
			r.Qualified, r.Path = true, rest
		} else if rest, ok := cut(r.Path, "/%40"); ok { // the escaped form, which some clients send
			r.Qualified, r.Path = true, rest
		}
		rest, again := cut(r.Path, karmadaFleet)
		if !again {
			return r
		}
		r.Path = rest
	}
}

const agentPath = "/bridge/agent/v1/"

// AgentPath is the URL path at which the agents of a cluster connect to the bridge.
func AgentPath(cluster string) string { return agentPath + cluster }

// AgentCredential is the suffix of AgentPath at which agents renew their credential.
const AgentCredential = "/credential"

// ParseAgent parses a path of AgentPath. tail is "" or AgentCredential.
func ParseAgent(path string) (cluster, tail string, ok bool) {
	rest, ok := strings.CutPrefix(path, agentPath)
	if !ok {
		return "", "", false
	}
	cluster, tail = segment(rest)
	return cluster, tail, ValidClusterName(cluster) == nil && (tail == "" || tail == AgentCredential)
}

func segment(s string) (first, rest string) {
	if i := strings.IndexByte(s, '/'); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// cut removes whole leading segments: cut("/a/b", "/a") returns "/b", cut("/ab", "/a") fails.
func cut(s, prefix string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(s, prefix)
	return rest, ok && (rest == "" || rest[0] == '/')
}
