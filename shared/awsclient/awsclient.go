// Package awsclient is how the stores on AWS call it: deadlines, retries, and what an error means.
//
// Every call ends within CallTimeout. An attempt that is throttled, or that the network or AWS lets down, is
// tried again a few times with growing, random pauses; a client whose calls fail more and more often stops
// retrying by itself (the SDK's retry quota), so that it does not make an outage worse.
package awsclient

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
)

const (
	// CallTimeout bounds one operation of a store with all attempts.
	CallTimeout = 10 * time.Second
	// attemptTimeout bounds one attempt: a connection may be dead without anybody saying so, as after a
	// function was frozen.
	attemptTimeout = 4 * time.Second
	attempts       = 6
	firstPause     = 50 * time.Millisecond
	maxPause       = time.Second
)

// Configure returns cfg with this package's retries, and its deadline for an attempt where the HTTP client is
// the SDK's own. (A client of another type breaks AWS_CA_BUNDLE when the configuration is loaded: leave it unset.)
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
	switch c := cfg.HTTPClient.(type) {
	case nil:
		cfg.HTTPClient = awshttp.NewBuildableClient().WithTimeout(attemptTimeout)
	case *awshttp.BuildableClient:
		cfg.HTTPClient = c.WithTimeout(attemptTimeout)
	}
	return cfg
}

// Pause is how long to wait before attempt n, which counts from 1, is followed by another.
func Pause(n int) time.Duration {
	limit := min(firstPause<<min(n, 10), maxPause)
	return rand.N(limit) + limit/8 //nolint:gosec // no secret depends on it
}

// Sleep waits for d, or for ctx to end, whose error it then returns.
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

// Fault is what an error of the SDK means to a store.
type Fault int

// The faults.
const (
	Refused     Fault = iota // the request, for a reason of its own: see Code
	Forbidden                // the credentials, or what they may do
	Throttled                // too many requests
	Unavailable              // AWS, the network or the time
)

var forbidden = map[string]bool{
	"AccessDenied": true, "AccessDeniedException": true, "UnrecognizedClientException": true, "InvalidClientTokenId": true,
	"InvalidSignatureException": true, "SignatureDoesNotMatch": true, "IncompleteSignature": true, "ExpiredToken": true,
	"ExpiredTokenException": true, "MissingAuthenticationToken": true, "MissingAuthenticationTokenException": true,
	"InvalidAccessKeyId": true, "NotAuthorized": true, "OptInRequired": true, "DecryptionFailure": true,
	"EncryptionFailure": true,
}

var throttles = retry.IsErrorThrottles(retry.DefaultThrottles)

// FaultOf classifies an error of the SDK that is not nil.
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

// Code is the code of an answer that is an error, or "".
func Code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// Discreet returns the error of a call that carried a secret, without the words of AWS, which may quote the
// request. Code and FaultOf say the same of it.
func Discreet(err error) error {
	if code := Code(err); code != "" && FaultOf(err) == Refused {
		return wordless{code}
	}
	return err
}

// wordless is a refusal of AWS of which only the code is known.
type wordless struct{ code string }

var _ smithy.APIError = wordless{}

func (w wordless) Error() string               { return "AWS answers " + w.code }
func (w wordless) ErrorCode() string           { return w.code }
func (wordless) ErrorMessage() string          { return "" }
func (wordless) ErrorFault() smithy.ErrorFault { return smithy.FaultClient }

// RetryAfter is when to try again after fault f; 0 means that it would not help.
func (f Fault) RetryAfter() time.Duration {
	switch f {
	case Throttled:
		return 5 * time.Second
	case Unavailable:
		return 2 * time.Second
	}
	return 0
}
