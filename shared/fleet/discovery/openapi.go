package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	kjson "sigs.k8s.io/json"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Documents of OpenAPI are large. The gateway reads those of memberConcurrency members at a time.
const (
	maxIndex          = 1 << 20             // bytes of one member's index
	maxUnited         = 2 * merge.MaxObject // bytes of a document of several members
	memberConcurrency = 4
)

// schema returns the document of a key, or builds it. A document that lacks a member is not cached, and fails a strict
// request. With ttl 0, a document does not expire. Callers must not change it.
func (h *Handler) schema(key []any, ttl time.Duration, build func(h *Handler) (*schema, error)) (*schema, error) {
	digest, cached := members.DigestOf(h.Request.CallerDigest(), key), h.Caches.schemas
	d, err := cached.getOrBuild(string(digest[:]), func() (*schema, bool) {
		return cached.Get(digest)
	}, func() (*schema, error) {
		d, err := build(h.withoutCancel())
		if err == nil && len(d.failures) == 0 {
			var expires time.Time
			if ttl > 0 {
				expires = time.Now().Add(ttl)
			}
			cached.Add(digest, d, expires)
		}
		return d, err
	})
	if err != nil {
		return nil, err
	}
	if len(d.failures) > 0 && h.Request.Strict {
		return nil, members.Summary(d.failures)
	}
	return d, nil
}

// unite reads a document from each member and unites them. empty is a document without contents.
func (h *Handler) unite(
	of []members.Entry, call members.Call, unite func(a, b []byte) ([]byte, error), empty string,
) (*schema, error) {
	d, began, united := &schema{}, time.Now(), map[[sha256.Size]byte]bool{}
	for some := range slices.Chunk(of, memberConcurrency) {
		if time.Since(began) > h.Client.Deadline() {
			for _, c := range some {
				d.failures = append(d.failures, members.NewFailure(c.Name, http.StatusGatewayTimeout, nil,
					"cluster %q was not called, because other clusters were too slow", c.Name))
			}
			continue
		}
		bodies := make([][]byte, len(some))
		good, failures, err := h.documents(some, bodies, merge.MaxObject, call)
		if err != nil {
			return nil, err
		}
		d.failures = append(d.failures, failures...)
		for _, i := range good {
			digest := sha256.Sum256(bodies[i]) // of chunks before, only digests are kept
			if united[digest] {
				continue
			}
			if e := d.add(some[i].Name, bodies[i], unite, empty); e != nil {
				d.failures = append(d.failures, e)
				continue
			}
			united[digest] = true
		}
	}
	if d.body == nil {
		return nil, members.Summary(d.failures)
	}
	return d, nil
}

func (d *schema) add(
	cluster string, body []byte, unite func(a, b []byte) ([]byte, error), empty string,
) *members.Failure {
	united := body
	var err error
	if d.body == nil {
		_, err = unite([]byte(empty), body) // the first document stays as it arrived
	} else {
		united, err = unite(d.body, body)
	}
	switch {
	case err != nil:
		return members.NewFailure(cluster, http.StatusBadGateway, err,
			"cluster %q sends OpenAPI that cannot be read: %v", cluster, err)
	case len(united) > maxUnited:
		return members.NewFailure(cluster, http.StatusBadGateway, nil,
			"with the OpenAPI of cluster %q the document is over %d MiB", cluster, maxUnited>>20)
	}
	d.body = united
	return nil
}

// openAPI responds with the OpenAPI v3 index of the global kinds, or with the document of a group version.
func (h *Handler) openAPI(w http.ResponseWriter, allowed []members.Entry, path string) error {
	if _, err := h.Request.AcceptJSON(); err != nil {
		return err
	}
	union, missing, err := h.union(allowed)
	if err != nil {
		return err
	}
	index, err := h.schema([]any{"index", h.key(allowed)}, h.Caches.ttl, func(h *Handler) (*schema, error) {
		return h.readIndex(allowed, union)
	})
	if err != nil {
		return err
	}
	missing = addOnce(index.failures, missing...)
	if path == "" {
		writeSchema(w, index.body, missing)
		return nil
	}
	sources := index.index[path]
	if len(sources) == 0 {
		members.WarnOf(w.Header(), missing, omittedSchemas) // a failed cluster may have the document
		return notGlobal(h.Request.Route.Path)
	}
	etag := etagOf(sources)
	if slices.Contains(strings.Split(h.Request.Header.Get("If-None-Match"), ", "), etag) {
		w.Header().Set("ETag", etag)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	d, err := h.groupVersion(path, sources)
	if err != nil {
		return err
	}
	if len(d.failures) == 0 {
		w.Header().Set("ETag", etag)
	}
	writeSchema(w, d.body, addOnce(missing, d.failures...))
	return nil
}

func (h *Handler) groupVersion(path string, sources []source) (*schema, error) {
	key := []any{"v3", path}
	of := make([]members.Entry, len(sources))
	for i, s := range sources {
		of[i] = s.of
		key = append(key, s.of.ID, s.url)
	}
	return h.schema(key, 0, func(h *Handler) (*schema, error) {
		return h.unite(of, members.Call{Path: "/openapi/v3/" + path}, uniteSchemas, "{}")
	})
}

func writeSchema(w http.ResponseWriter, body []byte, missing []*members.Failure) {
	members.WarnOf(w.Header(), missing, omittedSchemas)
	respond.JSON(w, http.StatusOK, body)
}

const omittedSchemas = "its schemas are left out"

func etagOf(sources []source) string {
	h := sha256.New()
	for _, s := range sources {
		_, _ = fmt.Fprintf(h, "%d %x\n", s.of.ID, s.url)
	}
	return `"` + strings.ToUpper(hex.EncodeToString(h.Sum(nil))) + `"`
}

type (
	indexItem struct {
		URL string `json:"serverRelativeURL"`
	}
	indexDocument struct {
		Paths map[string]indexItem `json:"paths"`
	}
)

func parseIndex(doc []byte) (x indexDocument, err error) {
	if err = scan.CheckValueCount(doc, maxDiscovered); err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(doc, &x)
	}
	return x, err
}

func (h *Handler) readIndex(allowed []members.Entry, union discoveryv2.APIGroupDiscoveryList) (*schema, error) {
	bodies := make([][]byte, len(allowed))
	good, failures, err := h.documents(allowed, bodies, maxIndex, members.Call{Path: "/openapi/v3"})
	if err != nil {
		return nil, err
	}
	d := &schema{index: map[string][]source{}, failures: failures}
	isGlobal := indexPaths(union)
	parse := parseOnce(parseIndex)
	for _, i := range good {
		x, err := parse(bodies[i])
		if err != nil {
			name := allowed[i].Name
			d.failures = append(d.failures, members.NewFailure(name, http.StatusBadGateway, err,
				"cluster %q sends an OpenAPI index that cannot be read", name))
			continue
		}
		for p, one := range x.Paths {
			if !isGlobal[p] {
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
	return d, d.writeIndex()
}

func (d *schema) writeIndex() error {
	out := indexDocument{Paths: map[string]indexItem{}}
	for p, sources := range d.index {
		// The first of two different definitions counts: that of most members, or of the first registered cluster.
		slices.SortStableFunc(sources, func(a, b source) int { return cmp.Compare(b.votes, a.votes) })
		out.Paths[p] = indexItem{fmt.Sprintf("/openapi/v3/%s?hash=%s", p, strings.Trim(etagOf(sources), `"`))}
	}
	body, err := json.Marshal(out)
	d.body = append(body, '\n')
	return err
}

// indexPaths returns the paths of the global group versions in an index: api/v1 or apis/GROUP/VERSION.
func indexPaths(union discoveryv2.APIGroupDiscoveryList) map[string]bool {
	out := map[string]bool{}
	for _, g := range union.Items {
		for _, v := range g.Versions {
			switch {
			case strings.Contains(g.Name+v.Version, "/"): // malformed
			case g.Name == "":
				out["api/"+v.Version] = true
			default:
				out["apis/"+g.Name+"/"+v.Version] = true
			}
		}
	}
	return out
}

func notGlobal(path string) error {
	return status.New(status.NotGlobal, "", "nothing at %s is global: no ResourceRegistry of search.karmada.io/v1alpha1 "+
		"covers its kinds in a cluster that you may call; create one", path)
}
