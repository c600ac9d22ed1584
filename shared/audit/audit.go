// Package audit records every request as an Event of audit.k8s.io/v1, and streams also when they open. Read [Log],
// [Request] and [Sink] in this order.
//
//   - An event contains no credential and no body. Only the headers that this package names are read.
//   - A client's text has a bounded length and is escaped in a JSON string.
//   - Unidentified clients cannot fill the log: their texts are short, and beyond a rate one event represents many.
//   - An event that cannot be delivered is counted ([Stats]) and logged.
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

	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

const (
	// IDHeader is the header with an event's id in requests and responses, as in kube-apiserver.
	IDHeader = "Audit-Id"

	methodFrontProxy  = "front-proxy"
	methodPassthrough = "passthrough"

	maxID    = 64
	maxURI   = 16 << 10
	maxAgent = 1 << 10
	maxIPs   = 16
	maxText  = 2 << 10
	maxUser  = 16 << 10 // bytes of a user's texts
)

// Request records one request. Its methods are not safe for concurrent use. The methods of a nil Request do nothing.
type Request struct {
	log       *Log
	event     Event
	began     time.Time
	offeredID string    // the client's IDHeader; "" if it is not a valid id
	method    string    // of authentication; "" for an unidentified client
	deadline  time.Time // of deliveries without a queue; zero for none
	sent      int64
	received  int64
	started   bool
	admitted  bool // Admit accepted it
	reserved  bool // FailClosed is set and not overridden, so its events are queued even if the queue is full
	refused   bool // Admit or AdmitCaller refused it, so it has no events
}

// Begin returns the record of r, which arrived now. It does not write an event. A nil Log returns a nil Request.
func (l *Log) Begin(r *http.Request) *Request {
	if l == nil {
		return nil
	}
	now := l.now()
	q := &Request{
		log: l, began: now, offeredID: validID(r.Header.Get(IDHeader)), reserved: l.cfg.FailClosed,
		deadline: deadlineFrom(r.Context()),
	}
	q.event = Event{
		Kind: "Event", APIVersion: "audit.k8s.io/v1", Level: "Metadata", AuditID: uuid.NewString(),
		RequestURI: cut(uri(r), maxURI), Verb: strings.ToLower(cut(r.Method, maxID)), SourceIPs: Sources(r),
		UserAgent: cut(r.UserAgent(), maxAgent), RequestReceivedTimestamp: metav1.NewMicroTime(now),
		Annotations: map[string]string{},
	}
	return q
}

// ID returns the event's id, which only User changes. It is "" for a nil Request.
func (q *Request) ID() string {
	if q == nil {
		return ""
	}
	return q.event.AuditID
}

// Admit returns a *status.Error with reason AuditUnavailable if Config.FailClosed is set and the queue is full. The
// request must then be refused, and has no further events.
//
// Without a queue, a sink that has accepted no event yet gets one of stage RequestReceived. If it does not accept that
// event either, the request is refused.
func (q *Request) Admit(ctx context.Context) error {
	if q == nil {
		return nil
	}
	q.log.proveSinks(q.event, q.deadline)
	err := q.admit(ctx, "")
	q.admitted = err == nil
	return err
}

// AdmitCaller returns the same error as Admit if the caller's own events occupy a quarter of the queue. Call it after
// User or Unverified. It admits every request without a call of Admit, such as a health check.
func (q *Request) AdmitCaller(ctx context.Context) error {
	if q == nil || !q.admitted || !q.reserved {
		return nil
	}
	return q.admit(ctx, q.event.caller())
}

func (q *Request) admit(ctx context.Context, caller string) error {
	reserved, err := q.log.admit(ctx, caller)
	q.reserved, q.refused = reserved, err != nil
	return err
}

// User records the caller and the method of authentication. Only a front proxy can choose the event's id. Any other
// client could choose the id of another's event.
func (q *Request) User(u User, method string) {
	if q == nil {
		return
	}
	q.event.User, q.method = cutUser(u), method
	q.annotate(MethodAnnotation, method)
	if method == methodFrontProxy && q.offeredID != "" {
		q.event.AuditID = q.offeredID
	}
}

// Unverified records the claims of a caller's token that only the member can verify.
func (q *Request) Unverified(t Token) {
	if q == nil {
		return
	}
	q.User(User{}, methodPassthrough)
	t = t.Shorten()
	q.annotate(TokenHashAnnotation, t.Hash)
	q.annotate(TokenIssuerAnnotation, t.Issuer)
	q.annotate(TokenSubjectAnnotation, t.Subject)
	q.annotate(TokenIDAnnotation, t.ID)
}

// As records the user that the caller impersonates.
func (q *Request) As(u User) {
	if q != nil {
		u = cutUser(u)
		q.event.ImpersonatedUser = &u
	}
}

// Target records the resource of the request, and its cluster, which may be "".
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

// Reached records the comma-separated clusters in which a fleet request found or changed objects. Call Target first.
func (q *Request) Reached(clusters string) {
	if q != nil {
		q.annotate(ClusterAnnotation, clusters)
	}
}

// Created records the name of a created object, which is not in the URL. Call Target first.
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

// Recording records the id of a session's recording.
func (q *Request) Recording(id string) {
	if q != nil {
		q.annotate(RecordingAnnotation, id)
	}
}

// Unrecorded records why a session's recording is missing or incomplete.
func (q *Request) Unrecorded(reason string) {
	if q != nil {
		q.annotate(UnrecordedAnnotation, reason)
	}
}

// Bytes records the number of body bytes that were sent to the client and received from it so far.
func (q *Request) Bytes(sent, received int64) {
	if q != nil {
		q.sent, q.received = sent, received
	}
}

// Started writes the event that a stream is open. A second call does nothing. Neither does a call for a member's 401.
func (q *Request) Started(code int) {
	if q == nil || q.started || q.method == methodPassthrough && code == http.StatusUnauthorized {
		return // a member that does not accept the token opens no stream
	}
	q.started = true
	q.write(ResponseStarted, Status{Code: code}, true)
}

// Completed writes the event that the request has ended. failed is the gateway's own error, or nil.
func (q *Request) Completed(code int, failed *status.Error) {
	if q != nil {
		q.write(ResponseComplete, q.result(code, failed), q.isIdentified(code, failed))
	}
}

// Panicked writes the event that the handler panicked. Call it instead of Completed.
func (q *Request) Panicked() {
	if q != nil {
		q.write(Panic, Status{
			Status: metav1.StatusFailure, Reason: string(metav1.StatusReasonInternalError),
			Code: http.StatusInternalServerError,
		}, true)
	}
}

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
			q.Decision(false, failed.Message) // a later check refused a request that was allowed before
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
	q.log.write(&e, isIdentified, q.reserved, q.deadline)
}

// uri returns the URI as it was sent, without the password that an absolute URI may contain.
func uri(r *http.Request) string {
	if !strings.HasPrefix(r.RequestURI, "/") && r.URL != nil && r.URL.User != nil {
		return r.URL.Redacted()
	}
	return r.RequestURI
}

func validID(v string) string {
	if len(v) > maxID || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return v
}

// Sources returns the source addresses of a request, the connection's last. The client may have set the others.
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
		out = out[len(out)-maxIPs:] // the client could fill the front of the list
	}
	return out
}

func cut(s string, limit int) string { return limits.Cut(s, limit) }
