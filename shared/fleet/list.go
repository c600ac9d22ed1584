package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/status"
)

// ahead is how many members one page after the first asks at once; a page ends with the last of them.
const ahead = 4

// page is one list, or a page of one.
type page struct {
	q       *ask
	limit   int           // 0 for all
	token   *cursor.Token // nil on the first page
	targets []target      // those that are asked for this page
	later   []target      // those that are left for pages to come
	version cursor.Version
	given   int    // objects so far
	object  []byte // the one that is written
}

// part is one member's list on its way into the answer.
type part struct {
	*answer
	*merge.Source
	scope     []string // namespaces that are taken; nil for all
	base      string   // the continue token that the member was asked with
	skip      int      // objects of it that were given on pages before
	watchdog  *time.Timer
	transform func(dst []byte, object jsontext.Value) ([]byte, error)
	namespace func() string // of the object before
}

// list answers with the lists of all targets, one after the other.
func (q *ask) list(w http.ResponseWriter, targets []target) error {
	accept, err := acceptJSON(q.r.Header)
	if err != nil {
		return err
	}
	p, err := q.page(targets)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(q.r.Context())
	defer cancel()
	sources := make([]*merge.Source, len(p.targets))
	answers := q.each(p.targets, func(i int, t target) *answer {
		out, err := p.outgoing(t, accept)
		if err != nil {
			return &answer{target: t, err: err}
		}
		return q.call(ctx, t, out, func(a *answer) (err error) {
			sources[i], err = merge.Open(t.Name, a.body)
			return err
		})
	})
	good, failures, err := split(answers)
	if err != nil {
		return err
	}
	defer stopAll(good)
	var parts []*part
	for i, a := range answers {
		if a.err == nil {
			parts = append(parts, p.part(a, sources[i]))
		}
	}
	parts, failures = oneForm(parts, failures)
	parts, failures = p.versioned(parts, failures)
	switch {
	case len(parts) == 0, len(failures) > 0 && (q.strict || p.token != nil):
		return summary(failures)
	case slices.ContainsFunc(failures, func(e *failure) bool { return e.code == http.StatusGone }):
		return summary(slices.DeleteFunc(failures, func(e *failure) bool { return e.code != http.StatusGone }))
	}
	h := w.Header()
	passWarnings(h, good)
	warn(h, failures)
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache, private")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	out := newSink(w)
	defer out.release()
	if err := p.write(out, parts); err != nil {
		if q.r.Context().Err() == nil {
			q.f.cfg.Log.Warn("a list of the fleet broke off", "path", q.route.Path, "error", err.Error())
		}
		panic(http.ErrAbortHandler) // to return would make a cut answer whole
	}
	return nil
}

// page reads what concerns pages and versions of the query, and decides which members are asked.
func (q *ask) page(targets []target) (*page, error) {
	bad := func(format string, args ...any) error {
		return status.New(status.BadRequest, "", format, args...)
	}
	p := &page{q: q, targets: targets, version: cursor.Version{}}
	if s := q.query.Get("limit"); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 0 {
			return nil, bad("the parameter limit is %q; want a number that is not negative", s)
		}
		p.limit = int(n)
	}
	if s := q.query.Get("continue"); s != "" {
		token, err := cursor.ParseToken(s)
		if err != nil {
			return nil, bad("%w", err)
		}
		p.token, p.version = &token, token.Version
		return p, p.goOn()
	}
	if v := q.query.Get("resourceVersion"); cursor.Composite(v) {
		asked, err := cursor.ParseVersion(v)
		if err != nil {
			return nil, bad("%w", err)
		}
		if q.query.Get("resourceVersionMatch") == "Exact" {
			p.version = asked
			p.targets, err = p.members(asked)
			return p, err
		}
	} else if v != "" && v != "0" && len(targets) > 1 {
		return nil, bad("the resourceVersion %q is one cluster's own, and %d are asked; use that of a list of the fleet", v, len(targets))
	}
	return p, nil
}

// members returns the members of a version, or 410 if one of them is not there to be asked any more.
func (p *page) members(v cursor.Version) ([]target, error) {
	var out []target
	for _, t := range p.targets {
		if _, ok := v[t.id]; ok {
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
	i := slices.IndexFunc(all, func(t target) bool { return t.id == p.token.Next }) // ParseToken has seen that it is there
	rest := all[i:]
	n := len(rest)
	if p.limit > 0 {
		n = min(ahead, n)
	}
	p.targets, p.later = rest[:n], rest[n:]
	return nil
}

// outgoing is the call to one member.
func (p *page) outgoing(t target, accept string) (outgoing, error) {
	query := url.Values{}
	for k, v := range p.q.query {
		query[k] = v
	}
	query.Del("continue")
	limit := p.limit
	if own, ok := p.version[t.id]; ok { // a list that began before
		query.Set("resourceVersion", own)
		query.Set("resourceVersionMatch", "Exact")
		if p.token != nil && t.id == p.token.Next {
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
			return outgoing{}, err
		}
		if own, ok := asked[t.id]; ok {
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
	if !t.scope.All && p.q.res.Namespace == "" {
		if len(t.scope.Namespaces) == 1 {
			path = inNamespace(path, t.scope.Namespaces[0])
		} else if query.Get("includeObject") == "None" {
			query.Set("includeObject", "Metadata") // says in which namespace a row is
		}
	}
	encoding := []string{"identity"}
	if strings.Contains(p.q.r.Header.Get("Accept-Encoding"), "gzip") {
		encoding = []string{"gzip"}
	}
	return outgoing{method: http.MethodGet, path: path, query: query, header: http.Header{"Accept": {accept}, "Accept-Encoding": encoding}}, nil
}

// inNamespace makes the path of a kind across namespaces that of one namespace.
func inNamespace(path, namespace string) string {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	return path[:i] + "/namespaces/" + url.PathEscape(namespace) + path[i:]
}

// part makes a member's list a part of the answer.
func (p *page) part(a *answer, s *merge.Source) *part {
	one := &part{answer: a, Source: s}
	if p.q.res.Namespace == "" && !a.scope.All && len(a.scope.Namespaces) > 1 {
		one.scope = a.scope.Namespaces
	}
	if p.token != nil && p.token.Next == a.id {
		one.base, one.skip = p.token.Continue, p.token.Skip
	}
	return one
}

// oneForm leaves out members that answer in another form than the first: an aggregated API may know no Tables.
func oneForm(parts []*part, failures []*failure) ([]*part, []*failure) {
	var out []*part
	for _, one := range parts {
		if one.IsTable() == parts[0].IsTable() {
			out = append(out, one)
			continue
		}
		failures = append(failures, &failure{cluster: one.Name, code: http.StatusNotAcceptable,
			message: fmt.Sprintf("cluster %q answers this kind in another form (Table or list) than cluster %q", one.Name, parts[0].Name)})
	}
	return out, failures
}

// versioned leaves out members that say before their objects that their list has no version, where it must have one: where a version was
// asked for, as on pages after the first, and on a first page if another member has one. Where none has, there are no pages.
func (p *page) versioned(parts []*part, failures []*failure) ([]*part, []*failure) {
	without := func(one *part) bool { return one.Metadata() != nil && !cursor.ValidOwn(one.Metadata().ResourceVersion) }
	if !slices.ContainsFunc(parts, func(one *part) bool { return !without(one) }) {
		p.limit = 0 // metrics and their like have no versions, and so no pages: their API servers send all
	}
	var out []*part
	for _, one := range parts {
		if _, asked := p.version[one.id]; !without(one) || !asked && p.limit == 0 {
			out = append(out, one)
			continue
		}
		failures = append(failures, &failure{cluster: one.Name, code: http.StatusBadGateway,
			message: fmt.Sprintf("cluster %q lists without a resourceVersion, and so not in pages", one.Name)})
	}
	return out, failures
}

// stall is how long a member may stand still in the middle of its list.
const stall = time.Minute

// next returns the part's next object of those that were not given yet.
func (one *part) next() (jsontext.Value, error) {
	one.watchdog.Reset(stall)
	defer one.watchdog.Stop()
	for {
		v, err := one.Next()
		if err != nil || one.Read > one.skip {
			return v, err
		}
	}
}

// write writes the whole answer.
func (p *page) write(out *sink, parts []*part) error {
	early := p.limit == 0
	for _, one := range parts {
		one.watchdog = time.AfterFunc(stall, one.stop)
		one.watchdog.Stop()
		early = early && one.Metadata() != nil
		if err := p.saw(one); err != nil {
			return err
		}
	}
	table := parts[0].IsTable()
	layout := p.prepare(parts, table)
	out.text("{")
	if early {
		out.head(parts[0].Source)
		out.metadata(p.version, "")
		out.text(",")
	}
	if table {
		out.text(`"columnDefinitions":`)
		_ = out.bytes(layout.Definitions()) // out keeps its error
		out.text(`,"rows":[`)
	} else {
		out.text(`"items":[`)
	}
	token, err := p.objects(out, parts)
	if err != nil {
		return err
	}
	out.text("]")
	if !early {
		out.text(",")
		out.head(parts[0].Source)
		out.metadata(p.version, token)
	}
	out.text("}\n")
	return out.flush()
}

// prepare gives each part the way its objects go into the answer.
func (p *page) prepare(parts []*part, table bool) *merge.Layout {
	var layout *merge.Layout
	if table {
		columns := make([][]merge.Column, len(parts))
		for i, one := range parts {
			columns[i] = one.Columns
		}
		layout = merge.NewLayout(columns...)
	}
	for _, one := range parts {
		a := naming.NewAnswer(one.Name, p.q.named != "")
		one.transform, one.namespace = a.Append, a.Namespace
		if table {
			one.transform = layout.For(one.Name, one.Columns, a).Append
		}
	}
	return layout
}

// saw notes the version that a part's metadata has, if it has come.
func (p *page) saw(one *part) error {
	m := one.Metadata()
	if m == nil {
		return nil
	}
	if v, ok := p.version[one.id]; ok && v != m.ResourceVersion {
		return fmt.Errorf("cluster %q lists at version %q, and was asked for %s", one.Name, m.ResourceVersion, v)
	}
	if cursor.ValidOwn(m.ResourceVersion) { // some aggregated APIs have none
		p.version[one.id] = m.ResourceVersion
	}
	return nil
}

// objects writes the parts' objects, up to the limit. It returns the token for the next page, "" after the last. (How many
// objects are left nobody knows without reading all.)
func (p *page) objects(out *sink, parts []*part) (token string, err error) {
	if p.limit == 0 {
		if len(p.later) > 0 { // goOn takes all; without this a mistake there would be a list that looks whole
			return "", fmt.Errorf("%d clusters are left out of a list without pages", len(p.later))
		}
		return "", p.inTurns(out, parts)
	}
	for i, one := range parts {
		more, err := p.give(out, one, p.limit-p.given)
		if err != nil {
			return "", err
		}
		if more || one.Metadata().Continue != "" {
			return p.cut(parts, i)
		}
	}
	if len(p.later) == 0 {
		return "", nil
	}
	return cursor.Token{Version: p.version, Next: p.later[0].id}.String(), nil
}

// turn is how many objects a whole list takes of one member before it goes on to the next: so many members as there are send at once, and
// the whole takes as long as the slowest of them, while of each no more is held than was sent ahead. Shorter lists stay in one piece.
const turn = 100

// inTurns writes all objects of all parts.
func (p *page) inTurns(out *sink, parts []*part) error {
	for left := slices.Clone(parts); len(left) > 0; {
		var unfinished []*part
		for _, one := range left {
			more, err := p.give(out, one, turn)
			switch {
			case err != nil:
				return err
			case more:
				unfinished = append(unfinished, one)
			case one.Metadata().Continue != "":
				return fmt.Errorf("cluster %q sent a page, and was asked for all", one.Name)
			}
		}
		left = unfinished
	}
	return nil
}

// give writes up to n objects of a part. It reports whether there may be more.
func (p *page) give(out *sink, one *part, n int) (more bool, err error) {
	for n > 0 {
		v, err := one.next()
		if errors.Is(err, io.EOF) {
			return false, p.saw(one)
		} else if err != nil {
			return false, err
		}
		if p.object, err = one.transform(p.object[:0], v); err != nil {
			return false, err
		}
		if one.scope != nil && !slices.Contains(one.scope, one.namespace()) {
			continue
		}
		if p.given > 0 {
			out.text(",")
		}
		p.given++
		n--
		if err := out.bytes(p.object); err != nil {
			return false, err
		}
	}
	return true, nil
}

// cut ends a page while part i may have more. Of the parts after it only the versions count, which may stand at their end.
func (p *page) cut(parts []*part, i int) (token string, err error) {
	one := parts[i]
	given := one.Read
	if _, err := one.next(); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	for _, other := range parts[i:] {
		if other.Metadata() == nil {
			other.watchdog.Reset(stall)
			err := other.Drain()
			other.watchdog.Stop()
			if err != nil {
				return "", err
			}
		}
		if err := p.saw(other); err != nil {
			return "", err
		}
		if _, ok := p.version[other.id]; !ok {
			return "", fmt.Errorf("cluster %q lists without a resourceVersion, and so not in pages", other.Name)
		}
	}
	t := cursor.Token{Version: p.version}
	switch m := one.Metadata(); {
	case one.Read > given: // an object of it was not given
		t.Next, t.Continue, t.Skip = one.id, one.base, given
	case m.Continue != "":
		t.Next, t.Continue, t.Skip = one.id, m.Continue, max(0, one.skip-one.Read)
	case i+1 < len(parts):
		t.Next = parts[i+1].id
	case len(p.later) > 0:
		t.Next = p.later[0].id
	default:
		return "", nil // that was all
	}
	return t.String(), nil
}

// sink writes the answer in large pieces. What fails is told once, by the method that returns an error.
type sink struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf []byte
	err error
}

const sinkSize = 64 << 10

func newSink(w http.ResponseWriter) *sink {
	return &sink{w: w, rc: http.NewResponseController(w), buf: make([]byte, 0, sinkSize)}
}

func (s *sink) text(t string) { s.buf = append(s.buf, t...) }

func (s *sink) bytes(p []byte) error {
	s.buf = append(s.buf, p...)
	if len(s.buf) < sinkSize {
		return s.err
	}
	return s.flush()
}

func (s *sink) flush() error {
	if s.err == nil {
		_ = s.rc.SetWriteDeadline(time.Now().Add(stall)) // a function has no connection
		_, s.err = s.w.Write(s.buf)
	}
	s.buf = s.buf[:0]
	return s.err
}

func (s *sink) release() { _ = s.rc.SetWriteDeadline(time.Time{}) }

// head writes what kind of list it is.
func (s *sink) head(of *merge.Source) {
	for _, f := range []struct{ key, value string }{{"kind", of.Kind}, {"apiVersion", of.APIVersion}} {
		value, _ := json.Marshal(f.value) // a string always marshals
		s.text(`"` + f.key + `":` + string(value) + ",")
	}
}

func (s *sink) metadata(v cursor.Version, token string) {
	m, err := json.Marshal(merge.Metadata{ResourceVersion: v.String(), Continue: token})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	s.text(`"metadata":` + string(m))
}
