package eks

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyendpoints "github.com/aws/smithy-go/endpoints"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/sync/singleflight"

	"github.com/clusterpass/clusterpass/shared/awsclient"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// ErrUnavailable is wrapped by errors of Token that may be temporary.
var ErrUnavailable = errors.New("AWS cannot answer now")

const (
	prefix = "k8s-aws-v1."
	// clusterHeader is signed, so a token for one cluster is invalid at another.
	clusterHeader = "x-k8s-aws-id"
	// presignSeconds is X-Amz-Expires. Clusters use X-Amz-Date instead, and require this to be small.
	presignSeconds = "60"
	// lifetime is how long a token is used. It is a minute less than clusters accept it.
	lifetime    = 14 * time.Minute
	margin      = time.Minute
	mintTimeout = 15 * time.Second
	maxTokens   = 1024
	young       = 10 * time.Second
)

// Config configures a Source.
type Config struct {
	// Load returns region, endpoint and credentials. nil means awsclient.Load. The first token calls it.
	Load func(context.Context) (aws.Config, error)
	Now  func() time.Time // nil means time.Now
}

// Source caches a bounded number of tokens until shortly before they expire. Concurrent callers for one token share a
// request. It is safe for concurrent use.
type Source struct {
	cfg     Config
	tokens  *cache.Expiring[Spec, token]
	flights singleflight.Group

	mu     sync.Mutex
	loaded *aws.Config
}

type token struct {
	bearer        secrets.Value
	signed, until time.Time
}

// NewSource returns a Source with an empty cache.
func NewSource(cfg Config) *Source {
	if cfg.Load == nil {
		cfg.Load = awsclient.Load
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Source{cfg: cfg, tokens: cache.NewExpiring[Spec, token](maxTokens, cfg.Now)}
}

// Token returns a bearer token that is valid for another minute, if the credentials are. Errors are not cached. After
// the end of ctx, the request to AWS continues for other callers, for at most 15 s.
func (s *Source) Token(ctx context.Context, spec Spec) (string, error) {
	if t, ok := s.tokens.Get(spec); ok {
		return string(t.bearer.Reveal()), nil
	}
	flight := s.flights.DoChan(fmt.Sprintf("%#v", spec), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mintTimeout)
		defer cancel()
		if t, ok := s.tokens.Get(spec); ok {
			return t, nil // another flight has ended since the first lookup
		}
		t, err := s.mint(ctx, spec)
		if err == nil {
			s.tokens.Add(spec, t, t.until)
		}
		return t, err
	})
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("a token for EKS cluster %s: %w", spec.Cluster, context.Cause(ctx))
	case r := <-flight:
		if r.Err != nil {
			return "", fmt.Errorf("a token for EKS cluster %s: %w", spec.Cluster, r.Err)
		}
		return string(r.Val.(token).bearer.Reveal()), nil
	}
}

// Refused removes a rejected token from the cache. another reports whether Token will return another one. A token that
// is a few seconds old stays, because a cluster that rejects every token would cause many requests to AWS.
func (s *Source) Refused(spec Spec, refused string) (another bool) {
	t, ok := s.tokens.Get(spec)
	if !ok || string(t.bearer.Reveal()) != refused {
		return true
	}
	if s.now().Sub(t.signed) < young {
		return false
	}
	s.tokens.Remove(spec)
	return true
}

func (s *Source) now() time.Time { return s.cfg.Now().Round(0) }

func (s *Source) mint(ctx context.Context, spec Spec) (token, error) {
	cfg, err := s.load(ctx)
	if err != nil {
		return token{}, err
	}
	client := sts.NewFromConfig(*cfg, func(o *sts.Options) {
		if spec.Region != "" {
			o.Region = spec.Region
		}
		if spec.Legacy {
			o.EndpointResolverV2 = global{sts.NewDefaultEndpointResolverV2()}
		}
	})
	if client.Options().Region == "" {
		return token{}, errors.New("no AWS region; give --region in the kubeconfig, or set AWS_REGION for the gateway")
	}
	provider := cfg.Credentials
	if spec.RoleARN != "" {
		provider = stscreds.NewAssumeRoleProvider(client, spec.RoleARN, func(o *stscreds.AssumeRoleOptions) {
			o.RoleSessionName = spec.SessionName
			if spec.ExternalID != "" {
				o.ExternalID = &spec.ExternalID
			}
		})
	}
	creds, err := provider.Retrieve(ctx)
	if temporary := retry.IsErrorRetryables(retry.DefaultRetryables); err != nil &&
		temporary.IsErrorRetryable(err) == aws.TrueTernary {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err != nil {
		return token{}, err
	}
	return sign(ctx, client, creds, spec.Cluster, s.now())
}

func (s *Source) load(ctx context.Context) (*aws.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded == nil {
		cfg, err := s.cfg.Load(ctx)
		if err != nil {
			return nil, fmt.Errorf("load the AWS configuration: %w", err)
		}
		s.loaded = &cfg
	}
	return s.loaded, nil
}

func sign(ctx context.Context, client *sts.Client, creds aws.Credentials, cluster string,
	now time.Time) (token, error) {
	signed, err := sts.NewPresignClient(client).PresignGetCallerIdentity(ctx, &sts.GetCallerIdentityInput{},
		func(o *sts.PresignOptions) {
			o.Presigner = signAt{o.Presigner, now}
			o.ClientOptions = append(o.ClientOptions, func(o *sts.Options) {
				o.Credentials = credentials.StaticCredentialsProvider{Value: creds}
			}, sts.WithAPIOptions(
				smithyhttp.SetHeaderValue(clusterHeader, cluster),
				smithyhttp.SetHeaderValue("X-Amz-Expires", presignSeconds),
			))
		})
	if err != nil {
		return token{}, err
	}
	t := token{secrets.NewValue([]byte(prefix + base64.RawURLEncoding.EncodeToString([]byte(signed.URL)))), now,
		now.Add(lifetime)}
	if end := creds.Expires.Add(-margin); creds.CanExpire && end.Before(t.until) {
		t.until = end
	}
	return t, nil
}

type signAt struct {
	sts.HTTPPresignerV4
	now time.Time
}

func (s signAt) PresignHTTP(ctx context.Context, creds aws.Credentials, r *http.Request, payloadHash, service,
	region string,
	_ time.Time, opts ...func(*v4.SignerOptions),
) (string, http.Header, error) {
	return s.HTTPPresignerV4.PresignHTTP(ctx, creds, r, payloadHash, service, region, s.now, opts...)
}

type global struct{ sts.EndpointResolverV2 }

func (g global) ResolveEndpoint(ctx context.Context, p sts.EndpointParameters) (smithyendpoints.Endpoint, error) {
	p.UseGlobalEndpoint = aws.Bool(true)
	return g.EndpointResolverV2.ResolveEndpoint(ctx, p)
}
