package route

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// Backend is what a front door sends a request to.
type Backend string

// The backends.
const (
	ToProxy   Backend = "proxy"   // functions/proxy
	ToFleet   Backend = "fleet"   // functions/fleet
	ToControl Backend = "control" // functions/control
	ToBridge  Backend = "bridge"  // websocket-bridge
)

// Rule is one row of the front door's table, in the terms of an ALB's listener rule: a request matches when every
// condition that is set matches. A front door is coarser than Streams: what it sends to a function
// although it streams, the function sends on by a redirect; what it sends to the bridge, the bridge can always
// answer. Rows that go to the bridge therefore may match too much, never too little of what is common.
type Rule struct {
	Name   string
	Path   string // regular expression, whole escaped path; "" is any
	Query  string // name of a query parameter that is present; "" is any
	Header string // name of a header that is present; "" is any
	Value  string // regular expression for Header's whole value; "" is any
	To     Backend
}

// LargeBody is the size in bytes from which the front door sends a request's body to the bridge: an ALB
// takes 1 MB for a Lambda target.
const LargeBody = 900_000

// Table is the front door, first match wins. The last row matches everything.
var Table = []Rule{
	{Name: "bridge", Path: `/bridge(/.*)?`, To: ToBridge},
	{Name: "upgrade", Header: "Upgrade", To: ToBridge},
	{Name: "large-body", Header: "Content-Length", Value: `9[0-9]{5}|[0-9]{7,}`, To: ToBridge},
	{Name: "chunked-body", Header: "Transfer-Encoding", To: ToBridge},
	{Name: "watch", Query: "watch", To: ToBridge},
	{Name: "follow", Query: "follow", To: ToBridge},
	{Name: "streams", Path: `.*/(pods|services|nodes)/[^/]+/(exec|attach|portforward|proxy)(/.*)?`, To: ToBridge},
	{Name: "watch-path", Path: `.*/(api|apis/[^/]+)/v[0-9a-z]+/(watch|proxy)/.*`, To: ToBridge},
	{Name: "fleet", Path: `/fleet(/.*)?`, To: ToFleet},
	{Name: "fleet-karmada", Path: `/apis/search\.karmada\.io/v1alpha1/proxying/karmada/proxy(/.*)?`, To: ToFleet},
	{Name: "fleet-all", Path: `/apis/cluster\.karmada\.io/v1alpha1/clusters/(\*|%2[Aa])/proxy(/.*)?`, To: ToFleet},
	{Name: "cluster", Path: `/clusters/.+`, To: ToProxy},
	{Name: "cluster-karmada", Path: `/apis/cluster\.karmada\.io/v1alpha1/clusters/[^/]+/proxy(/.*)?`, To: ToProxy},
	{Name: "cluster-karpor", Path: `/apis/(cluster\.karpor\.io/v1beta1/clusters|kusionstack\.io/Cluster)/[^/]+/proxy(/.*)?`, To: ToProxy},
	{Name: "gateway", Path: `/(api|apis|openapi|logs|metrics|\.well-known)(/.*)?`, To: ToControl},
	{Name: "cluster-addon", Path: `/[^/]+/(api|apis|version|openapi|openid|healthz|livez|readyz|metrics|logs|\.well-known)(/.*)?`, To: ToProxy},
	{Name: "root", To: ToControl},
}

// compiled holds Table's expressions, anchored. Only front doors need them, which functions are not.
var compiled = sync.OnceValue(func() []struct{ path, value *regexp.Regexp } {
	out := make([]struct{ path, value *regexp.Regexp }, len(Table))
	for i, r := range Table {
		if r.Path != "" {
			out[i].path = regexp.MustCompile(`^(?:` + r.Path + `)$`)
		}
		if r.Value != "" {
			out[i].value = regexp.MustCompile(`^(?:` + r.Value + `)$`)
		}
	}
	return out
})

// Match returns the first row of Table that matches, as an ALB would. path is escaped.
func Match(path, rawQuery string, header http.Header) Rule {
	query, _ := url.ParseQuery(rawQuery)
	expr := compiled()
	for i, r := range Table {
		if re := expr[i].path; re != nil && !re.MatchString(path) {
			continue
		}
		if r.Query != "" && !query.Has(r.Query) {
			continue
		}
		if r.Header != "" {
			v, ok := header[http.CanonicalHeaderKey(r.Header)]
			if !ok || (expr[i].value != nil && !expr[i].value.MatchString(strings.Join(v, ","))) {
				continue
			}
		}
		return r
	}
	panic("route: Table has no last row that matches everything")
}
