// Package awsclient configures the AWS clients of the stores: deadlines, retries, and the meaning of errors.
//
// Every call ends within CallTimeout. If failures become frequent, the SDK's retry quota stops the retries, so that
// they do not worsen an outage.
package awsclient

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/clusterpass/clusterpass/shared/version"
)

const (
	// CallTimeout is the deadline of one store operation with all attempts.
	CallTimeout = 10 * time.Second
	// attemptTimeout is short, since a connection may be dead without notice after a function was frozen.
	attemptTimeout = 4 * time.Second
	attempts       = 6
	firstPause     = 50 * time.Millisecond
	maxPause       = time.Second
)

// Configure returns cfg with this package's retries and the gateway's version in the User-Agent. It adds attemptTimeout
// unless cfg has an HTTP client of another type than the SDK's, with which the SDK rejects AWS_CA_BUNDLE.
func Configure(cfg aws.Config) aws.Config {
	cfg = cfg.Copy()
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = attempts
			o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
				return Pause(attempt), nil
			})
		})
	}
	cfg.APIOptions = append(slices.Clone(cfg.APIOptions),
		middleware.AddUserAgentKeyValue("clusterpass", version.Get().Version))
	switch c := cfg.HTTPClient.(type) {
	case nil:
		cfg.HTTPClient = awshttp.NewBuildableClient().WithTimeout(attemptTimeout)
	case *awshttp.BuildableClient:
		cfg.HTTPClient = c.WithTimeout(attemptTimeout)
	}
	return cfg
}

// Pause returns the pause after attempt n. The first attempt is 1.
func Pause(n int) time.Duration {
	limit := min(firstPause<<min(n, 10), maxPause)
	return rand.N(limit) + limit/8 //nolint:gosec // no secret depends on it
}

// Sleep waits for d, or returns the error of ctx if it ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Fault is the meaning of an SDK error for a store.
type Fault int

// The faults.
const (
	Refused     Fault = iota // the request itself; see Code
	Forbidden                // the credentials or their permissions
	Throttled                // too many requests
	Unavailable              // AWS, the network or a timeout
)

var forbidden = map[string]bool{
	"AccessDenied": true, "AccessDeniedException": true, "UnrecognizedClientException": true, "InvalidClientTokenId": true,
	"InvalidSignatureException": true, "SignatureDoesNotMatch": true, "IncompleteSignature": true, "ExpiredToken": true,
	"ExpiredTokenException": true, "MissingAuthenticationToken": true, "MissingAuthenticationTokenException": true,
	"InvalidAccessKeyId": true, "NotAuthorized": true, "OptInRequired": true, "DecryptionFailure": true,
	"EncryptionFailure": true,
}

var throttles = retry.IsErrorThrottles(retry.DefaultThrottles)

// FaultOf classifies an error of the SDK, which must not be nil.
func FaultOf(err error) Fault {
	var (
		quota  ratelimit.QuotaExceededError
		api    smithy.APIError
		answer interface{ HTTPStatusCode() int }
	)
	status := 0
	if errors.As(err, &answer) {
		status = answer.HTTPStatusCode()
	}
	switch isAPI := errors.As(err, &api); {
	case status == http.StatusTooManyRequests, throttles.IsErrorThrottle(err) == aws.TrueTernary, errors.As(err, &quota):
		return Throttled
	case isAPI && forbidden[api.ErrorCode()]:
		return Forbidden
	case !isAPI, api.ErrorFault() == smithy.FaultServer, status >= http.StatusInternalServerError:
		return Unavailable
	}
	return Refused
}

// Code returns the code of an error response, or "".
func Code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// Discreet removes AWS's message, which may quote a secret in the request, from the error of a call. Code and FaultOf
// return the same for it.
func Discreet(err error) error {
	if code := Code(err); code != "" && FaultOf(err) == Refused {
		return wordless{code}
	}
	return err
}

type wordless struct{ code string }

var _ smithy.APIError = wordless{}

func (w wordless) Error() string               { return "AWS answers " + w.code }
func (w wordless) ErrorCode() string           { return w.code }
func (wordless) ErrorMessage() string          { return "" }
func (wordless) ErrorFault() smithy.ErrorFault { return smithy.FaultClient }

// RetryAfter returns the pause before a retry after fault f. 0 means that a retry is useless.
func (f Fault) RetryAfter() time.Duration {
	switch f {
	case Throttled:
		return 5 * time.Second
	case Unavailable:
		return 2 * time.Second
	}
	return 0
}
