// Package audit records every request as an Event of audit.k8s.io/v1. A stream has one event when it opens and one
// when it ends. Read [Log], [Request] and [Sink] in this order.
//
// Invariants:
//   - An event contains no credential and no body. Only the headers that this package names are read.
//   - A client's text is of bounded length and stays inside of its JSON string.
//   - A client that is not identified cannot choose how much is written: its texts are short, and beyond a rate one
//     event counts many. Events of identified clients are never combined.
//   - No event is lost in silence. An event that no sink accepts is counted ([Stats]), and the log reports it.
//
// docs/explanation/security.md has the threats, and docs/guide/audit.md is for operators.
package audit

import (
	"context"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

const (
	// IDHeader is the header with an event's id, in requests and responses, as kube-apiserver has it.
	IDHeader = "Audit-Id"

	// Methods of authentication that change how events are written.
	methodFrontProxy  = "front-proxy"
	methodPassthrough = "passthrough"

	maxID    = 64
	maxURI   = 16 << 10
	maxAgent = 1 << 10
	maxIPs   = 16
	maxText  = 2 << 10
)

// Request records one request. Its methods are not safe for concurrent use. The methods of a nil Request do nothing.
type Request struct {
	log       *Log
	event     Event
	began     time.Time
	offeredID string // the client's IDHeader; "" if it is no valid id
	method    string // of authentication; "" for a client that is not identified
	sent      int64
	received  int64
	started   bool
	reserved  bool // Admit accepted it, so that its events always have a place
	refused   bool // Admit refused it, so that it has no events
}

// Begin starts the record of r, which arrived now. It writes nothing yet. A nil Log begins a nil Request.
func (l *Log) Begin(r *http.Request) *Request {
	if l == nil {
		return nil
	}
	now := l.now()
	return &Request{log: l, began: now, offeredID: validID(r.Header.Get(IDHeader)), event: Event{
		Kind: "Event", APIVersion: "audit.k8s.io/v1", Level: "Metadata", AuditID: uuid.NewString(),
		RequestURI: cut(uri(r), maxURI), Verb: strings.ToLower(cut(r.Method, maxID)), SourceIPs: Sources(r),
		UserAgent: cut(r.UserAgent(), maxAgent), RequestReceivedTimestamp: metav1.NewMicroTime(now),
		Annotations: map[string]string{},
	}}
}

// ID returns the event's id, which only User changes. It is "" for a nil Request.
func (q *Request) ID() string {
	if q == nil {
		return ""
	}
	return q.event.AuditID
}

// Admit reserves a place for the request's events. With Config.FailClosed it returns a *status.Error with reason
// AuditUnavailable if there is none: the request must not go on, and has no event then.
func (q *Request) Admit(ctx context.Context) error {
	if q == nil {
		return nil
	}
	reserved, err := q.log.admit(ctx)
	q.reserved, q.refused = reserved, err != nil
	return err
}

// User records who calls, and the method that identified them. The id that a front proxy sent becomes the event's:
// everybody else could choose the id of an event that exists.
func (q *Request) User(u User, method string) {
	if q == nil {
		return
	}
	q.event.User, q.method = u, method
	q.annotate(MethodAnnotation, method)
	if method == methodFrontProxy && q.offeredID != "" {
		q.event.AuditID = q.offeredID
	}
}

// Unverified records a caller that only the member can identify, by what the token claims.
func (q *Request) Unverified(t Token) {
	if q == nil {
		return
	}
	q.User(User{}, methodPassthrough)
	q.annotate(TokenHashAnnotation, t.Hash)
	q.annotate(TokenIssuerAnnotation, cut(t.Issuer, maxClaim))
	q.annotate(TokenSubjectAnnotation, cut(t.Subject, maxClaim))
	q.annotate(TokenIDAnnotation, cut(t.ID, maxClaim))
}

// As records the user that the caller acts as.
func (q *Request) As(u User) {
	if q != nil {
		q.event.ImpersonatedUser = &u
	}
}

// Target records the resource that the request addresses, and its cluster: "" where there is none.
func (q *Request) Target(cluster string, res route.Resource) {
	if q == nil {
		return
	}
	q.annotate(ClusterAnnotation, cluster)
	q.event.Verb = cut(res.Verb, maxID)
	q.event.ObjectRef = nil
	if res.IsResource {
		q.event.ObjectRef = &Object{
			Resource: cut(res.Resource, maxText), Namespace: cut(res.Namespace, maxText), Name: cut(res.Name, maxText),
			APIGroup: cut(res.APIGroup, maxText), APIVersion: cut(res.APIVersion, maxText),
			Subresource: cut(res.Subresource, maxText),
		}
	}
}

// Reached records the clusters, separated by commas, in which a request to several found or changed objects. Target
// must precede it.
func (q *Request) Reached(clusters string) {
	if q != nil {
		q.annotate(ClusterAnnotation, clusters)
	}
}

// Created records the name of the object that a create request made. Its URL does not contain the name. Target must
// precede it.
func (q *Request) Created(name string) {
	if q != nil && q.event.ObjectRef != nil && q.event.ObjectRef.Name == "" {
		q.event.ObjectRef.Name = cut(name, maxText)
	}
}

// Decision records whether the request was allowed, and why.
func (q *Request) Decision(allowed bool, reason string) {
	if q == nil {
		return
	}
	decision := "forbid"
	if allowed {
		decision = "allow"
	}
	q.annotate(DecisionAnnotation, decision)
	q.annotate(ReasonAnnotation, reason)
}

// Bytes records how many bytes of bodies were sent to the client and received from it so far.
func (q *Request) Bytes(sent, received int64) {
	if q != nil {
		q.sent, q.received = sent, received
	}
}

// Started writes that a stream is open. A second call does nothing.
func (q *Request) Started(code int) {
	if q == nil || q.started || q.method == methodPassthrough && code == http.StatusUnauthorized {
		return // a member that does not accept the token opens no stream
	}
	q.started = true
	q.write(ResponseStarted, Status{Code: code}, true)
}

// Completed writes that the request is over. failed is the gateway's own error, or nil.
func (q *Request) Completed(code int, failed *status.Error) {
	if q != nil {
		q.write(ResponseComplete, q.result(code, failed), q.isIdentified(code, failed))
	}
}

// Panicked writes, in place of Completed, that the gateway broke.
func (q *Request) Panicked() {
	if q != nil {
		q.write(Panic, Status{
			Status: metav1.StatusFailure, Reason: string(metav1.StatusReasonInternalError),
			Code: http.StatusInternalServerError,
		}, true)
	}
}

// isIdentified reports whether the gateway knows the caller, or a member accepted the token.
func (q *Request) isIdentified(code int, failed *status.Error) bool {
	if q.method != methodPassthrough {
		return q.method != ""
	}
	byMember := failed == nil || failed.Code() != code
	return q.started || byMember && code != http.StatusUnauthorized
}

func (q *Request) result(code int, failed *status.Error) Status {
	s := Status{Code: code}
	if failed != nil {
		q.annotate(FailureAnnotation, string(failed.Reason))
		if failed.Reason == status.Forbidden && q.event.Annotations[DecisionAnnotation] != "forbid" {
			q.Decision(false, failed.Message) // a decision so far was not enough
		}
		s.Status, s.Message = metav1.StatusFailure, cut(failed.Message, maxText)
	}
	return s
}

func (q *Request) annotate(key, value string) {
	delete(q.event.Annotations, key)
	if value != "" {
		q.event.Annotations[key] = cut(value, maxText)
	}
}

func (q *Request) write(stage Stage, s Status, isIdentified bool) {
	if q.refused {
		return
	}
	now := q.log.now()
	e := q.event
	e.Stage, e.ResponseStatus, e.StageTimestamp = stage, &s, metav1.NewMicroTime(now)
	e.Annotations = maps.Clone(e.Annotations)
	if stage != ResponseStarted {
		e.Annotations[DurationAnnotation] = now.Sub(q.began).String()
		e.Annotations[SentAnnotation] = strconv.FormatInt(q.sent, 10)
		e.Annotations[ReceivedAnnotation] = strconv.FormatInt(q.received, 10)
	}
	q.log.write(&e, isIdentified, q.reserved)
}

// uri returns the URI as it was sent, without the password that an absolute URI may contain.
func uri(r *http.Request) string {
	if !strings.HasPrefix(r.RequestURI, "/") && r.URL != nil && r.URL.User != nil {
		return r.URL.Redacted()
	}
	return r.RequestURI
}

// validID returns v if it can be an event's id, and "" otherwise.
func validID(v string) string {
	if len(v) > maxID || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return v
}

// Sources returns the addresses by which a request came, as kube-apiserver has them. The last one is that of the
// connection. Those before it are claims of proxies, or of the client.
func Sources(r *http.Request) []string {
	var out []string
	add := func(s string) {
		if ip := net.ParseIP(strings.TrimSpace(s)); ip != nil && (len(out) == 0 || out[len(out)-1] != ip.String()) {
			out = append(out, ip.String())
		}
	}
	for _, line := range r.Header["X-Forwarded-For"] {
		for s := range strings.SplitSeq(line, ",") {
			add(s)
		}
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	add(host)
	if len(out) > maxIPs {
		out = out[len(out)-maxIPs:] // the last are of proxies that are known
	}
	return out
}

// cut returns at most limit bytes of s, as valid UTF-8. A run of invalid bytes becomes one U+FFFD: JSON would escape
// each of them with six bytes.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:limit], "\uFFFD") + "…"
}
