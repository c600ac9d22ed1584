// Package status is the gateway's only form of error: a metav1.Status for the client, with a Reason that is also in log
// and metrics. The message is sent to the client. It must explain what to do next and must not contain a secret.
// Details for operators belong in Error.Err.
package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Reason is why the gateway failed a request. Status (details.causes), log and metrics contain the same value.
type Reason string

// The reasons.
const (
	BadRequest        Reason = "bad_request"        // 400: invalid URL or header
	Unauthenticated   Reason = "unauthenticated"    // 401: no accepted credential
	Forbidden         Reason = "forbidden"          // 403: identified, not allowed
	CannotImpersonate Reason = "cannot_impersonate" // 403: the member does not let the gateway impersonate the caller
	UnknownCluster    Reason = "unknown_cluster"    // 404: no cluster of that name
	UnknownPath       Reason = "unknown_path"       // 404: the gateway does not serve this path
	RequestTimeout    Reason = "request_timeout"    // 408: the body did not arrive in time
	TooLarge          Reason = "too_large"          // 413: the body exceeds the limit of this endpoint
	Misconfigured     Reason = "misconfigured"      // 502: the cluster's object or secret is unusable
	Unreachable       Reason = "unreachable"        // 502: no connection to the member
	CredentialRefused Reason = "credential_refused" // 502: the member answered 401 to the gateway's credential
	BadRedirect       Reason = "bad_redirect"       // 502: the member redirects to another host
	Aborted           Reason = "aborted"            // 502: the member's response was cut off
	CircuitOpen       Reason = "circuit_open"       // 503: the member failed recently and is not called for a while
	StoreUnavailable  Reason = "store_unavailable"  // 503: secrets or objects are unavailable
	IssuerUnavailable Reason = "issuer_unavailable" // 503: the issuer of a token is unavailable
	AuditUnavailable  Reason = "audit_unavailable"  // 503: the gateway fails closed, and cannot record the audit event
	Unrecorded        Reason = "recording_failed"   // 503: a session must be recorded, and cannot be
	TooManyRequests   Reason = "too_many_requests"  // 429
	Timeout           Reason = "timeout"            // 504: the member or a store was too slow
	Redirected        Reason = "redirected"         // 307, 303: the bridge serves this request
	Internal          Reason = "internal"           // 500: an error of the gateway
	Draining          Reason = "draining"           // 503: this bridge is shutting down
	IdleTimeout       Reason = "idle_timeout"       // 504: a stream was idle for too long
	SessionTimeout    Reason = "session_timeout"    // 504: a stream reached its maximum duration
	Stalled           Reason = "stalled"            // 504: the client of a stream did not read
	NotGlobal         Reason = "not_global"         // 404: no ResourceRegistry covers the kind
	Ambiguous         Reason = "ambiguous"          // 409: several clusters have an object of that name
	// 422: the cluster of an object is undefined, or it refers to objects of another cluster
	NoPlacement      Reason = "no_placement"
	Expired          Reason = "expired"           // 410: the requested history is gone
	NotAcceptable    Reason = "not_acceptable"    // 406: no form that the client accepts is available
	UnsupportedMedia Reason = "unsupported_media" // 415: the form of the body is not supported
	NotAllowed       Reason = "not_allowed"       // 405: the fleet does not support the request
	MembersFailed    Reason = "members_failed"    // 502: no cluster responded, or a required one did not
	MembersRefused   Reason = "members_refused"   // 4xx: every cluster refused for the same reason
)

var classes = map[Reason]struct {
	code int
	kube metav1.StatusReason
}{
	BadRequest:        {http.StatusBadRequest, metav1.StatusReasonBadRequest},
	Unauthenticated:   {http.StatusUnauthorized, metav1.StatusReasonUnauthorized},
	Forbidden:         {http.StatusForbidden, metav1.StatusReasonForbidden},
	CannotImpersonate: {http.StatusForbidden, metav1.StatusReasonForbidden},
	UnknownCluster:    {http.StatusNotFound, metav1.StatusReasonNotFound},
	UnknownPath:       {http.StatusNotFound, metav1.StatusReasonNotFound},
	RequestTimeout:    {http.StatusRequestTimeout, metav1.StatusReasonTimeout},
	TooLarge:          {http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge},
	Misconfigured:     {http.StatusBadGateway, metav1.StatusReasonInternalError},
	Unreachable:       {http.StatusBadGateway, metav1.StatusReasonServiceUnavailable},
	CredentialRefused: {http.StatusBadGateway, metav1.StatusReasonInternalError},
	BadRedirect:       {http.StatusBadGateway, metav1.StatusReasonInternalError},
	Aborted:           {http.StatusBadGateway, metav1.StatusReasonServiceUnavailable},
	CircuitOpen:       {http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
	StoreUnavailable:  {http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
	IssuerUnavailable: {http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
	AuditUnavailable:  {http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
	Unrecorded:        {http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
	TooManyRequests:   {http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests},
	Timeout:           {http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
	Redirected:        {http.StatusTemporaryRedirect, metav1.StatusReasonUnknown},
	Internal:          {http.StatusInternalServerError, metav1.StatusReasonInternalError},
	Draining:          {http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
	IdleTimeout:       {http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
	SessionTimeout:    {http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
	Stalled:           {http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
	NotGlobal:         {http.StatusNotFound, metav1.StatusReasonNotFound},
	Ambiguous:         {http.StatusConflict, metav1.StatusReasonConflict},
	NoPlacement:       {http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
	Expired:           {http.StatusGone, metav1.StatusReasonExpired},
	NotAcceptable:     {http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable},
	UnsupportedMedia:  {http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType},
	NotAllowed:        {http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed},
	MembersFailed:     {http.StatusBadGateway, metav1.StatusReasonServiceUnavailable},
	MembersRefused:    {http.StatusBadRequest, metav1.StatusReasonBadRequest},
}

// Error is a failed request.
type Error struct {
	Reason  Reason
	Message string // for the client
	Cluster string // the affected member cluster, or ""
	// RetryAfter is sent as Retry-After if it is not zero, in whole seconds and at least 1.
	RetryAfter time.Duration
	Err        error // for the operator; never shown to the client
	// As replaces the code and reason of the Status, if all members returned the same ones. Optional.
	As *metav1.Status
}

// New formats the message as fmt.Errorf does, and keeps a wrapped error. Wrap only errors that the client may read.
func New(reason Reason, cluster, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Reason: reason, Cluster: cluster, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Error returns the message for the client.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the error for operators.
func (e *Error) Unwrap() error { return e.Err }

// MessageOf returns the message of an encoded Status, or "" if body is none.
func MessageOf(body []byte) string {
	var st struct{ Kind, Message string }
	if json.Unmarshal(body, &st) != nil || st.Kind != "Status" {
		return ""
	}
	return st.Message
}

// Code returns the HTTP status code.
func (e *Error) Code() int {
	if e.As != nil {
		return int(e.As.Code)
	}
	return classes[e.Reason].code
}

// Kubernetes returns the reason that Kubernetes clients know.
func (e *Error) Kubernetes() metav1.StatusReason {
	if e.As != nil {
		return e.As.Reason
	}
	return classes[e.Reason].kube
}

// From returns err if it is an *Error. Any other error becomes Internal, with a message that hides it.
func From(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Reason: Internal, Message: "the gateway failed to handle the call; its log has the cause", Err: err}
}

// Write sends err as a metav1.Status in JSON, which every Kubernetes client can read. It returns the Error for the log.
func Write(w http.ResponseWriter, err error) *Error {
	e := From(err)
	WriteCode(w, e, e.Code())
	return e
}

// WriteCode is like Write with another status code than the reason's own, e.g. 303 instead of 307.
func WriteCode(w http.ResponseWriter, e *Error, code int) {
	st := e.Status()
	st.Code = int32(code)
	if secs := st.Details.RetryAfterSeconds; secs > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(secs)))
	}
	write(w, code, &st)
}

// maxWarning is the maximum size in bytes of a Warning. Load balancers refuse large headers.
const maxWarning = 2 << 10

func shorten(text string) string {
	if len(text) <= maxWarning {
		return text
	}
	return strings.ToValidUTF8(text[:maxWarning], "") + "..."
}

// maxTextRetry is the longest Retry-After of WriteText. client-go waits that long up to ten times for each of the six
// requests with which kubectl begins, and prints nothing meanwhile.
const maxTextRetry = time.Second

// WriteText is like Write for clients that show no Status, such as client-go's discovery. That shows the text of a 403
// and of a 5xx other than 503 and 504. So WriteText sends such codes as text, and 502 in place of 503 and 504. For all
// other codes client-go has a text of its own, so WriteText adds a Warning, which kubectl prints. Elsewhere a Warning
// would repeat the message.
func WriteText(w http.ResponseWriter, err error) *Error {
	e := From(err)
	code := e.Code()
	switch {
	case code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout:
		code = http.StatusBadGateway
	case code != http.StatusForbidden && code < http.StatusInternalServerError:
		v, invalid := utilnet.NewWarningHeader(299, "clusterpass", shorten(e.Message))
		if invalid == nil && code >= http.StatusBadRequest {
			w.Header().Set("Warning", v)
		}
		return Write(w, e)
	}
	if e.RetryAfter > 0 && e.RetryAfter <= maxTextRetry {
		w.Header().Set("Retry-After", "1")
	}
	send(w, code, "text/plain; charset=utf-8", []byte(e.Message))
	return e
}

// Status returns the error as a metav1.Status. It implements apimachinery's errors.APIStatus.
func (e *Error) Status() metav1.Status {
	st := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Code:     int32(e.Code()),
		Reason:   e.Kubernetes(),
		Message:  e.Message,
		Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: metav1.CauseType(e.Reason), Message: string(e.Reason)}},
		},
	}
	if st.Reason == metav1.StatusReasonInvalid { // kubectl shows only the causes of Invalid
		st.Details.Causes[0].Field, st.Details.Causes[0].Message = "metadata", e.Message
	}
	if e.Cluster != "" {
		st.Details.Group, st.Details.Kind, st.Details.Name = "cluster.karmada.io", "clusters", e.Cluster
	}
	if e.RetryAfter > 0 {
		st.Details.RetryAfterSeconds = max(1, int32((e.RetryAfter+time.Second-1)/time.Second))
	}
	return st
}

// WriteSuccess sends a Status of success with the message and details of st.
func WriteSuccess(w http.ResponseWriter, code int, st metav1.Status) {
	st.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	st.Status, st.Code = metav1.StatusSuccess, int32(code)
	write(w, code, &st)
}

func write(w http.ResponseWriter, code int, st *metav1.Status) {
	body, err := json.Marshal(st)
	if err != nil {
		panic(err) // a Status always marshals
	}
	send(w, code, "application/json", body)
}

func send(w http.ResponseWriter, code int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	h.Del("Content-Encoding")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}
