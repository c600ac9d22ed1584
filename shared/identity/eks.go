package identity

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
)

const (
	eksPrefix = "k8s-aws-v1."
	// eksHeader is signed, so a token for one cluster is invalid at another.
	eksHeader   = "x-k8s-aws-id"
	maxEKSToken = 4 << 10
	// eksLifetime is how long after its date a token is accepted, as in EKS. eksSkew is how far its date may be ahead.
	eksLifetime   = 15 * time.Minute
	eksSkew       = 5 * time.Minute
	maxEKSExpires = 900
	stsTime       = 5 * time.Second
	// eksCached is the lifetime of an accepted token in the cache, and eksRefused that of a token that STS refused.
	eksCached     = time.Minute
	eksRefused    = 10 * time.Second
	maxEKSCached  = 1024
	maxSTSAnswer  = 16 << 10
	stsDate       = "20060102T150405Z"
	callerVersion = "2011-06-15"
)

// stsHosts matches the hosts of AWS STS. A token contains the host that the gateway calls, so it must not name any
// other. The submatch is the region, or empty for the global endpoint.
var stsHosts = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:sts\.amazonaws\.com|sts(?:-fips)?\.(` + awsRegion +
		`)\.(?:amazonaws\.com(?:\.cn)?|api\.aws))$`)
})

const awsRegion = `[a-z]{2}(?:-[a-z]{1,10}){1,3}-[0-9]{1,2}`

// GlobalRegion is the name that AWS's SDKs give to the global endpoint of STS.
const GlobalRegion = "aws-global"

var stsParameters = []string{
	"action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires", "x-amz-security-token",
	"x-amz-signature", "x-amz-signedheaders", "x-amz-user-agent",
}

// EKSConfig configures an EKS. GatewayID and Mapping are required.
type EKSConfig struct {
	// GatewayID is the value of --cluster-name for callers. It must not be the name of an EKS cluster, because receivers
	// of that cluster's tokens could use them at the gateway.
	GatewayID string
	Mapping   *ARNMapping // required
	// Regions are the regions whose STS may be called, and GlobalRegion for the global endpoint. Empty allows all.
	Regions []string
	// UnknownPerMinute limits the tokens with new AWS credentials, per source address. A credential is new unless STS
	// accepted it in the last 12 hours. 0 means 120.
	UnknownPerMinute int
	// Transport sends requests to STS. nil means the default transport, without keep-alive.
	Transport http.RoundTripper
	Now       func() time.Time // nil means time.Now
}

// EKS authenticates callers by tokens of `aws eks get-token --cluster-name GATEWAY-ID`. Such a token is a signed
// request for sts:GetCallerIdentity, whose response contains the caller's ARN. EKS is safe for concurrent use.
//
// Any client can write a token, and the gateway calls the URL in it. So its host must be STS, its parameters those of
// the AWS CLI, and redirects are not followed. stsLanes prevents that invented tokens delay other callers.
type EKS struct {
	cfg      EKSConfig
	client   *http.Client
	known    *cache.Expiring[eksTokenKey, eksAnswer]
	refusals *cache.Expiring[eksTokenKey, eksAnswer] // a separate cache, so that invented tokens evict no user
	flights  singleflight.Group
	lanes    *stsLanes
	timeout  time.Duration // stsTime, except in tests
}

type eksTokenKey [sha256.Size]byte

type eksAnswer struct {
	user *User
	err  error
}

// result returns a copy, which the caller may change.
func (a eksAnswer) result() (*User, error) {
	if a.err != nil {
		return nil, a.err
	}
	u := *a.user
	u.Groups = slices.Clone(u.Groups)
	u.Extra = make(map[string][]string, len(a.user.Extra))
	for k, v := range a.user.Extra {
		u.Extra[k] = slices.Clone(v)
	}
	return &u, nil
}

// NewEKS returns an EKS, or an error that names the invalid field.
func NewEKS(cfg EKSConfig) (*EKS, error) {
	if cfg.GatewayID == "" || cfg.Mapping == nil {
		return nil, errors.New("AWS IAM: want the gateway's id and a mapping of ARNs")
	}
	if err := cfg.Mapping.Validate(); err != nil {
		return nil, fmt.Errorf("AWS IAM: %w", err)
	}
	for _, region := range cfg.Regions {
		if region != GlobalRegion && !regexp.MustCompile("^"+awsRegion+"$").MatchString(region) {
			return nil, fmt.Errorf("AWS IAM: regions: %q: want the name of a region, such as eu-west-1, or %s", region,
				GlobalRegion)
		}
	}
	if cfg.UnknownPerMinute < 0 {
		return nil, errors.New("AWS IAM: unknownPerMinute: want a positive number")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DisableKeepAlives = true // a process that was frozen would reuse dead connections
		cfg.Transport = t
	}
	return &EKS{
		cfg:      cfg,
		known:    cache.NewExpiring[eksTokenKey, eksAnswer](maxEKSCached, cfg.Now),
		refusals: cache.NewExpiring[eksTokenKey, eksAnswer](maxEKSCached, cfg.Now),
		lanes:    newSTSLanes(cfg.UnknownPerMinute, cfg.Now),
		timeout:  stsTime,
		client: &http.Client{
			Transport:     cfg.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// IsEKSToken reports whether a bearer token has the prefix of EKS. Such a token must not be forwarded, because its
// receiver could use it at the gateway.
func IsEKSToken(token string) bool { return strings.HasPrefix(token, eksPrefix) }

// Method implements TokenAuthenticator.
func (e *EKS) Method() string { return "AWS IAM token of aws eks get-token" }

// AuthenticateToken implements TokenAuthenticator.
func (e *EKS) AuthenticateToken(ctx context.Context, token string) (*User, error) {
	if !IsEKSToken(token) {
		return nil, nil
	}
	now := e.cfg.Now().Round(0)
	call, err := parseEKSToken(token)
	if err != nil {
		return nil, refusal(err, "the AWS token is not in the format of aws eks get-token: %v", err)
	}
	if len(e.cfg.Regions) > 0 && !slices.Contains(e.cfg.Regions, call.region) {
		return nil, refusal(nil, "the AWS token was not checked: it is for AWS STS of %s; get one with --region %s",
			call.region, strings.Join(e.cfg.Regions, " or "))
	}
	if !now.Before(call.date.Add(eksLifetime)) {
		return nil, refusal(nil, "the AWS token has expired; get a new one")
	}
	if call.date.After(now.Add(eksSkew)) {
		return nil, refusal(nil, "the AWS token is not valid yet; is the clock right?")
	}
	key := eksTokenKey(sha256.Sum256([]byte(token)))
	if known, ok := e.cached(key); ok {
		return known.result()
	}
	flight := e.flights.DoChan(string(key[:]), func() (any, error) {
		if known, ok := e.cached(key); ok {
			return known, known.err // another flight has ended since the first lookup
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.timeout)
		defer cancel()
		a := e.check(ctx, call)
		e.cache(key, a, now)
		return a, a.err
	})
	select {
	case <-ctx.Done():
		return nil, awsDown(context.Cause(ctx))
	case r := <-flight:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(eksAnswer).result()
	}
}

func (e *EKS) check(ctx context.Context, call eksCall) eksAnswer {
	release, err := e.lanes.acquire(ctx, call.credential)
	if err != nil {
		return eksAnswer{err: err}
	}
	defer release()
	u, err := e.callSTS(ctx, call.url)
	if err != nil {
		return eksAnswer{err: err}
	}
	e.lanes.accept(call.credential)
	u.Expires = call.date.Add(eksLifetime)
	return eksAnswer{user: u}
}

func (e *EKS) cached(key eksTokenKey) (eksAnswer, bool) {
	if a, ok := e.known.Get(key); ok {
		return a, true
	}
	return e.refusals.Get(key)
}

// cache stores users and refusals, since other errors do not depend on the token. now is before the request to STS.
func (e *EKS) cache(key eksTokenKey, a eksAnswer, now time.Time) {
	switch {
	case a.err == nil:
		until := now.Add(eksCached)
		if a.user.Expires.Before(until) {
			until = a.user.Expires
		}
		e.known.Add(key, a, until)
	case status.From(a.err).Reason == status.Unauthenticated:
		e.refusals.Add(key, a, now.Add(eksRefused))
	}
}

type eksCall struct {
	url        *url.URL
	region     string // in the name of the host
	date       time.Time
	credential credentialKey
}

func parseEKSToken(token string) (eksCall, error) {
	u, err := parseEKSURL(token)
	if err != nil {
		return eksCall{}, err
	}
	p, err := stsQuery(u)
	if err != nil {
		return eksCall{}, err
	}
	date, err := checkSignature(p)
	if err != nil {
		return eksCall{}, err
	}
	accessKey, _, _ := strings.Cut(p["x-amz-credential"], "/")
	return eksCall{
		url:    &url.URL{Scheme: "https", Host: u.Host, Path: "/", RawQuery: u.RawQuery},
		region: cmp.Or(stsHosts().FindStringSubmatch(u.Host)[1], GlobalRegion), date: date,
		credential: newCredentialKey(accessKey, p["x-amz-security-token"]),
	}, nil
}

func parseEKSURL(token string) (*url.URL, error) {
	if len(token) > maxEKSToken {
		return nil, fmt.Errorf("it has more than %d bytes", maxEKSToken)
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, eksPrefix))
	if err != nil {
		return nil, errors.New("it is not base64url without padding")
	}
	u, err := url.Parse(string(raw))
	switch {
	case err != nil || strings.ContainsFunc(string(raw), func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("it contains no URL")
	case u.Scheme != "https" || u.User != nil || u.Fragment != "" || u.Opaque != "":
		return nil, errors.New("its URL is not plain https")
	case !stsHosts().MatchString(u.Host):
		return nil, errors.New("its host is not an STS endpoint of AWS")
	case u.EscapedPath() != "/":
		return nil, errors.New("its path is not /")
	}
	return u, nil
}

// stsQuery returns the query parameters by their names in lower case. Each must be known and unique.
func stsQuery(u *url.URL) (map[string]string, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("its query cannot be read")
	}
	p := make(map[string]string, len(query))
	for name, values := range query {
		lower := strings.ToLower(name)
		if !slices.Contains(stsParameters, lower) {
			return nil, errors.New("it has an unknown parameter")
		}
		if _, twice := p[lower]; twice || len(values) != 1 {
			return nil, fmt.Errorf("it has %s twice", lower)
		}
		p[lower] = values[0]
	}
	return p, nil
}

// checkSignature checks the form of a signed GetCallerIdentity, and returns its date. Only STS can verify the
// signature.
func checkSignature(p map[string]string) (time.Time, error) {
	var none time.Time
	signed := strings.Split(strings.ToLower(p["x-amz-signedheaders"]), ";")
	expires, err := strconv.ParseUint(p["x-amz-expires"], 10, 16)
	switch {
	case p["action"] != "GetCallerIdentity" || p["version"] != callerVersion:
		return none, errors.New("it is not for GetCallerIdentity")
	case p["x-amz-algorithm"] != "AWS4-HMAC-SHA256" || p["x-amz-signature"] == "" || p["x-amz-credential"] == "":
		return none, errors.New("it is not signed")
	case !slices.Contains(signed, eksHeader) || !slices.Contains(signed, "host"):
		return none, fmt.Errorf("it does not sign %s", eksHeader)
	case err != nil || expires > maxEKSExpires:
		return none, fmt.Errorf("want x-amz-expires of at most %d", maxEKSExpires)
	}
	date, err := time.Parse(stsDate, p["x-amz-date"])
	if err != nil {
		return none, errors.New("it has no date")
	}
	return date, nil
}

func awsDown(err error) error {
	return unavailable(err, time.Second, "AWS cannot check the token now; try again")
}

// callSTS sends the request, and maps the identity in the response to a user.
func (e *EKS) callSTS(ctx context.Context, call *url.URL) (*User, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, call.String(), nil)
	if err != nil {
		return nil, awsDown(errors.New("the token contains no valid request"))
	}
	req.Header.Set(eksHeader, e.cfg.GatewayID)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", version.UserAgent())
	resp, err := e.client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // the URL is secret
		}
		return nil, awsDown(fmt.Errorf("%s: %w", call.Host, err))
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxSTSAnswer))
	switch { // a refusal is valid even if its body is truncated
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return nil, awsDown(fmt.Errorf("%s answers %d", call.Host, resp.StatusCode))
	case resp.StatusCode != http.StatusOK:
		return nil, refusal(fmt.Errorf("%s answers %d", call.Host, resp.StatusCode),
			"AWS does not accept the token, or it is not for this gateway: get one with --cluster-name %s", e.cfg.GatewayID)
	case err != nil:
		return nil, awsDown(fmt.Errorf("%s: %w", call.Host, err))
	}
	var answer struct {
		Response struct {
			Result struct {
				Arn string
			} `json:"GetCallerIdentityResult"`
		} `json:"GetCallerIdentityResponse"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Response.Result.Arn == "" {
		return nil, awsDown(fmt.Errorf("%s returns no identity", call.Host))
	}
	u, err := e.cfg.Mapping.user(answer.Response.Result.Arn)
	if err != nil {
		return nil, refusal(err, "AWS identity %q has no user here: %v", answer.Response.Result.Arn, err)
	}
	return u, nil
}

var _ TokenAuthenticator = (*EKS)(nil)
