// Package control is the gateway's own Kubernetes API, by the request handlers of k8s.io/apiserver. It serves clusters,
// resource registries, passes, recording policies, roles, bindings and reviews of the caller. The gateway authenticates
// the callers of [Server], which authorizes them by package access. Package endpoints chooses the handler of a request,
// package registry stores objects by a strategy, and package backend is the storage below it.
//
// Invariants:
//   - No response contains a stored credential. The secret store contains it, and the object only the secret's name.
//   - A change that would send a stored credential elsewhere is only accepted together with the credential.
//   - The response to the creation of a pass contains the credential of the pass, which is not stored.
//   - No caller grants rights that it lacks. Roles and bindings need the verbs escalate and bind, as in Kubernetes. A
//     pass for another user needs impersonate.
//   - Two writers never lose each other's change, even if they use different gateways.
package control

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/control/documents"
	"github.com/clusterpass/clusterpass/shared/control/endpoints"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/secrets"
	gatewaystatus "github.com/clusterpass/clusterpass/shared/status"
)

// Config configures a Server.
type Config struct {
	Objects objects.Store
	Secrets secrets.Store
	Access  *access.Authorizer
	Members *cluster.Members
	// ControlPlane is the cluster that serves other paths. "" means none.
	ControlPlane string
	// Issuer issues passes. With an empty URL, the gateway issues none.
	Issuer *passes.Issuer
	// ServerCA is the CA of the gateway's certificate in PEM. nil means the system's CAs.
	ServerCA []byte
	// MaxPassTTL bounds the lifetime of a pass. 0 means passes.MaxTTL, which is the maximum.
	MaxPassTTL time.Duration
	// Probe checks a cluster and records the result in its status. A GET of a cluster calls it at intervals. Optional.
	Probe func(ctx context.Context, name string) (ready bool, err error)
	// Authentication is the YAML document of the accepted credentials. Its login methods are public.
	Authentication string
	Log            *slog.Logger // nil means slog.Default()
}

const publishTimeout = 5 * time.Second

// PublishKeys publishes the keys that verify passes. It only logs an error, because the creation of the next pass tries
// again.
func (s *Server) PublishKeys(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := s.cfg.Issuer.Publish(ctx); err != nil {
		s.cfg.Log.Warn("the keys that verify passes cannot be published now", "error", err.Error())
	}
}

const requestTimeout = 25 * time.Second

// Server is the API. It is safe for concurrent use. Its goroutines end with their requests.
type Server struct {
	cfg       Config
	scheme    *runtime.Scheme
	codecs    serializer.CodecFactory
	requests  *request.RequestInfoFactory
	resources *endpoints.Handler
	paths     map[string]http.Handler // other paths, without a slash at the end
	openAPI   func() (http.Handler, error)
	merged    mergedOpenAPI
	login     []byte // of login.Path, JSON; nil for none
}

// New returns the API over the stores of cfg. It sends no requests.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.MaxPassTTL = cmp.Or(cfg.MaxPassTTL, passes.MaxTTL)
	s := &Server{
		cfg: cfg, scheme: newScheme(cfg.MaxPassTTL), login: loginMethods(cfg.Authentication),
		requests: &request.RequestInfoFactory{
			APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
		},
		openAPI: sync.OnceValues(documents.OpenAPI),
	}
	s.codecs, s.paths = serializer.NewCodecFactory(s.scheme), s.newPaths()
	var err error
	s.resources, err = endpoints.New(endpoints.Config{
		Scheme: s.scheme, Codecs: s.codecs, Groups: s.groups(), Authorizer: applyAuthorizer{s}, Types: documents.Types,
	})
	return s, err
}

func (s *Server) groups() []endpoints.Group {
	clusters, clusterStatus := s.clusters()
	registries, registryStatus := s.registries()
	resources := map[schema.GroupVersion]map[string]rest.Storage{
		clusterGroup: {"clusters": clusters, "clusters/status": clusterStatus},
		searchGroup:  {"resourceregistries": registries, "resourceregistries/status": registryStatus},
		passGroup:    {"passes": s.passes(), "recordingpolicies": s.recordingPolicies()},
		rbacGroup:    {"clusterroles": s.roles(), "clusterrolebindings": s.bindings()},
		authnGroup:   {"selfsubjectreviews": selfSubjectReview()},
		authzGroup: {"selfsubjectaccessreviews": s.selfSubjectAccessReview(),
			"selfsubjectrulesreviews": s.selfSubjectRulesReview()},
	}
	out := make([]endpoints.Group, len(servedGroups))
	for i, g := range servedGroups {
		out[i] = endpoints.Group{Version: g.version, Serializer: s.codecs, Storage: resources[g.version]}
		if g.jsonOnly {
			out[i].Serializer = jsonOnly{s.codecs}
		}
	}
	return out
}

// Serve implements gateway.API.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, c *gateway.APICall) (next string, err error) {
	u, err := url.ParseRequestURI(c.Route.Path)
	if err != nil {
		return "", gatewaystatus.New(gatewaystatus.BadRequest, "", "the URL cannot be understood")
	}
	u.RawQuery = c.Query
	ctx := withCaller(r.Context(), c.User)
	r = r.Clone(ctx)
	r.URL, r.RequestURI = u, u.RequestURI()
	info, err := s.requests.NewRequestInfo(r)
	if err != nil {
		return "", gatewaystatus.New(gatewaystatus.BadRequest, "", "the URL cannot be understood")
	}
	if !s.serves(info) {
		if s.cfg.ControlPlane == "" {
			return "", gatewaystatus.New(gatewaystatus.UnknownPath, "",
				"the gateway itself has nothing at %s; member clusters are under /clusters/NAME", info.Path)
		}
		return s.cfg.ControlPlane, nil
	}
	attrs := attributes(info)
	reason, err := s.decide(ctx, attrs)
	c.RecordDecision(err == nil, reason)
	if err != nil {
		return "", err
	}
	ctx = request.WithRequestInfo(ctx, info)
	do := func(w http.ResponseWriter, r *http.Request) error {
		s.resources.ServeHTTP(w, r)
		return nil
	}
	if info.Verb == "watch" {
		authorize := func(ctx context.Context) error {
			_, err := s.decide(ctx, attrs)
			return err
		}
		return "", c.ServeWatch(r.WithContext(ctx), authorize, do)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if !info.IsResourceRequest {
		return "", s.serveDocument(w, r.WithContext(ctx))
	}
	var created atomic.Pointer[string] // a timed-out handler may still write it
	err = do(w, r.WithContext(context.WithValue(ctx, createdKey{}, &created)))
	if name := created.Load(); name != nil {
		c.RecordCreated(*name)
	}
	return "", err
}

func (s *Server) serves(info *request.RequestInfo) bool {
	if info.IsResourceRequest {
		return s.resources.Serves(info)
	}
	_, ok := s.paths[documentPath(info.Path)]
	return ok
}
