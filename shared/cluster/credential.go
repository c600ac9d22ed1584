package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/clusterpass/clusterpass/shared/eks"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
)

// Tokens returns bearer tokens for clusters on EKS; see eks.Source.
type Tokens interface {
	Token(ctx context.Context, spec eks.Spec) (string, error)
	// Refused reports a rejected token for spec. another reports whether Token will return another one.
	Refused(spec eks.Spec, token string) (another bool)
}

// Authorize replaces the Authorization header by the gateway's own credential, if it needs one. Errors are
// *status.Error (Misconfigured, StoreUnavailable or Timeout), or the context's after a cancelled request.
func (m *Member) Authorize(ctx context.Context, h http.Header) error {
	h.Del("Authorization")
	switch c := m.Credential; {
	case c.Token != "":
		h.Set("Authorization", "Bearer "+c.Token)
	case c.Username != "":
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password)))
	case c.EKS != nil:
		token, err := m.tokens.Token(ctx, *c.EKS)
		if err != nil {
			return m.tokenError(ctx, err)
		}
		h.Set("Authorization", "Bearer "+token)
	case c.Plugin != nil:
		token, err := m.pluginToken(ctx)
		if err != nil {
			return err
		}
		if token != "" {
			h.Set("Authorization", "Bearer "+token)
		}
	}
	return nil
}

func (m *Member) tokenError(ctx context.Context, err error) error {
	if ctxErr := context.Cause(ctx); errors.Is(ctxErr, context.Canceled) {
		return ctxErr
	}
	name := m.Cluster.Name
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &status.Error{Reason: status.Timeout, Cluster: name, Err: err,
			Message: fmt.Sprintf("cluster %q: AWS gave the gateway no token in time; try again", name)}
	case errors.Is(err, eks.ErrUnavailable):
		return &status.Error{Reason: status.StoreUnavailable, Cluster: name, Err: err, RetryAfter: 2 * time.Second,
			Message: fmt.Sprintf("cluster %q: AWS gives the gateway no token now; try again", name)}
	default:
		return misconfigured(name, "AWS gives the gateway no token for it; the gateway's log has the reason", err)
	}
}

// Call sends a small request with the gateway's own credential. in, if not nil, and out are JSON. Errors contain no
// credential. An unsuccessful response is a *CallError.
func (m *Member) Call(ctx context.Context, method, path string, in, out any) error {
	_, err := m.call(ctx, method, path, in, out)
	return err
}

func (m *Member) call(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	u := m.Server.JoinPath(path)
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", version.UserAgent())
	if err := m.Authorize(ctx, req.Header); err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			return nil, fmt.Errorf("%w: %w", err, cause) // the reader of this error is the operator
		}
		return nil, err
	}
	resp, err := m.transportOf(ctx).RoundTrip(req)
	if err != nil {
		return req.Header, fmt.Errorf("%s: %w", endpoint(u), err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 200 { // the body of a switched connection does not end with the context
		return req.Header, &CallError{Endpoint: endpoint(u), Code: resp.StatusCode}
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return req.Header, fmt.Errorf("%s: %w", endpoint(u), err)
	case resp.StatusCode >= 300:
		return req.Header, &CallError{Endpoint: endpoint(u), Code: resp.StatusCode,
			Answer: statusMessage(data, m.redactor(req.Header))}
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, out); err != nil {
		return req.Header, fmt.Errorf("%s is not a Kubernetes API server: %w", endpoint(u), err)
	}
	return req.Header, nil
}

// statusMessage returns a Status' message, redacted and shortened. Its author may be a proxy that quotes the request.
func statusMessage(answer []byte, redactor *strings.Replacer) string {
	var st metav1.Status
	if kjson.UnmarshalCaseSensitivePreserveInts(answer, &st) != nil || st.Kind != "Status" {
		return ""
	}
	text := redactor.Replace(st.Message)
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

const maxMessage = 400

func (m *Member) redactor(sent http.Header) *strings.Replacer {
	_, credential, _ := strings.Cut(sent.Get("Authorization"), " ")
	var pairs []string
	for _, secret := range []string{credential, m.Credential.Password} {
		if secret != "" {
			pairs = append(pairs, secret, "[hidden]")
		}
	}
	return strings.NewReplacer(pairs...)
}

// WhoAmI returns the gateway's user in the member. Before Kubernetes 1.28 the error is a *CallError with code 404.
func (m *Member) WhoAmI(ctx context.Context) (user string, err error) {
	var review struct {
		metav1.TypeMeta `json:",inline"`
		Status          struct {
			UserInfo struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	review.APIVersion, review.Kind = "authentication.k8s.io/v1", "SelfSubjectReview"
	if err := m.Call(ctx, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review,
		&review); err != nil {
		return "", fmt.Errorf("check the identity of the credential: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

func endpoint(u *url.URL) string { return u.Scheme + "://" + u.Host }

// CallError is an unsuccessful response of a member to Call.
type CallError struct {
	Endpoint string // scheme and host
	Code     int    // HTTP status
	Answer   string // the redacted message of a Status, or ""
}

func (e *CallError) Error() string {
	if e.Code == http.StatusUnauthorized {
		return e.Endpoint + " refuses the credential (401)"
	}
	text := fmt.Sprintf("%s answers %d %s", e.Endpoint, e.Code, http.StatusText(e.Code))
	if e.Answer != "" {
		text += ": " + e.Answer
	}
	return text
}
