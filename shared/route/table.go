package route

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// Backend is the destination of a request in Table.
type Backend string

// The backends.
const (
	ToProxy   Backend = "proxy"   // functions/proxy
	ToFleet   Backend = "fleet"   // functions/fleet
	ToControl Backend = "control" // functions/control
	ToBridge  Backend = "bridge"  // websocket-bridge
)

// Rule is one row of Table, a listener rule of an ALB. A request matches if it meets every condition that is set. Rules
// are coarser than Request.IsStream: a function redirects other streams, and the bridge can serve every request.
type Rule struct {
	Name   string
	Path   string // regular expression, whole escaped path; "" is any
	Query  string // name of a query parameter that is present; "" is any
	Header string // name of a header that is present; "" is any
	Value  string // regular expression for Header's whole value; "" is any
	To     Backend
}

// LargeBody is the size in bytes from which Table sends a body to the bridge. An ALB accepts 1 MB for a Lambda target.
const LargeBody = 900_000

// Table is the routing table of the load balancer. The first matching row counts. The last row matches everything.
var Table = []Rule{
	{Name: "bridge", Path: `/(bridge|console)(/.*)?`, To: ToBridge},
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
	{
		Name: "cluster-karpor",
		Path: `/apis/(cluster\.karpor\.io/v1beta1/clusters|kusionstack\.io/Cluster)/[^/]+/proxy(/.*)?`, To: ToProxy,
	},
	{Name: "gateway", Path: `/(api|apis|openapi|logs|metrics|\.well-known)(/.*)?`, To: ToControl},
	{
		Name: "cluster-addon",
		Path: `/[^/]+/(api|apis|version|openapi|openid|healthz|livez|readyz|metrics|logs|\.well-known)(/.*)?`, To: ToProxy,
	},
	{Name: "root", To: ToControl},
}

// compiled anchors the expressions of Table. It compiles them on first use, because functions do not need them.
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
