package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	kjson "sigs.k8s.io/json"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Documents of OpenAPI are large and asked for often. Of members' documents no more than a few are held at once; what was made of them
// is kept, for the caller who asked alone, and made once for calls of theirs that come together.
const (
	maxIndex    = 1 << 20             // bytes of one member's index
	maxUnited   = 2 * merge.MaxObject // bytes of a document made of several
	schemasMax  = 256
	schemasSize = 32 << 20 // bytes of all that is kept
	indexTTL    = 5 * time.Second
	swaggerTTL  = 5 * time.Second // of the older form, which has no index
)

// schema is a document of OpenAPI, or the index of those that there are.
type schema struct {
	body     []byte
	index    map[string][]source // of an index
	failures []*members.Failure  // of members without which it was made
	until    time.Time           // zero where what it was made of is in its key
	size     int                 // of all that, once it is kept
}

// source is a member's document, which the first of those that have it is asked for.
type source struct {
	url   [sha256.Size]byte // a digest of the URL that the member has it at, which has one of the document
	of    members.Entry
	votes int // how many have it
}

func (d *schema) held() (int, time.Time) { return d.size, d.until }

// schemas keeps documents. It is safe for concurrent use.
type schemas struct{ *sized[string, *schema] }

// sourceSize is what a source takes, in bytes.
const sourceSize = 64

func (s *schemas) put(key string, d *schema) {
	d.size = len(d.body)
	for path, sources := range d.index {
		d.size += len(path) + sourceSize*cap(sources)
	}
	s.sized.put(key, d)
}

func newSchemas() *schemas {
	return &schemas{newSized[string, *schema](schemasMax, schemasSize)}
}

// schema returns what is kept by key, which names all that it depends on, or makes it. What some member did not answer for is not kept,
// and is an error where the caller wants all. The document is not to be changed.
func (q *ask) schema(key []any, ttl time.Duration, build func(q *ask) (*schema, error)) (*schema, error) {
	digest := members.DigestOf(q.caller(), key)
	name := string(digest[:])
	s := q.f.schemas
	d, err := s.once(name, func() (*schema, bool) {
		d := s.get(name)
		return d, d != nil
	}, func() (*schema, error) {
		d, err := build(q.lasting())
		if err == nil && len(d.failures) == 0 {
			if ttl > 0 {
				d.until = time.Now().Add(ttl).Round(0)
			}
			s.put(name, d)
		}
		return d, err
	})
	if err != nil {
		return nil, err
	}
	if len(d.failures) > 0 && q.strict {
		return nil, members.Summary(d.failures)
	}
	return d, nil
}

// united makes one document of those of several members, a few at a time. empty is one that has nothing.
func (q *ask) united(of []members.Entry, out members.Call, unite func(a, b []byte) ([]byte, error), empty string) (*schema, error) {
	d, began := &schema{}, time.Now()
	for some := range slices.Chunk(of, ahead) {
		if time.Since(began) > q.f.cfg.Deadline {
			for _, c := range some {
				d.failures = append(d.failures, &members.Failure{Cluster: c.Name, Code: http.StatusGatewayTimeout, Message: fmt.Sprintf("cluster %q was not asked, since others took too long", c.Name)})
			}
			continue
		}
		bodies := make([][]byte, len(some))
		good, failures, err := q.documents(some, bodies, merge.MaxObject, out)
		if err != nil {
			return nil, err
		}
		d.failures = append(d.failures, failures...)
		for _, i := range good {
			var both []byte
			if d.body == nil {
				both = bodies[i]
				_, err = unite([]byte(empty), both) // it stays as it came
			} else {
				both, err = unite(d.body, bodies[i])
			}
			switch {
			case err != nil:
				d.failures = append(d.failures, &members.Failure{Cluster: some[i].Name, Code: http.StatusBadGateway, Err: err, Message: fmt.Sprintf("cluster %q sends OpenAPI that cannot be read: %v", some[i].Name, err)})
			case len(both) > maxUnited:
				d.failures = append(d.failures, &members.Failure{Cluster: some[i].Name, Code: http.StatusBadGateway, Message: fmt.Sprintf("with the OpenAPI of cluster %q the document is over %d MiB", some[i].Name, maxUnited>>20)})
			default:
				d.body = both
			}
		}
	}
	if d.body == nil {
		return nil, members.Summary(d.failures)
	}
	return d, nil
}

// openAPI answers with the OpenAPI v3 documents of what is global: their index, or with a group version's path one of them, united
// over the clusters where they differ.
func (q *ask) openAPI(w http.ResponseWriter, allowed []members.Entry, path string) error {
	if _, err := acceptJSON(q.r.Header); err != nil {
		return err
	}
	union, _, err := q.union(allowed)
	if err != nil {
		return err
	}
	of := q.discoveryKey(allowed)
	index, err := q.schema([]any{"index", of}, indexTTL, func(q *ask) (*schema, error) { return q.schemaIndex(allowed, union) })
	if err != nil {
		return err
	}
	d, missing := index, index.failures
	if path != "" {
		sources := index.index[path]
		if len(sources) == 0 {
			return status.New(status.NotGlobal, "", "nothing of %s is global: no ResourceRegistry takes in a kind of it for a cluster that you may call", path)
		}
		key := []any{"v3", path}
		of2 := make([]members.Entry, len(sources))
		for i, s := range sources {
			of2[i] = s.of
			key = append(key, s.of.ID, s.url)
		}
		etag := digest(sources)
		if slices.Contains(strings.Split(q.r.Header.Get("If-None-Match"), ", "), etag) {
			w.Header().Set("ETag", etag)
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
		d, err = q.schema(key, 0, func(q *ask) (*schema, error) {
			return q.united(of2, members.Call{Path: "/openapi/v3/" + path}, uniteSchemas, "{}")
		})
		if err != nil {
			return err
		}
		if len(d.failures) == 0 {
			w.Header().Set("ETag", etag)
		}
		missing = slices.Concat(missing, d.failures)
	}
	for _, e := range missing {
		members.AddWarning(w.Header(), e.Text()+" (its schemas are left out)")
	}
	writeJSON(w, http.StatusOK, d.body)
	return nil
}

// digest names what documents hold, as an ETag.
func digest(sources []source) string {
	h := sha256.New()
	for _, s := range sources {
		_, _ = fmt.Fprintf(h, "%d %x\n", s.of.ID, s.url)
	}
	return `"` + strings.ToUpper(hex.EncodeToString(h.Sum(nil))) + `"`
}

// schemaIndex asks the members for what documents they have.
func (q *ask) schemaIndex(allowed []members.Entry, union discoveryv2.APIGroupDiscoveryList) (*schema, error) {
	type item struct {
		URL string `json:"serverRelativeURL"`
	}
	type index struct {
		Paths map[string]item `json:"paths"`
	}
	bodies := make([][]byte, len(allowed))
	good, failures, err := q.documents(allowed, bodies, maxIndex, members.Call{Path: "/openapi/v3"})
	if err != nil {
		return nil, err
	}
	d := &schema{index: map[string][]source{}, failures: failures}
	global := paths(union)
	for _, i := range good {
		var x index
		if err := kjson.UnmarshalCaseSensitivePreserveInts(bodies[i], &x); err != nil {
			d.failures = append(d.failures, &members.Failure{Cluster: allowed[i].Name, Code: http.StatusBadGateway, Err: err, Message: fmt.Sprintf("cluster %q sends an OpenAPI index that cannot be read", allowed[i].Name)})
			continue
		}
		for p, one := range x.Paths {
			if !global[p] {
				continue
			}
			url := sha256.Sum256([]byte(one.URL))
			if at := slices.IndexFunc(d.index[p], func(s source) bool { return s.url == url }); at >= 0 {
				d.index[p][at].votes++
			} else {
				d.index[p] = append(d.index[p], source{url, allowed[i], 1})
			}
		}
	}
	if len(d.failures) == len(allowed) {
		return nil, members.Summary(d.failures)
	}
	out := index{Paths: map[string]item{}}
	for p, sources := range d.index {
		// Where they differ, what is said first stays: that of most, or of those that are registered longest.
		slices.SortStableFunc(sources, func(a, b source) int { return cmp.Compare(b.votes, a.votes) })
		out.Paths[p] = item{fmt.Sprintf("/openapi/v3/%s?hash=%s", p, strings.Trim(digest(sources), `"`))}
	}
	if d.body, err = json.Marshal(out); err != nil {
		return nil, err
	}
	d.body = append(d.body, '\n')
	return d, nil
}

// paths are those that an OpenAPI index has of what is global: api/v1 or apis/GROUP/VERSION.
func paths(union discoveryv2.APIGroupDiscoveryList) map[string]bool {
	out := map[string]bool{}
	for _, g := range union.Items {
		for _, v := range g.Versions {
			switch {
			case strings.Contains(g.Name+v.Version, "/"): // no name of one
			case g.Name == "":
				out["api/"+v.Version] = true
			default:
				out["apis/"+g.Name+"/"+v.Version] = true
			}
		}
	}
	return out
}

// uniteSchemas adds to one OpenAPI document the paths and components that only another has.
func uniteSchemas(a, b []byte) ([]byte, error) {
	return unite(a, b, map[string]int{"paths": 1, "components": 2})
}

// maxNames bounds what one member's document has of names in one place, as paths and definitions: each takes some hundred bytes while it is looked
// at. (2,000 CustomResourceDefinitions make some 12,000.) What is made of several has twice as many at most.
const maxNames = 50_000

var errManyNames = errors.New("it has too many names in one place")

// unite adds to the parts of one JSON document what only another has of them. A part's depth says how many levels of names it has; where both
// have a name of the last, it stays as it is.
func unite(a, b []byte, parts map[string]int) ([]byte, error) {
	var s scan.Scanner
	if !s.Whole(a) || !s.Whole(b) {
		return nil, scan.ErrSyntax
	}
	into, err := named(a, 2*maxNames)
	if err != nil {
		return nil, err
	}
	from, err := named(b, maxNames)
	if err != nil {
		return nil, err
	}
	if into == nil || from == nil {
		return nil, errors.New("null is no document")
	}
	for name, depth := range parts {
		if from[name] == nil {
			continue
		}
		both, err := uniteNames(into[name], from[name], depth)
		if err != nil {
			return nil, err
		}
		into[name] = both
	}
	return json.Marshal(into)
}

// uniteNames unites two objects of that depth; a is nil where there is only b.
func uniteNames(a, b json.RawMessage, depth int) (json.RawMessage, error) {
	switch {
	case depth == 0 && a == nil:
		return b, nil
	case depth == 0:
		return a, nil
	}
	y, err := named(b, maxNames)
	if err != nil {
		return nil, err
	}
	var x map[string]json.RawMessage
	if a != nil {
		if x, err = named(a, 2*maxNames); err != nil {
			return nil, err
		}
	}
	if x == nil {
		x = make(map[string]json.RawMessage, len(y))
	}
	for name, v := range y {
		both, err := uniteNames(x[name], v, depth-1)
		if err != nil {
			return nil, err
		}
		x[name] = both
	}
	if len(x) > 2*maxNames {
		return nil, errManyNames
	}
	return json.Marshal(x)
}

// named returns the values of an object by their names, at most so many, as parts of its text, which must be well-formed; nil of null.
func named(object []byte, most int) (map[string]json.RawMessage, error) {
	at := scan.Space(object, 0)
	switch object[at] {
	case 'n':
		return nil, nil
	case '{':
	default:
		return nil, errors.New("it is no object")
	}
	var s scan.Scanner
	out := map[string]json.RawMessage{}
	for f := range s.Fields(object, at) {
		if len(out) == most {
			return nil, errManyNames
		}
		var name string
		if err := json.Unmarshal(f.Name, &name); err != nil {
			return nil, err
		}
		out[name] = object[f.At:f.End]
	}
	return out, nil
}
