package awsclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/clusterpass/clusterpass/shared/version"
)

func call(ctx context.Context, t *testing.T, handler http.HandlerFunc) error {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client has gone
		handler(w, r)
	}))
	defer srv.Close()
	client := secretsmanager.NewFromConfig(Configure(aws.Config{
		HTTPClient: srv.Client(), // without a deadline for each attempt, so that a slow machine makes no second one
		Region:     "eu-central-1", BaseEndpoint: aws.String(srv.URL),
		Credentials: credentials.NewStaticCredentialsProvider("AKIAIOSFODNN7EXAMPLE", "secret", ""),
	}))
	_, err := client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: aws.String("a")})
	return err
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		status       int
		code         string
		want         Fault
		wantAttempts int32
		wantAfter    bool
	}{
		{400, "ThrottlingException", Throttled, attempts, true},
		{400, "TooManyRequestsException", Throttled, attempts, true},
		{429, "Whatever", Throttled, 1, true},
		{500, "InternalServiceError", Unavailable, attempts, true},
		{503, "", Unavailable, attempts, true},
		{400, "AccessDeniedException", Forbidden, 1, false},
		{403, "ExpiredTokenException", Forbidden, 1, false},
		{400, "UnrecognizedClientException", Forbidden, 1, false},
		{400, "DecryptionFailure", Forbidden, 1, false},
		{400, "ResourceNotFoundException", Refused, 1, false},
		{400, "ValidationException", Refused, 1, false},
	} {
		t.Run(fmt.Sprint(tt.status, " ", tt.code), func(t *testing.T) {
			var n atomic.Int32
			err := call(t.Context(), t, func(w http.ResponseWriter, _ *http.Request) {
				n.Add(1)
				w.WriteHeader(tt.status)
				fmt.Fprintf(w, `{"__type":%q,"message":"words"}`, tt.code)
			})
			if err == nil {
				t.Fatal("no error")
			}
			f := FaultOf(err)
			if f != tt.want || n.Load() != tt.wantAttempts || (f.RetryAfter() > 0) != tt.wantAfter {
				t.Errorf("%v: fault %d after %d attempts, again after %v; want %d after %d", err, f, n.Load(), f.RetryAfter(),
					tt.want, tt.wantAttempts)
			}
			if quotes := strings.Contains(Discreet(err).Error(), "words"); quotes != (tt.want != Refused) {
				t.Errorf("discreet: %v", Discreet(err))
			}
			if d := Discreet(err); FaultOf(d) != f || Code(d) != Code(err) {
				t.Errorf("discreet: fault %d, code %q; want %d, %q", FaultOf(d), Code(d), f, Code(err))
			}
		})
	}
}

// TestUserAgent fails if an operator cannot see in CloudTrail which version of the gateway has read a secret.
func TestUserAgent(t *testing.T) {
	var agent string
	_ = call(t.Context(), t, func(w http.ResponseWriter, r *http.Request) {
		agent = r.UserAgent()
		w.WriteHeader(http.StatusBadRequest)
	})
	if want := "clusterpass/" + version.Get().Version; !strings.Contains(agent, want) {
		t.Errorf("the User-Agent is %q, want %q in it", agent, want)
	}
}

func TestNoAnswer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := call(ctx, t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if FaultOf(err) != Unavailable || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hanging: %v", err)
	}
	var n atomic.Int32
	err = call(t.Context(), t, func(http.ResponseWriter, *http.Request) {
		n.Add(1)
		panic(http.ErrAbortHandler)
	})
	if FaultOf(err) != Unavailable || n.Load() != attempts {
		t.Errorf("cut off: %v after %d attempts", err, n.Load())
	}
}

func TestPause(t *testing.T) {
	for n := 1; n < 100; n++ {
		if p := Pause(n); p <= 0 || p > maxPause+maxPause/8 {
			t.Errorf("pause %d is %v", n, p)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("sleep: %v", err)
	}
}
