// Package cluster connects to member clusters. [Members] returns a [Member], with its transports, for a Cluster object
// and its secret. A bounded cache keeps a member and its connections until the object's spec or the secret changes.
//
// The author of a Cluster chooses the address that the gateway connects to. After name resolution, a [DialPolicy]
// refuses addresses of the gateway's own environment. Package kubeconfig rejects unsafe fields.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/eks"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Freshness bounds the age of cached objects and secrets.
type Freshness struct {
	Object time.Duration // maximum age of a Cluster object
	Secret time.Duration // maximum age of its secret while the member accepts the credential
	// Patience bounds how long a request waits for a slow store before it uses a cached value. 0 means no bound.
	Patience time.Duration
}

// Local is for stores in directories. Remote is for stores behind a network.
var (
	Local  = Freshness{Object: 500 * time.Millisecond, Secret: 500 * time.Millisecond}
	Remote = Freshness{Object: 5 * time.Second, Secret: time.Minute, Patience: 500 * time.Millisecond}
)

// Times of the caches. staleObject is short, because deleting a Cluster revokes access to it.
const (
	staleObject  = 30 * time.Second
	staleSecret  = time.Hour
	missingTTL   = time.Second
	storeRetry   = 2 * time.Second
	storeTimeout = 5 * time.Second
)

// Config configures Members.
type Config struct {
	Objects interface {
		objects.Getter
		objects.Lister
	}
	Secrets   secrets.Getter
	Freshness Freshness // zero reads the stores for every request
	Policy    DialPolicy
	Log       *slog.Logger // nil means slog.Default()
	Tokens    Tokens       // for members on EKS; nil means an eks.Source
	Plugins   Plugins      // optional
	// NoTrials is for a process that serves one request at a time, which cannot wait for a trial. If the last probe of a
	// member timed out, by its condition Ready, only probes are sent to it. Otherwise some requests are trials.
	NoTrials bool
	// MaxReadConns is the maximum number of HTTP/1.1 connections for Member.Single, of all members. 0 means that Single is
	// REST.
	MaxReadConns int64
	// MaxMembers bounds the cache. 0 means 4096. With more members, each request to the whole fleet would read their
	// credentials and open their connections again.
	MaxMembers int
	Now        func() time.Time // nil means time.Now
}

// Members returns the Member of a cluster's name. It is safe for concurrent use.
type Members struct {
	cfg     Config
	objects *cache.Cache[objects.Object]
	secrets *cache.Cache[*secrets.Secret]
	live    *lru.Cache[string, *Member]
	names   *names
	reads   *semaphore.Weighted // a slot for each of MaxReadConns; nil for none

	mu       sync.Mutex
	lastUsed time.Time
}

// NewMembers returns an empty cache over the stores.
func NewMembers(cfg Config) *Members {
	if cfg.MaxMembers == 0 {
		cfg.MaxMembers = 4096
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Tokens == nil {
		cfg.Tokens = eks.NewSource(eks.Config{})
	}
	live, err := lru.NewWithEvict(cfg.MaxMembers, func(_ string, m *Member) { m.Close() })
	if err != nil {
		panic(err) // a negative MaxMembers
	}
	var reads *semaphore.Weighted
	if cfg.MaxReadConns > 0 {
		reads = semaphore.NewWeighted(cfg.MaxReadConns)
	}
	return &Members{
		cfg: cfg, live: live, names: newNames(cfg), reads: reads,
		objects: cache.New(cache.Config{
			Name: "objects", Max: cfg.MaxMembers, TTL: cfg.Freshness.Object, Negative: min(missingTTL, cfg.Freshness.Object),
			Stale: staleObject, Patience: cfg.Freshness.Patience, Retry: storeRetry, Timeout: storeTimeout,
			Missing: func(err error) bool { return errors.Is(err, objects.ErrNotFound) },
			Down:    objectsDown, Source: cache.SourceOf(cfg.Objects), Now: cfg.Now, Log: cfg.Log,
		}, cfg.Objects.Get),
		secrets: cache.New(cache.Config{
			Name: "secrets", Max: cfg.MaxMembers, TTL: cfg.Freshness.Secret, Negative: min(missingTTL, cfg.Freshness.Secret),
			Stale: staleSecret, Patience: cfg.Freshness.Patience, Retry: storeRetry, Timeout: storeTimeout,
			Missing: func(err error) bool { return errors.Is(err, secrets.ErrNotFound) },
			Down: func(err error) bool {
				return errors.Is(err, secrets.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
			},
			Now: cfg.Now, Log: cfg.Log,
		}, cfg.Secrets.Get),
	}
}

// Get returns the member for a cluster's current object and secret. Its errors are *status.Error: UnknownCluster,
// Misconfigured or StoreUnavailable.
func (m *Members) Get(ctx context.Context, name string) (*Member, error) {
	member, err := m.readMember(ctx, name, m.objects.Get)
	if errors.Is(err, secrets.ErrNotFound) {
		// A cluster that was registered again has another secret. Only the newer object names it.
		return m.readMember(ctx, name, m.objects.Refresh)
	}
	return member, err
}

// record is a Cluster object with the revisions of its last write and of its creation.
type record struct {
	*v1alpha1.Cluster
	revision, created uint64
}

// isConnectedAs reports whether both connect to the same member, if the secret is the same. Every probe that finds a
// change writes a status, which must not cost connections. The check of created distinguishes a cluster that was
// registered anew.
func (r record) isConnectedAs(other record) bool {
	return r.created == other.created && (r.revision == other.revision || reflect.DeepEqual(&r.Spec, &other.Spec))
}

// readObject also returns the last member of that name, possibly of an earlier revision, or nil.
func (m *Members) readObject(ctx context.Context, name string,
	read func(ctx context.Context, key string) (objects.Object, error)) (record, *Member, error) {
	obj, err := read(ctx, v1alpha1.Prefix+name)
	if errors.Is(err, objects.ErrNotFound) {
		m.live.Remove(name)
		return record{}, nil, unknownCluster(name, err)
	} else if err != nil {
		return record{}, nil, storeError(name, err)
	}
	cached, _ := m.live.Get(name)
	if cached != nil && cached.record.revision == obj.Revision {
		return cached.record, cached, nil
	}
	c, err := v1alpha1.Decode(v1alpha1.Prefix+name, obj.Value)
	if err != nil {
		return record{}, nil, misconfigured(name, "its object cannot be read", err)
	}
	return record{c, obj.Revision, obj.Created}, cached, nil
}

func (m *Members) readMember(ctx context.Context, name string,
	read func(ctx context.Context, key string) (objects.Object, error)) (*Member, error) {
	c, cached, err := m.readObject(ctx, name, read)
	if err != nil {
		return nil, err
	}
	if !c.OwnsSecret(c.SecretName()) {
		return nil, misconfigured(name, "spec.secretRef names a secret that is not its own", nil)
	}
	if cached == nil && c.Spec.SyncMode == v1alpha1.Pull && m.cfg.Policy.Tunnel != nil {
		go m.cfg.Policy.Tunnel.Prepare(ctx) // in parallel to the secret, to save the first request a round trip
	}
	sec, err := m.secret(ctx, c.SecretName(), cached != nil && !cached.record.isConnectedAs(c))
	if errors.Is(err, secrets.ErrNotFound) {
		return nil, misconfigured(name, fmt.Sprintf("its secret %q does not exist", c.SecretName()), err)
	} else if err != nil {
		return nil, storeError(name, err)
	}
	if cached != nil && cached.hasVersions(c.revision, sec.Version) {
		return cached, nil
	}
	return m.build(c, sec)
}

// secret reads a cluster's secret. It skips the cache after a change of the spec, because both often change together.
func (m *Members) secret(ctx context.Context, name string, changed bool) (*secrets.Secret, error) {
	if changed {
		return m.secrets.Refresh(ctx, name)
	}
	return m.secrets.Get(ctx, name)
}

// Renew returns a Member with a newer credential after a member has refused that of old, or nil without one. It reads
// the secret again, unless that happened a moment ago. sent is the refused request's header.
func (m *Members) Renew(ctx context.Context, old *Member, sent http.Header) (*Member, error) {
	sec, err := m.secrets.Renew(ctx, old.Cluster.SecretName(),
		func(s *secrets.Secret) bool { return s.Version == old.secretVersion })
	switch {
	case errors.Is(err, secrets.ErrNotFound): // registered again, with another secret
	case err == nil && sec.Version == old.secretVersion && old.Credential.EKS != nil:
		// The secret only configures how to get a token.
		if another := old.tokens.Refused(*old.Credential.EKS,
			strings.TrimPrefix(sent.Get("Authorization"), "Bearer ")); another {
			return old, nil
		}
		return nil, nil
	case err == nil && sec.Version == old.secretVersion && old.Credential.Plugin != nil:
		if !isProbe(ctx) && old.Credential.Plugin.Renew(ctx, strings.TrimPrefix(sent.Get("Authorization"), "Bearer ")) {
			return old, nil
		}
		return nil, nil
	case err != nil || sec.Version == old.secretVersion:
		return nil, err
	}
	member, err := m.Get(ctx, old.Cluster.Name)
	if err != nil || member.hasVersions(old.record.revision, old.secretVersion) {
		return nil, err
	}
	return member, nil
}

// Call is like member.Call. If the member refuses the credential and there is a newer one, Call tries once more.
func (m *Members) Call(ctx context.Context, member *Member, method, path string, in, out any) error {
	sent, err := member.call(ctx, method, path, in, out)
	var refused *CallError
	if !errors.As(err, &refused) || refused.Code != http.StatusUnauthorized ||
		member.Cluster.Mode() == v1alpha1.Passthrough {
		return err
	}
	newer, renewErr := m.Renew(ctx, member, sent)
	if newer == nil || renewErr != nil {
		return err // the member's response explains more than the error of Renew
	}
	return newer.Call(ctx, method, path, in, out)
}

func (m *Members) build(c record, sec *secrets.Secret) (*Member, error) {
	if member := m.reuse(c, sec.Version); member != nil {
		return member, nil
	}
	kc, err := Validate(c.Cluster, sec.Value.Reveal(), m.cfg.Plugins.find(c.Cluster, sec.Value), m.cfg.Now())
	if err != nil {
		return nil, misconfigured(c.Name, err.Error(), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if member := m.reuseLocked(c, sec.Version); member != nil {
		return member, nil // a concurrent request was faster
	}
	if old, ok := m.live.Get(c.Name); ok {
		old.Close()
	}
	member := newMember(c.Cluster, kc, m.cfg.Policy, m.cfg.Tokens, m.reads)
	member.record, member.secretVersion, member.noTrials = c, sec.Version, m.cfg.NoTrials
	if isSilent(c.Cluster) {
		member.suspect(c.Cluster)
	}
	m.live.Add(c.Name, member)
	return member, nil
}

func (m *Members) reuse(c record, secretVersion string) *Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reuseLocked(c, secretVersion)
}

// reuseLocked returns the cached member, with the given object, or nil if it must be built. m.mu must be locked.
func (m *Members) reuseLocked(c record, secretVersion string) *Member {
	old, ok := m.live.Get(c.Name)
	if !ok || old.secretVersion != secretVersion || !old.record.isConnectedAs(c) {
		return nil
	}
	if old.record.revision == c.revision {
		return old
	}
	member := old.withObject(c)
	m.live.Add(c.Name, member)
	return member
}

// Validate parses a cluster's kubeconfig and checks it against the object. plugin, if not nil, is the credential of a
// kubeconfig without one. Errors contain no secret.
func Validate(c *v1alpha1.Cluster, data []byte, plugin kubeconfig.Plugin, now time.Time) (*kubeconfig.Config, error) {
	kc, err := kubeconfig.Parse(data, kubeconfig.Options{AllowInsecure: c.Spec.InsecureSkipTLSVerification})
	if err != nil {
		return nil, err
	}
	if plugin != nil {
		if c.Mode() != v1alpha1.Direct {
			return nil, fmt.Errorf("a credential plugin serves only clusters of identity direct, and this one has identity %s; "+
				"remove it first: clusterpass cluster remove %s", c.Mode(), c.Name)
		}
		kc.Credential.Plugin = plugin
	}
	if c.Spec.ProxyURL != "" {
		if kc.ProxyURL, err = kubeconfig.ParseProxyURL(c.Spec.ProxyURL); err != nil {
			return nil, fmt.Errorf("spec.proxyURL: %w", err)
		}
	}
	if exp := kc.Credential.Expires; !exp.IsZero() && now.After(exp) {
		return nil, fmt.Errorf("the client certificate of its kubeconfig expired on %s; register it again",
			exp.UTC().Format(time.RFC3339))
	}
	if c.Spec.SyncMode == v1alpha1.Pull {
		if err := validatePull(kc); err != nil {
			return nil, err
		}
	}
	switch c.Mode() {
	case v1alpha1.Impersonate, v1alpha1.Direct:
		if kc.Credential.Empty() {
			return nil, fmt.Errorf("identity %s needs a credential, and its kubeconfig has none; if the local gateway "+
				"registered it with a credential plugin, start the gateway with that KUBECONFIG again", c.Mode())
		}
	case v1alpha1.Passthrough:
	default:
		return nil, fmt.Errorf("spec.identity: %q, want impersonate, direct or passthrough", c.Spec.Identity)
	}
	return kc, nil
}

func validatePull(kc *kubeconfig.Config) error {
	if kc.ProxyURL == nil {
		return errors.New("spec.proxyURL: missing; mode Pull is reached through the bridge's tunnel port")
	}
	if agentsOf := strings.Trim(kc.ProxyURL.Path, "/"); agentsOf != "" {
		if err := route.ValidClusterName(agentsOf); err != nil {
			return fmt.Errorf("spec.proxyURL: its path names the cluster whose agents are to be used: %w", err)
		}
	}
	if kc.TLS.InsecureSkipVerify {
		return errors.New(
			"spec.insecureSkipTLSVerification: mode Pull verifies the server, because the traffic passes through agents; give " +
				"certificate-authority-data")
	}
	return nil
}

// Thaw closes connections that may be dead after the process was frozen. Call it before each request, and never while
// others are in flight.
func (m *Members) Thaw() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Now().Round(0) // wall clock: the monotonic clock may stop with the process
	old := now.Sub(m.lastUsed) > frozenTrust
	m.lastUsed = now
	for _, member := range m.live.Values() {
		if old || member.dialer.isStale() {
			member.Close()
		}
	}
}

// Stats returns the statistics of the caches: "objects" and "secrets".
func (m *Members) Stats() map[string]cache.Stats {
	return map[string]cache.Stats{"objects": m.objects.Stats(), "secrets": m.secrets.Stats()}
}

// Close closes the idle connections of every member.
func (m *Members) Close() { m.live.Purge() }

func unknownCluster(name string, err error) error {
	return &status.Error{Reason: status.UnknownCluster, Cluster: name, Err: err,
		Message: fmt.Sprintf("there is no cluster %q; register it with: clusterpass cluster add %s", name, name)}
}

func misconfigured(name, why string, err error) error {
	return &status.Error{Reason: status.Misconfigured, Cluster: name, Err: err,
		Message: fmt.Sprintf("cluster %q cannot be used: %s", name, why)}
}

func storeError(name string, err error) error {
	after := max(storeRetry, secrets.RetryAfter(err), objects.RetryAfter(err))
	e := &status.Error{Reason: status.StoreUnavailable, Cluster: name, Err: err, RetryAfter: after,
		Message: fmt.Sprintf("the gateway cannot read its record of cluster %q now; try again", name)}
	return e
}

// RuntimeAPI returns the DialPolicy.Refuse entry for AWS_LAMBDA_RUNTIME_API, or nil if it is no address.
func RuntimeAPI(hostport string) []netip.AddrPort {
	addr, err := netip.ParseAddrPort(hostport)
	if err != nil {
		return nil
	}
	return []netip.AddrPort{addr}
}
