package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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

// aggregatedType is how clients ask for, and get, discovery in one document.
const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// aggregated reports whether a client of discovery prefers one document of all.
func aggregated(r *http.Request) bool {
	for accept := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if strings.ReplaceAll(accept, " ", "") == aggregatedType {
			return true
		}
	}
	return false
}

// shared reports whether a version of a group is one of Kubernetes' own, which the cluster behind the gateway has as well.
func (*Server) shared(groupVersion string) bool {
	return slices.Contains([]string{rbacGroup.String(), authnGroup.String(), authzGroup.String()}, groupVersion)
}

// describe answers a call for what there is: the gateway's own and, with a cluster behind it that the caller may read, that one's.
func (s *Server) describe(w http.ResponseWriter, r *http.Request) error {
	path := "/" + strings.Trim(r.URL.Path, "/")
	parts := strings.Split(path[1:], "/")
	one := aggregated(r) && (path == "/api" || path == "/apis")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
	case one:
		return merge(s, w, r, aggregatedType, apidiscoveryv2.APIGroupDiscoveryList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscoveryv2.SchemeGroupVersion.String()},
			Items:    []apidiscoveryv2.APIGroupDiscovery{},
		}, uniteAggregated)
	case path == "/api":
		return merge(s, w, r, "application/json", metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{}},
			func(own, other *metav1.APIVersions) { own.Versions = other.Versions })
	case path == "/apis":
		return merge(s, w, r, "application/json", metav1.APIGroupList{}, func(own, other *metav1.APIGroupList) {
			own.Groups = union(own.Groups, other.Groups, func(g metav1.APIGroup) string { return g.Name }, uniteGroup)
		})
	case s.cfg.ControlPlane == "":
	case len(parts) == 2 && parts[0] == "apis":
		return merge(s, w, r, "application/json", metav1.APIGroup{}, uniteGroup)
	case len(parts) == 3 && parts[0] == "apis":
		return merge(s, w, r, "application/json", metav1.APIResourceList{}, func(own, other *metav1.APIResourceList) {
			own.APIResources = union(own.APIResources, other.APIResources, func(r metav1.APIResource) string { return r.Name }, nil)
		})
	case path == "/openapi/v3":
		return merge(s, w, r, "application/json", index{}, func(own, other *index) {
			for path, at := range other.Paths {
				if _, ours := own.Paths[path]; !ours || s.shared(strings.TrimPrefix(path, "apis/")) {
					own.Paths[path] = at
				}
			}
		})
	case path == "/openapi/v2":
		return s.openAPIv2(w, r)
	case s.shared(strings.TrimPrefix(path, "/openapi/v3/apis/")):
		// The cluster's document describes what is the gateway's own, too.
		if theirs := s.behind(w, r, nil, r.Header.Values("Accept")...); theirs != nil {
			theirs.send(w)
			return nil
		}
	}
	s.handler.ServeHTTP(flusher{w}, r)
	return nil
}

// index is the document at /openapi/v3.
type index struct {
	Paths map[string]any `json:"paths"`
}

func uniteGroup(own, other *metav1.APIGroup) {
	own.Versions = union(own.Versions, other.Versions, func(v metav1.GroupVersionForDiscovery) string { return v.Version }, nil)
}

func uniteAggregated(own, other *apidiscoveryv2.APIGroupDiscoveryList) {
	own.Items = union(own.Items, other.Items, func(g apidiscoveryv2.APIGroupDiscovery) string { return g.Name },
		func(own, other *apidiscoveryv2.APIGroupDiscovery) {
			own.Versions = union(own.Versions, other.Versions, func(v apidiscoveryv2.APIVersionDiscovery) string { return v.Version },
				func(own, other *apidiscoveryv2.APIVersionDiscovery) {
					own.Resources = union(own.Resources, other.Resources, func(r apidiscoveryv2.APIResourceDiscovery) string { return r.Resource }, nil)
				})
		})
}

// union appends to own what other has beside it; what both have, by their key, unite makes one, and without it own's stays. It takes time for
// each, not for each pair: a cluster has thousands of kinds, or says so.
func union[T any](own, other []T, key func(T) string, unite func(own, other *T)) []T {
	at := make(map[string]int, len(own)+len(other))
	for i := len(own) - 1; i >= 0; i-- { // of equals the first counts
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

// merge answers with the gateway's own document, or empty where it has none, united with the cluster's.
func merge[T any](s *Server, w http.ResponseWriter, r *http.Request, accept string, empty T, unite func(own, other *T)) error {
	doc := empty
	if own := s.ownDocument(r, accept); own.code == http.StatusOK {
		if err := json.Unmarshal(own.body.Bytes(), &doc); err != nil {
			return err
		}
	}
	var theirs T
	if s.behind(w, r, func(body []byte) error { return kjson.UnmarshalCaseSensitivePreserveInts(body, &theirs) },
		accept) != nil {
		unite(&doc, &theirs)
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

// ownDocument is what the gateway alone would answer.
func (s *Server) ownDocument(r *http.Request, accept string) *document {
	doc := &document{header: http.Header{}}
	s.handler.ServeHTTP(doc, asking(r, accept))
	return doc
}

// behind is the cluster's document, as the caller sees it; nil where there is none for them, or none that read, if not nil, can use. That
// the cluster did not answer, or wrongly, is said in a warning: the gateway's own kinds are there without it.
func (s *Server) behind(w http.ResponseWriter, r *http.Request, read func(body []byte) error, accept ...string) *document {
	name := s.cfg.ControlPlane
	if name == "" {
		return nil
	}
	doc := &document{header: http.Header{}}
	err := s.ask(r.Context(), doc, asking(r, accept...), name)
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
	w.Header().Add("Warning", `299 clusterpass "the control-plane cluster `+name+` does not answer as it should: its kinds are missing"`)
	s.cfg.Log.Warn("the control-plane cluster does not answer as it should", "cluster", name, "path", r.URL.Path, "code", doc.code, "error", err)
	return nil
}

// ask makes a call to the cluster, if the caller may.
func (s *Server) ask(ctx context.Context, w http.ResponseWriter, r *http.Request, name string) (err error) {
	defer func() { // an answer that breaks off has no other end here
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
	return forward.Do(w, r, forward.Call{
		Request: route.NewRequest(r.Method, to, r.URL.RawQuery, r.Header), User: u, Member: m, Renew: s.cfg.Members.Renew,
	})
}

// asking is r as a GET for a document of certain types.
func asking(r *http.Request, accept ...string) *http.Request {
	r = r.Clone(r.Context())
	r.Method, r.Body, r.ContentLength = http.MethodGet, http.NoBody, 0
	r.Header = http.Header{"Accept": accept, "Accept-Encoding": {"identity"}}
	return r
}

// maxDocument bounds what is read of the cluster's description of itself: a cluster with many custom resources has some megabytes.
const maxDocument = 64 << 20

// document is an http.ResponseWriter that keeps the answer.
type document struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (d *document) Header() http.Header { return d.header }

// WriteHeader implements http.ResponseWriter.
func (d *document) WriteHeader(code int) {
	if d.code == 0 && code >= http.StatusOK {
		d.code = code
	}
}

// Write implements http.ResponseWriter.
func (d *document) Write(p []byte) (int, error) {
	d.WriteHeader(http.StatusOK)
	if d.body.Len()+len(p) > maxDocument {
		d.code = http.StatusBadGateway // who copies the answer keeps the error to itself
		return 0, errors.New("the document is too large")
	}
	return d.body.Write(p)
}

// send answers with d.
func (d *document) send(w http.ResponseWriter) {
	for _, name := range []string{"Content-Type", "Cache-Control", "Etag", "Expires", "Last-Modified", "Vary"} {
		if values, ok := d.header[name]; ok {
			w.Header()[name] = values
		}
	}
	_, _ = w.Write(d.body.Bytes()) // the client may be gone
}
