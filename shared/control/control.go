// Package control is the gateway's own Kubernetes API, in the API server of k8s.io/apiserver. It serves clusters,
// resource registries, passes, recording policies, roles, bindings and reviews of the caller. The gateway authenticates
// the callers of [Server], which authorizes them by package access.
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
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/compatibility"
	restclient "k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/control/openapi"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/secrets"
	gatewaystatus "github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
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
	cfg      Config
	scheme   *runtime.Scheme
	codecs   serializer.CodecFactory
	requests *request.RequestInfoFactory
	handler  http.Handler
	prepare  func()          // adds OpenAPI and health checks to handler, once
	own      map[string]bool // resources as group/version/resource, and paths
	merged   mergedOpenAPI
	login    []byte // of login.Path, JSON; nil for none
}

// New returns the API over the stores of cfg. It sends no requests.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.MaxPassTTL = cmp.Or(cfg.MaxPassTTL, passes.MaxTTL)
	s := &Server{cfg: cfg, scheme: newScheme(cfg.MaxPassTTL), login: loginMethods(cfg.Authentication)}
	s.codecs = serializer.NewCodecFactory(s.scheme)
	c := genericapiserver.NewConfig(s.codecs)
	c.ExternalAddress = "clusterpass:443" // for discovery by old clients, which never dial it
	c.LoopbackClientConfig = &restclient.Config{}
	c.EffectiveVersion = apiVersion{compatibility.DefaultBuildEffectiveVersion()}
	c.EnableIndex, c.EnableProfiling, c.EnableMetrics = false, false, false
	c.DisabledPostStartHooks.Insert("max-in-flight-filter", "storage-object-count-tracker-hook") // no hook is started
	alive := []healthz.HealthChecker{healthz.PingHealthz}
	c.LivezChecks, c.HealthzChecks = alive, alive
	c.ReadyzChecks = append(alive, healthz.NamedCheck("objects", func(r *http.Request) error {
		_, err := cfg.Objects.Revision(r.Context())
		return err
	}))
	c.Authorization.Authorizer = applyAuthorizer{s}
	names := apiopenapi.NewDefinitionNamer(servedScheme(cfg.MaxPassTTL))
	c.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, names)
	c.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, names)
	c.OpenAPIConfig.Info.Title, c.OpenAPIV3Config.Info.Title = "Clusterpass", "Clusterpass"
	c.BuildHandlerChainFunc = func(h http.Handler, _ *genericapiserver.Config) http.Handler {
		h = filters.WithWarningRecorder(h)
		h = filters.WithCacheControl(h)
		h = filters.WithRequestReceivedTimestamp(h)
		return filters.WithAuditInit(h)
	}
	s.requests = genericapiserver.NewRequestInfoResolver(c)
	server, err := c.Complete(nil).New("clusterpass", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	groups, err := s.groups()
	if err != nil {
		return nil, err
	}
	if err := server.InstallAPIGroups(groups...); err != nil {
		return nil, err
	}
	// PrepareRun installs OpenAPI and health checks; the server is never run. It lasts longer than the rest of New, so a
	// cold start leaves it to the first request that needs it.
	s.prepare = sync.OnceFunc(func() { server.PrepareRun() })
	s.handler = server.Handler
	s.own = map[string]bool{"/": true, "/api": true, "/apis": true, "/version": true, "/openapi/v2": true,
		"/openapi/v3": true}
	for _, check := range []string{"livez", "readyz", "healthz"} {
		s.own["/"+check] = true
	}
	for _, g := range groups {
		gv := g.PrioritizedVersions[0]
		for _, path := range []string{"/apis/" + gv.Group, "/apis/" + gv.String(), "/openapi/v3/apis/" + gv.String()} {
			s.own[path] = true
		}
		for resource := range g.VersionedResourcesStorageMap[gv.Version] {
			s.own[gv.String()+"/"+resource] = true
		}
	}
	return s, nil
}

func (s *Server) groups() ([]*genericapiserver.APIGroupInfo, error) {
	clusters, clusterStatus, err := s.clusters()
	if err != nil {
		return nil, err
	}
	registries, registryStatus, err := s.registries()
	if err != nil {
		return nil, err
	}
	passStorage, err := s.passes()
	if err != nil {
		return nil, err
	}
	recordingPolicies, err := s.recordingPolicies()
	if err != nil {
		return nil, err
	}
	roles, err := s.roles()
	if err != nil {
		return nil, err
	}
	bindings, err := s.bindings()
	if err != nil {
		return nil, err
	}
	resources := map[schema.GroupVersion]map[string]rest.Storage{
		clusterGroup: {"clusters": clusters, "clusters/status": clusterStatus},
		searchGroup:  {"resourceregistries": registries, "resourceregistries/status": registryStatus},
		passGroup:    {"passes": passStorage, "recordingpolicies": recordingPolicies},
		rbacGroup:    {"clusterroles": roles, "clusterrolebindings": bindings},
		authnGroup:   {"selfsubjectreviews": selfSubjectReview()},
		authzGroup: {"selfsubjectaccessreviews": s.selfSubjectAccessReview(),
			"selfsubjectrulesreviews": s.selfSubjectRulesReview()},
	}
	var out []*genericapiserver.APIGroupInfo
	for _, g := range servedGroups {
		info := genericapiserver.NewDefaultAPIGroupInfo(g.version.Group, s.scheme,
			runtime.NewParameterCodec(s.scheme), s.codecs)
		if g.jsonOnly {
			info.NegotiatedSerializer = jsonOnly{info.NegotiatedSerializer}
		}
		info.VersionedResourcesStorageMap[g.version.Version] = resources[g.version]
		out = append(out, &info)
	}
	return out, nil
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
	do := func(w http.ResponseWriter, r *http.Request) error {
		s.handler.ServeHTTP(flusher{w}, r)
		return nil
	}
	ctx = request.WithRequestInfo(ctx, info)
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
		return "", s.serveDiscovery(w, r.WithContext(ctx))
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
		return s.own[info.APIGroup+"/"+info.APIVersion+"/"+info.Resource]
	}
	return s.own["/"+strings.Trim(info.Path, "/")]
}

type apiVersion struct {
	basecompatibility.EffectiveVersion
}

func (v apiVersion) Info() *apimachineryversion.Info {
	info, build := v.EffectiveVersion.Info(), version.Get()
	info.GitVersion = build.GitVersion(fmt.Sprintf("v%s.%s.0", info.Major, info.Minor))
	// The library does not set its own.
	info.GitCommit, info.GitTreeState, info.BuildDate = build.Revision, build.TreeState(), build.Date
	return info
}

// flusher adds interfaces that the API server expects by type assertion.
type flusher struct{ http.ResponseWriter }

func (f flusher) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f flusher) Flush() { _ = http.NewResponseController(f.ResponseWriter).Flush() } // a function does not support it

// CloseNotify returns no channel, since contexts report closed connections. Without the method the API server never
// flushes.
func (flusher) CloseNotify() <-chan bool { return nil }
