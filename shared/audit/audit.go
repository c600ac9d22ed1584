// Package audit writes who did what: one Event of audit.k8s.io/v1 a request, a line of JSON each; of a stream one when
// it opens and one when it ends.
//
// Invariants:
//   - An event holds no credential and no body: of a request's header only what is named here is read.
//   - Text of strangers stays inside of its JSON string and is of bounded length.
//   - No event is lost in silence: one that cannot be written is counted (Log.Lost) and the log says so. A Log without a queue has
//     written an event when the method returns, which a function needs, since it may be frozen after its answer.
package audit

import (
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
	// IDHeader carries an event's id through proxies, as kube-apiserver takes and answers it: a client or proxy that gives one finds it in
	// the events of the gateway and of the member.
	IDHeader = "Audit-Id"

	maxID    = 64
	maxURI   = 16 << 10
	maxAgent = 1 << 10
	maxIPs   = 16
	maxText  = 2 << 10
)

// Request is one request on its way. Its methods are not safe for concurrent use. A nil Request takes everything and writes
// nothing.
type Request struct {
	log     *Log
	event   Event
	began   time.Time
	sent    int64
	taken   int64
	started bool
}

// Begin starts the record of r, which arrived now. Nothing is written yet. A nil Log begins a nil Request.
func (l *Log) Begin(r *http.Request) *Request {
	if l == nil {
		return nil
	}
	now := l.now()
	return &Request{log: l, began: now, event: Event{
		Kind: "Event", APIVersion: "audit.k8s.io/v1", Level: "Metadata", AuditID: id(r.Header),
		RequestURI: cut(uri(r), maxURI), Verb: strings.ToLower(cut(r.Method, maxID)), SourceIPs: Sources(r),
		UserAgent: cut(r.UserAgent(), maxAgent), RequestReceivedTimestamp: metav1.NewMicroTime(now),
		Annotations: map[string]string{},
	}}
}

// User says who calls and how that is known.
func (q *Request) User(u User, method string) {
	if q != nil {
		q.event.User = u
		q.annotate(MethodAnnotation, method)
	}
}

// As says as whom the user acts.
func (q *Request) As(u User) {
	if q != nil {
		q.event.ImpersonatedUser = &u
	}
}

// Target says what is asked of which cluster, which is "" where it is none.
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
			APIGroup: cut(res.APIGroup, maxText), APIVersion: cut(res.APIVersion, maxText), Subresource: cut(res.Subresource, maxText),
		}
	}
}

// Reached says which clusters, with commas between, a call to several found its object in or changes. The Target must be known.
func (q *Request) Reached(clusters string) {
	if q != nil {
		q.annotate(ClusterAnnotation, clusters)
	}
}

// Created says what a create made, or would have: its request has the name in the body, if at all. The Target must be known.
func (q *Request) Created(name string) {
	if q != nil && q.event.ObjectRef != nil && q.event.ObjectRef.Name == "" {
		q.event.ObjectRef.Name = cut(name, maxText)
	}
}

// Decision says whether the call was allowed, and why.
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

// Bytes says how much of bodies was sent to the client and received from it so far.
func (q *Request) Bytes(sent, received int64) {
	if q != nil {
		q.sent, q.taken = sent, received
	}
}

// Started writes that a stream is open; a second time, nothing.
func (q *Request) Started(code int) {
	if q != nil && !q.started {
		q.started = true
		q.write(ResponseStarted, Status{Code: code})
	}
}

// Completed writes that the request is over. failed is the gateway's own error, or nil.
func (q *Request) Completed(code int, failed *status.Error) {
	if q != nil {
		q.write(ResponseComplete, q.result(code, failed))
	}
}

// Panicked writes, instead of Completed, that the gateway broke.
func (q *Request) Panicked() {
	if q != nil {
		q.write(Panic, Status{Status: metav1.StatusFailure, Reason: string(metav1.StatusReasonInternalError), Code: http.StatusInternalServerError})
	}
}

func (q *Request) result(code int, failed *status.Error) Status {
	s := Status{Code: code}
	if failed != nil {
		q.annotate(FailureAnnotation, string(failed.Reason))
		if failed.Reason == status.Forbidden && q.event.Annotations[DecisionAnnotation] != "forbid" {
			q.Decision(false, failed.Message) // what was allowed so far was not enough
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

func (q *Request) write(stage Stage, s Status) {
	now := q.log.now()
	e := q.event
	e.Stage, e.ResponseStatus, e.StageTimestamp = stage, &s, metav1.NewMicroTime(now)
	e.Annotations = maps.Clone(e.Annotations)
	if stage != ResponseStarted {
		e.Annotations[DurationAnnotation] = now.Sub(q.began).String()
		e.Annotations[SentAnnotation] = strconv.FormatInt(q.sent, 10)
		e.Annotations[ReceivedAnnotation] = strconv.FormatInt(q.taken, 10)
	}
	q.log.write(&e)
}

// uri is the URI as it came, without the password that a URI with a host may have.
func uri(r *http.Request) string {
	if !strings.HasPrefix(r.RequestURI, "/") && r.URL != nil && r.URL.User != nil {
		return r.URL.Redacted()
	}
	return r.RequestURI
}

// id takes the id that a proxy before us gave, or makes one.
func id(h http.Header) string {
	v := h.Get(IDHeader)
	if v == "" || len(v) > maxID || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return uuid.NewString()
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
		out = out[len(out)-maxIPs:] // the last are of the proxies that are ours
	}
	return out
}

// cut bounds a text.
func cut(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
