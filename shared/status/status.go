// Package status is the gateway's one form of error: a metav1.Status for the client, a Reason for log
// and metric.
//
// Every error that the gateway itself makes is an *Error. Its message goes to the client as it stands, so it
// never holds a secret and says what to do next; what only an operator should see is the wrapped Err.
package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Reason says why the gateway failed a call. The same word stands in the Status (details.causes), the log
// and the metric.
type Reason string

// The reasons.
const (
	BadRequest        Reason = "bad_request"        // 400: the URL or a header cannot be understood
	Unauthenticated   Reason = "unauthenticated"    // 401: no accepted credential
	Forbidden         Reason = "forbidden"          // 403: identified, not allowed
	UnknownCluster    Reason = "unknown_cluster"    // 404: no cluster of that name
	UnknownPath       Reason = "unknown_path"       // 404: the gateway serves nothing there
	RequestTimeout    Reason = "request_timeout"    // 408: a body that did not arrive in time
	TooLarge          Reason = "too_large"          // 413: a body beyond what this door takes
	Misconfigured     Reason = "misconfigured"      // 502: the cluster's object or secret cannot be used
	Unreachable       Reason = "unreachable"        // 502: no connection to the member
	CredentialRefused Reason = "credential_refused" // 502: the member answered 401 to the gateway's credential
	BadRedirect       Reason = "bad_redirect"       // 502: the member redirects to a foreign host
	Aborted           Reason = "aborted"            // 502: the member's answer broke off before it could be sent
	CircuitOpen       Reason = "circuit_open"       // 503: the member did not answer lately, and is not called for a while
	StoreUnavailable  Reason = "store_unavailable"  // 503: secrets or objects cannot be read
	IssuerUnavailable Reason = "issuer_unavailable" // 503: who issued a token cannot be asked whether it holds
	AuditUnavailable  Reason = "audit_unavailable"  // 503: the gateway fails closed, and cannot record the audit event
	TooManyRequests   Reason = "too_many_requests"  // 429
	Timeout           Reason = "timeout"            // 504: the member or a store took too long
	Redirected        Reason = "redirected"         // 307, 303: the bridge has the answer
	Internal          Reason = "internal"           // 500: a fault of the gateway
	Draining          Reason = "draining"           // 503: this bridge is shutting down
	IdleTimeout       Reason = "idle_timeout"       // 504: a stream that was silent for too long
	SessionTimeout    Reason = "session_timeout"    // 504: a stream that was open for too long
	Stalled           Reason = "stalled"            // 504: the client of a stream took nothing for too long
	NotGlobal         Reason = "not_global"         // 404: no ResourceRegistry takes the kind in
	Ambiguous         Reason = "ambiguous"          // 409: several clusters have an object of that name
	NoPlacement       Reason = "no_placement"       // 422: nothing says in which cluster an object is to be made, or its owners are in another
	Expired           Reason = "expired"            // 410: the history that is asked for is gone
	NotAcceptable     Reason = "not_acceptable"     // 406: the client takes no form that can be answered
	UnsupportedMedia  Reason = "unsupported_media"  // 415: a body in a form that cannot be read
	NotAllowed        Reason = "not_allowed"        // 405: the fleet has no such call
	MembersFailed     Reason = "members_failed"     // 502: no cluster answered, or not all of those that must
	MembersRefused    Reason = "members_refused"    // 4xx: every cluster refused, for the same reason
)

var classes = map[Reason]struct {
	code int
	kube metav1.StatusReason
}{
	BadRequest:        {http.StatusBadRequest, metav1.StatusReasonBadRequest},
	Unauthenticated:   {http.StatusUnauthorized, metav1.StatusReasonUnauthorized},
	Forbidden:         {http.StatusForbidden, metav1.StatusReasonForbidden},
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

// warned are the reasons whose message goes into a Warning header too: kubectl's discovery shows a Status to nobody, but every
// warning.
var warned = map[Reason]bool{
	Unauthenticated: true, Forbidden: true, UnknownCluster: true, Misconfigured: true, Unreachable: true,
	CredentialRefused: true, StoreUnavailable: true, IssuerUnavailable: true,
	AuditUnavailable: true, Timeout: true, CircuitOpen: true,
}

// Error is a failed call.
type Error struct {
	Reason  Reason
	Message string // for the client
	Cluster string // the member cluster concerned, if any
	// RetryAfter, if not zero, becomes a Retry-After header (whole seconds, at least 1).
	RetryAfter time.Duration
	Err        error // for the operator; never shown to the client
	// As, if not nil, gives code and reason of the Status in place of the Reason's own: those of members that all said the same.
	As *metav1.Status
}

// New returns an Error whose message is formatted as fmt.Errorf does, keeping a wrapped error for the log. The
// wrapped error's text is part of the message: wrap only what the client may read.
func New(reason Reason, cluster, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Reason: reason, Cluster: cluster, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Error implements error with the message that the client sees.
func (e *Error) Error() string { return e.Message }

// Unwrap gives the operator's error.
func (e *Error) Unwrap() error { return e.Err }

// Code is the HTTP status code.
func (e *Error) Code() int {
	if e.As != nil {
		return int(e.As.Code)
	}
	return classes[e.Reason].code
}

// Kubernetes is the reason as Kubernetes' clients know it.
func (e *Error) Kubernetes() metav1.StatusReason {
	if e.As != nil {
		return e.As.Reason
	}
	return classes[e.Reason].kube
}

// From returns err as an *Error; any other error becomes Internal, with a message that hides it.
func From(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Reason: Internal, Message: "the gateway failed to handle the call; its log has the cause", Err: err}
}

// Write answers with err as a metav1.Status in JSON, which every Kubernetes client reads whatever it asked for.
// It returns the Error that it wrote, for the log.
func Write(w http.ResponseWriter, err error) *Error {
	e := From(err)
	WriteCode(w, e, e.Code())
	return e
}

// WriteCode is Write with another status code than the reason's own, such as 303 instead of 307.
func WriteCode(w http.ResponseWriter, e *Error, code int) {
	st := e.Status()
	st.Code = int32(code)
	h := w.Header()
	if warned[e.Reason] {
		if v, err := utilnet.NewWarningHeader(299, "clusterpass", e.Message); err == nil {
			h.Set("Warning", v)
		}
	}
	if secs := st.Details.RetryAfterSeconds; secs > 0 {
		h.Set("Retry-After", strconv.Itoa(int(secs)))
	}
	write(w, code, &st)
}

// Status is the error as Kubernetes' clients read it, and as apimachinery's errors.APIStatus has it.
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
	if st.Reason == metav1.StatusReasonInvalid { // of which kubectl shows the causes only
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

// WriteSuccess answers with a Status of success and st's message and details.
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
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	h.Del("Content-Encoding")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}
