package fleet

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// ahead is how many members one page after the first asks at once; a page ends with the last of them.
const ahead = 4

// page is one list, or a page of one.
type page struct {
	q       *ask
	single  bool             // see singleMember: versions and continue tokens are the member's own
	limit   int              // 0 for all
	own     string           // the single member's own continue token; "" without one
	token   *cursor.Token    // nil on the first page
	targets []members.Target // those that are asked for this page
	later   []members.Target // those that are left for pages to come
	version cursor.Version
	given   int   // objects so far
	piece   piece // that is written
}

// page reads what concerns pages and versions of the query, and decides which members are asked.
func (q *ask) page(targets []members.Target) (*page, error) {
	bad := func(format string, args ...any) error {
		return status.New(status.BadRequest, "", format, args...)
	}
	p := &page{q: q, single: singleMember(targets), targets: targets, version: cursor.Version{}}
	if s := q.query.Get("limit"); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 0 {
			return nil, bad("the parameter limit is %q; want a number that is not negative", s)
		}
		p.limit = int(n)
	}
	if s := q.query.Get("continue"); s != "" {
		return p, p.resume(s)
	}
	return p, p.begin()
}

// resume reads a continue token.
func (p *page) resume(s string) error {
	token, err := cursor.ParseToken(s)
	switch {
	case err == nil:
		p.token, p.version = &token, token.Version
		return p.goOn()
	case p.single:
		p.own = s
		return nil
	case cursor.IsOwnToken(s):
		return status.New(status.Expired, "", "the continue token is one cluster's own, and %d take part now: list from the start", len(p.targets))
	}
	return status.New(status.BadRequest, "", "%w", err)
}

// begin reads the version of a list that is not resumed.
func (p *page) begin() error {
	v := p.q.query.Get("resourceVersion")
	if !cursor.Composite(v) {
		if v != "" && v != "0" && !p.single {
			return notOfFleet(v)
		}
		return nil
	}
	asked, err := cursor.ParseVersion(v)
	if err != nil {
		return status.New(status.BadRequest, "", "%w", err)
	}
	members, err := p.members(asked)
	if err == nil && p.q.query.Get("resourceVersionMatch") == "Exact" {
		p.version, p.targets = asked, members
	}
	return err
}

// members returns the members of a version, or 410 if one of them is not there to be asked any more.
func (p *page) members(v cursor.Version) ([]members.Target, error) {
	var out []members.Target
	for _, t := range p.targets {
		if _, ok := v[t.ID]; ok {
			out = append(out, t)
		}
	}
	if len(out) < len(v) {
		return nil, status.New(status.Expired, "", "a cluster that the list began with is not in the fleet any more, or may not be called any more; list from the start")
	}
	return out, nil
}

// goOn leaves those members that the token has not come to, and of these the first few; all, where no limit ends the page.
func (p *page) goOn() error {
	all, err := p.members(p.token.Version)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(t members.Target) bool { return t.ID == p.token.Next }) // ParseToken has seen that it is there
	rest := all[i:]
	n := len(rest)
	if p.limit > 0 {
		n = min(ahead, n)
	}
	p.targets, p.later = rest[:n], rest[n:]
	return nil
}

// expired returns the failures of members that have not what they had at the version that is asked for. Where none is, it is a failure as others.
func (p *page) expired(failures []*members.Failure) []*members.Failure {
	if v := p.q.query.Get("resourceVersion"); p.token == nil && (v == "" || v == "0") {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(failures), func(e *members.Failure) bool { return !e.IsExpired() })
}

// outgoing is the call to one member.
func (p *page) outgoing(t members.Target, accept string) (members.Call, error) {
	query := url.Values{}
	for k, v := range p.q.query {
		query[k] = v
	}
	query.Del("continue")
	query.Set("pretty", "false") // for curl and browsers, API servers add many times as much white space
	if p.own != "" {
		query.Set("continue", p.own)
	}
	limit := p.limit
	if own, ok := p.version[t.ID]; ok { // a list that began before
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
		} else { // it has shown nothing yet: whatever it shows is not older
			query.Del("resourceVersion")
			query.Del("resourceVersionMatch")
		}
	}
	if p.limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	path := p.q.route.Path
	if !t.Scope.All && p.q.res.Namespace == "" {
		if len(t.Scope.Namespaces) == 1 {
			path = inNamespace(path, t.Scope.Namespaces[0])
		} else if query.Get("includeObject") == "None" {
			query.Set("includeObject", "Metadata") // says in which namespace a row is
		}
	}
	encoding := []string{"identity"}
	if strings.Contains(p.q.r.Header.Get("Accept-Encoding"), "gzip") {
		encoding = []string{"gzip"}
	}
	return members.Call{Method: http.MethodGet, Path: path, Query: query, Header: http.Header{"Accept": {accept}, "Accept-Encoding": encoding}}, nil
}

// inNamespace makes the path of a kind across namespaces that of one namespace.
func inNamespace(path, namespace string) string {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	return path[:i] + "/namespaces/" + url.PathEscape(namespace) + path[i:]
}

// cut ends a page while part i may have more. It reads only the versions of the parts after it, which may stand at their end.
func (p *page) cut(parts []*part, i int) (end merge.Metadata, err error) {
	one := parts[i]
	given := one.Read
	if _, err := one.next(); err != nil && !errors.Is(err, io.EOF) {
		return end, err
	}
	if err := p.headsOf(parts[i:]); err != nil {
		return end, err
	}
	t := cursor.Token{Version: p.version}
	switch m := one.Metadata(); {
	case one.Read > given: // an object of it was not given
		t.Next, t.Continue, t.Skip = one.ID, one.base, given
	case m.Continue != "" && p.single && one.skip <= one.Read && !isToken(m.Continue):
		return merge.Metadata{Continue: m.Continue, RemainingItemCount: one.remaining()}, nil
	case m.Continue != "":
		t.Next, t.Continue, t.Skip = one.ID, m.Continue, max(0, one.skip-one.Read)
	case i+1 < len(parts):
		t.Next = parts[i+1].ID
	case len(p.later) > 0:
		t.Next = p.later[0].ID
	default:
		return end, nil // that was all
	}
	t.Remaining = p.remaining(parts[i:], given)
	return p.end(t), nil
}

// canPass reports whether a refusal may pass as the member sent it. A continue token in it must not read as one of the
// fleet's.
func canPass(e *members.Failure) bool {
	return e.Raw != nil && !isToken(scan.Text(scan.Lookup(e.Raw, "metadata", "continue")))
}

// isToken reports whether a member's continue token reads as one of the fleet's.
func isToken(s string) bool {
	_, err := cursor.ParseToken(s)
	return err == nil
}

// end returns what a page that another follows has at its end.
func (p *page) end(t cursor.Token) merge.Metadata {
	m := merge.Metadata{Continue: t.String()}
	if t.Remaining > 0 {
		m.RemainingItemCount = &t.Remaining
	}
	return m
}

// headsOf reads the versions of parts that the page does not give whole.
func (p *page) headsOf(parts []*part) error {
	late := time.AfterFunc(members.StallTimeout, func() { // what is left of them is of no use, and of a hostile one it may have no end
		for _, other := range parts {
			other.Stop()
		}
	})
	defer late.Stop()
	for _, other := range parts {
		if other.Metadata() == nil {
			if err := other.Drain(); err != nil {
				return err
			}
		}
		if err := p.saw(other); err != nil {
			return err
		}
		if _, ok := p.version[other.ID]; !ok {
			return fmt.Errorf("cluster %q lists without a resourceVersion, and so not in pages", other.Name)
		}
	}
	return nil
}
