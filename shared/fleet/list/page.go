package list

import (
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/encoding"
	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// minPageMembers is the minimum number of members that the fleet calls for each page except the first. It calls more if
// an estimate shows that more are needed to fill the page. Each request to a member has the limit of the whole page. If
// the called members have fewer objects than the limit, the page is shorter.
const minPageMembers = 4

// page is a whole list, or one page of a list.
type page struct {
	client *members.Client
	req    *request.Request
	// single reports whether there is exactly one target. The client then gets the resourceVersions and the continue
	// tokens of that member.
	single bool
	limit  int // maximum number of objects, or 0 for all
	// memberToken is the request's continue token if the single member issued it, or else "".
	memberToken string
	// token is the request's continue token if the fleet issued it, or else nil.
	token   *cursor.Token
	targets []members.Target // the members that are called for this page
	later   []members.Target // the members that are left for later pages
	// version maps each member to the resourceVersion of the member's list. Before the calls, version contains only the
	// resourceVersions that the request demands: those in token, or with resourceVersionMatch=Exact those in the parameter
	// resourceVersion.
	version cursor.Version
}

// maxLimit is the maximum value of the parameter limit. A page has at most cursor.MaxSkip objects.
const maxLimit = math.MaxInt32

func newPage(client *members.Client, req *request.Request, targets []members.Target) (*page, error) {
	p := &page{
		client: client, req: req, single: members.IsSingle(targets), targets: targets, version: cursor.Version{},
	}
	if s := req.Param("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > maxLimit {
			return nil, status.New(status.BadRequest, "", "the parameter limit is %q; want a number from 0 to %d", s, maxLimit)
		}
		p.limit = min(n, cursor.MaxSkip)
	}
	if s := req.Param("continue"); s != "" {
		return p, p.resume(s)
	}
	return p, p.begin()
}

func (p *page) resume(s string) error {
	token, err := cursor.ParseToken(s)
	switch {
	case err == nil:
		p.token, p.version = &token, token.Version
		return p.selectNext()
	case p.single:
		p.memberToken = s
		return nil
	case cursor.IsMemberToken(s):
		return status.New(status.Expired, "", "the continue token belongs to one cluster, but the list covers %d now: "+
			"list from the start", len(p.targets))
	}
	return status.New(status.BadRequest, "", "%w", err)
}

func (p *page) begin() error {
	v := p.req.Param("resourceVersion")
	if !cursor.Composite(v) {
		if v != "" && v != "0" && !p.single {
			return request.ForeignVersion(v)
		}
		return nil
	}
	asked, err := cursor.ParseVersion(v)
	if err != nil {
		return status.New(status.BadRequest, "", "%w", err)
	}
	covered, err := p.coveredBy(asked)
	if err == nil && p.req.Param("resourceVersionMatch") == "Exact" {
		p.version, p.targets = asked, covered
	}
	return err
}

// coveredBy returns the targets that v contains. It fails with 410 if v contains a member that is no longer a target,
// or if v is the version of one object (Version.WithObject).
func (p *page) coveredBy(v cursor.Version) ([]members.Target, error) {
	var out []members.Target
	for _, t := range p.targets {
		if _, ok := v[t.ID]; ok {
			out = append(out, t)
		}
	}
	if len(out) < len(v) {
		return nil, status.New(status.Expired, "", "the resourceVersion does not fit: a cluster has left the fleet, you may "+
			"not call it any more, or the version is that of one object; list from the start")
	}
	return out, nil
}

func (p *page) selectNext() error {
	all, err := p.coveredBy(p.token.Version)
	if err != nil {
		return err
	}
	// ParseToken has checked that Next is in Version.
	i := slices.IndexFunc(all, func(t members.Target) bool { return t.ID == p.token.Next })
	rest := all[i:]
	n := len(rest)
	if p.limit > 0 {
		n = min(max(minPageMembers, p.token.PageMembers), n)
	}
	p.targets, p.later = rest[:n], rest[n:]
	return nil
}

// expiredFailures returns the failures of members that lack the requested version. It returns none if the request has
// neither a continue token of the fleet nor a resourceVersion other than "0".
func (p *page) expiredFailures(failures []*members.Failure) []*members.Failure {
	if v := p.req.Param("resourceVersion"); p.token == nil && (v == "" || v == "0") {
		return nil
	}
	return members.Without(failures, func(e *members.Failure) bool { return !e.IsExpired() })
}

func (p *page) call(t members.Target, accept string) (members.Call, error) {
	query := p.req.Query()
	query.Del("continue")
	query.Set("pretty", "false") // by default, API servers indent JSON for curl and browsers
	if p.memberToken != "" {
		query.Set("continue", p.memberToken)
	}
	limit := p.limit
	if own, ok := p.version[t.ID]; ok { // a later page, or an exact version
		query.Set("resourceVersion", own)
		query.Set("resourceVersionMatch", "Exact")
		if p.token != nil && t.ID == p.token.Next {
			limit += p.token.Skip
			if p.token.Continue != "" {
				query.Del("resourceVersion")
				query.Del("resourceVersionMatch")
				query.Set("continue", p.token.Continue)
			}
		}
	} else if v := query.Get("resourceVersion"); cursor.Composite(v) {
		asked, err := cursor.ParseVersion(v)
		if err != nil {
			return members.Call{}, err
		}
		if own, ok := asked[t.ID]; ok {
			query.Set("resourceVersion", own)
		} else { // the requested version lacks this member, so any version of the member is new enough
			query.Del("resourceVersion")
			query.Del("resourceVersionMatch")
		}
	}
	if p.limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	encodings := []string{"identity"}
	if encoding.AcceptsGzip(p.req.Header) {
		encodings = []string{"gzip"}
	}
	return members.Call{
		Method: http.MethodGet, Path: p.path(t, query), Query: query,
		Header: http.Header{"Accept": {accept}, "Accept-Encoding": encodings},
		Buffer: bufferOf(len(p.targets), p.limit > 0),
	}, nil
}

// mediumBuffers is the maximum number of members whose lists without a limit have medium buffers. With more, the memory
// of their connections is needed for other things.
const mediumBuffers = 128

// bufferOf returns the buffer for the lists of n members. A page of many is full with the objects of a few of them.
func bufferOf(n int, isPage bool) cluster.Buffer {
	if n > members.Many && n <= mediumBuffers && !isPage {
		return cluster.MediumBuffer
	}
	return cluster.BufferOf(n)
}

// path returns the path of the list at a member. If the fleet must filter the rows of a table by namespace, path
// changes query so that each row contains its object's metadata.
func (p *page) path(t members.Target, query url.Values) string {
	path := p.req.Route.Path
	if t.Scope.All || p.req.Resource.Namespace != "" {
		return path
	}
	if len(t.Scope.Namespaces) == 1 {
		return request.PathInNamespace(path, t.Scope.Namespaces[0])
	}
	if query.Get("includeObject") == "None" {
		query.Set("includeObject", "Metadata")
	}
	return path
}

// canPass reports whether a member's Status may pass unchanged. It may not if the fleet would parse the continue token
// in that Status as the fleet's own.
func canPass(e *members.Failure) bool {
	return e.Raw != nil && !isFleetToken(scan.Text(scan.Lookup(e.Raw, "metadata", "continue")))
}

func isFleetToken(s string) bool {
	_, err := cursor.ParseToken(s)
	return err == nil
}
