package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/route"
	gatewaystatus "github.com/clusterpass/clusterpass/shared/status"
)

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func acceptsAggregated(r *http.Request) bool {
	for accept := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if strings.ReplaceAll(accept, " ", "") == aggregatedType {
			return true
		}
	}
	return false
}

// isBuiltin reports whether the control-plane cluster, like any Kubernetes cluster, serves the group version as well.
func (*Server) isBuiltin(groupVersion string) bool {
	return slices.Contains([]string{rbacGroup.String(), authnGroup.String(), authzGroup.String()}, groupVersion)
}

// serveDocument serves a path that is no resource. It merges discovery and OpenAPI with those of the control-plane
// cluster, if the caller may read them.
func (s *Server) serveDocument(w http.ResponseWriter, r *http.Request) error {
	path := documentPath(r.URL.Path)
	parts := strings.Split(path[1:], "/")
	switch {
	case !route.IsRead(r.Method):
		return gatewaystatus.New(gatewaystatus.NotAllowed, "", "%s can only be read", path)
	case acceptsAggregated(r) && (path == "/api" || path == "/apis"):
		return merge(s, w, r, aggregatedType, uniteAggregated)
	case path == "/api":
		return merge(s, w, r, "application/json",
			func(own, other *metav1.APIVersions) { own.Versions = other.Versions })
	case path == "/apis":
		return merge(s, w, r, "application/json", func(own, other *metav1.APIGroupList) {
			own.Groups = union(own.Groups, other.Groups, func(g metav1.APIGroup) string { return g.Name }, uniteGroup)
		})
	case s.cfg.ControlPlane == "":
	case len(parts) == 2 && parts[0] == "apis":
		return merge(s, w, r, "application/json", uniteGroup)
	case len(parts) == 3 && parts[0] == "apis":
		return merge(s, w, r, "application/json", func(own, other *metav1.APIResourceList) {
			own.APIResources = union(own.APIResources, other.APIResources, func(r metav1.APIResource) string { return r.Name },
				nil)
		})
	case path == "/openapi/v3":
		return merge(s, w, r, "application/json", func(own, other *index) {
			for path, at := range other.Paths {
				if _, ours := own.Paths[path]; !ours || s.isBuiltin(strings.TrimPrefix(path, "apis/")) {
					own.Paths[path] = at
				}
			}
		})
	case path == "/openapi/v2":
		return s.openAPIv2(w, r)
	case s.isBuiltin(strings.TrimPrefix(path, "/openapi/v3/apis/")):
		if clusterDoc := s.clusterDocument(w, r, nil, r.Header.Values("Accept")...); clusterDoc != nil {
			clusterDoc.send(w)
			return nil
		}
	}
	return s.serveOwn(w, r)
}

type index struct {
	Paths map[string]any `json:"paths"`
}

func uniteGroup(own, other *metav1.APIGroup) {
	own.Versions = union(own.Versions, other.Versions, func(v metav1.GroupVersionForDiscovery) string { return v.Version },
		nil)
}

func uniteAggregated(own, other *apidiscoveryv2.APIGroupDiscoveryList) {
	own.Items = union(own.Items, other.Items, func(g apidiscoveryv2.APIGroupDiscovery) string { return g.Name },
		func(own, other *apidiscoveryv2.APIGroupDiscovery) {
			own.Versions = union(own.Versions, other.Versions,
				func(v apidiscoveryv2.APIVersionDiscovery) string { return v.Version },
				func(own, other *apidiscoveryv2.APIVersionDiscovery) {
					own.Resources = union(own.Resources, other.Resources,
						func(r apidiscoveryv2.APIResourceDiscovery) string { return r.Resource }, nil)
				})
		})
}

// union appends to own the elements of other with a new key. Without unite, elements of own with equal keys stay. The
// cost is linear, because a cluster can report thousands of kinds.
func union[T any](own, other []T, key func(T) string, unite func(own, other *T)) []T {
	at := make(map[string]int, len(own)+len(other))
	for i := len(own) - 1; i >= 0; i-- { // the first of equal elements counts
		at[key(own[i])] = i
	}
	for i := range other {
		name := key(other[i])
		have, ok := at[name]
		switch {
		case !ok:
			at[name] = len(own)
			own = append(own, other[i])
		case unite != nil:
			unite(&own[have], &other[i])
		}
	}
	return own
}

// merge serves the gateway's own document of a path, merged with the cluster's.
func merge[T any](s *Server, w http.ResponseWriter, r *http.Request, accept string, unite func(own, other *T)) error {
	var doc, clusterDoc T
	own, err := s.ownDocument(r, accept)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(own, &doc); err != nil {
		return err
	}
	if s.clusterDocument(w, r,
		func(body []byte) error { return kjson.UnmarshalCaseSensitivePreserveInts(body, &clusterDoc) },
		accept) != nil {
		unite(&doc, &clusterDoc)
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", accept)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("Vary", "Accept")
	_, _ = w.Write(body) // the client may be gone
	return nil
}

func (s *Server) ownDocument(r *http.Request, accept string) ([]byte, error) {
	doc := &document{header: http.Header{}}
	if err := s.serveOwn(doc, documentRequest(r, accept)); err != nil {
		return nil, err
	}
	if doc.code != http.StatusOK {
		return nil, fmt.Errorf("the gateway's own document of %s: status %d", r.URL.Path, doc.code)
	}
	return doc.body.Bytes(), nil
}

// clusterDocument returns the cluster's document as the caller sees it. It returns nil if the caller may not read it.
// It also returns nil, and adds a warning to the response, if the request or read fails. read may be nil.
func (s *Server) clusterDocument(w http.ResponseWriter, r *http.Request, read func(body []byte) error,
	accept ...string) *document {
	name := s.cfg.ControlPlane
	if name == "" {
		return nil
	}
	doc := &document{header: http.Header{}}
	err := s.requestDocument(r.Context(), doc, documentRequest(r, accept...), name)
	var refused *gatewaystatus.Error
	switch {
	case errors.As(err, &refused) && refused.Reason == gatewaystatus.Forbidden:
		return nil
	case err == nil && doc.code == http.StatusOK && read != nil:
		err = read(doc.body.Bytes())
	}
	if err == nil && doc.code == http.StatusOK {
		return doc
	}
	w.Header().Add("Warning", `299 clusterpass "the control-plane cluster `+name+
		` cannot be discovered: its kinds are missing"`)
	s.cfg.Log.Warn("the control-plane cluster cannot be discovered", "cluster", name, "path", r.URL.Path, "code",
		doc.code, "error", err)
	return nil
}

func (s *Server) requestDocument(ctx context.Context, w http.ResponseWriter, r *http.Request, name string) (err error) {
	defer func() { // a response that breaks off panics
		if p := recover(); p != nil {
			if e, ok := p.(error); !ok || !errors.Is(e, http.ErrAbortHandler) {
				panic(p)
			}
			err = gatewaystatus.New(gatewaystatus.Aborted, name, "the answer of cluster %q broke off", name)
		}
	}()
	u := caller(ctx)
	if err := s.cfg.Access.Authorize(ctx, u, access.Cluster(name, r.Method, nil)); err != nil {
		return err
	}
	m, err := s.cfg.Members.Get(ctx, name)
	if err != nil {
		return err
	}
	to := route.Route{Kind: route.Cluster, Cluster: name, Path: r.URL.EscapedPath()}
	return forward.Do(w, r, &forward.Call{
		Request: route.NewRequest(r.Method, to, r.URL.RawQuery, r.Header), User: u, Member: m, Renewer: s.cfg.Members,
	})
}

func documentRequest(r *http.Request, accept ...string) *http.Request {
	r = r.Clone(r.Context())
	r.Method, r.Body, r.ContentLength = http.MethodGet, http.NoBody, 0
	r.Header = http.Header{"Accept": accept, "Accept-Encoding": {"identity"}, "User-Agent": r.Header["User-Agent"]}
	return r
}

// maxDocument bounds a document of the cluster. With many custom resources it has some megabytes.
const maxDocument = 64 << 20

type document struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (d *document) Header() http.Header { return d.header }

func (d *document) WriteHeader(code int) {
	if d.code == 0 && code >= http.StatusOK {
		d.code = code
	}
}

func (d *document) Write(p []byte) (int, error) {
	d.WriteHeader(http.StatusOK)
	if d.body.Len()+len(p) > maxDocument {
		d.code = http.StatusBadGateway // the copying handler drops the error
		return 0, errors.New("the document is too large")
	}
	return d.body.Write(p)
}

func (d *document) send(w http.ResponseWriter) {
	for _, name := range []string{"Content-Type", "Cache-Control", "Etag", "Expires", "Last-Modified", "Vary"} {
		if values, ok := d.header[name]; ok {
			w.Header()[name] = values
		}
	}
	_, _ = w.Write(d.body.Bytes()) // the client may be gone
}
