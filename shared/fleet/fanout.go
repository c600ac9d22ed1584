package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// outgoing is one call to one member.
type outgoing struct {
	method, path string
	query        url.Values
	header       http.Header // of the client's, what is to be said otherwise; an empty value leaves it out
	body         []byte
	patient      bool // it may take as long as the member needs, as a write may
}

// answer is what a member said.
type answer struct {
	target
	resp *http.Response
	body io.Reader // decompressed
	stop func()    // ends the call; to be called always
	err  error     // *failure
}

// succeeded reports whether the member answered with a code of success. A write is done then, also where the rest of
// the answer is lost.
func (a *answer) succeeded() bool {
	return a.resp != nil && a.resp.StatusCode >= 200 && a.resp.StatusCode <= 299
}

// failure is why a member gave no answer that is of use.
type failure struct {
	cluster string
	code    int            // the member's, or that of the gateway's own error
	status  *metav1.Status // the member's, if it sent one
	raw     []byte         // as it was sent
	message string
	err     error
}

func (e *failure) Error() string { return e.message }

func (e *failure) Unwrap() error { return e.err }

// absent reports whether the member says that there is none: no such object, or no such kind.
func (e *failure) absent() bool { return e.code == http.StatusNotFound }

// expired reports whether the member has not what it had at the version that it was asked for: not any more or, as one that was restored
// from a backup, not yet.
func (e *failure) expired() bool {
	return e.code == http.StatusGone || e.status != nil && e.status.Details != nil &&
		slices.ContainsFunc(e.status.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeResourceVersionTooLarge })
}

// maxPatience is over the minute that kube-apiserver gives a call.
const maxPatience = 75 * time.Second

// slow ends a call to a member that does not begin to answer.
type slow struct {
	after  time.Duration
	writes bool // what it asks for may be done nonetheless
}

func (s *slow) Error() string {
	text := fmt.Sprintf("did not answer within %v", s.after)
	if s.writes {
		text += "; it may have done what was asked: look before you ask again"
	}
	return text
}

// call asks one member, and waits for the head of its answer until the deadline. ready, if not nil, reads the beginning of a good answer,
// within the same deadline. A code that is none of success is a failure.
func (q *ask) call(ctx context.Context, t target, out outgoing, ready func(a *answer) error) (a *answer) {
	if t.unknown != nil {
		return &answer{target: t, stop: func() {}, err: t.unknown}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	patience := q.f.cfg.Deadline
	if out.patient {
		patience = maxPatience
	}
	late := &slow{patience, out.patient}
	deadline := time.AfterFunc(patience, func() { cancel(late) })
	a = &answer{target: t, stop: func() { cancel(context.Canceled) }}
	defer func() {
		if !deadline.Stop() && a.err == nil {
			a.err = late
		}
		if a.err != nil {
			a.stop()
			if a.resp != nil {
				_ = a.resp.Body.Close()
			}
			a.err = q.failed(ctx, t.Name, a.err)
		}
	}()
	m, err := q.f.cfg.Members.Get(ctx, t.Name)
	if err != nil {
		a.err = err
		return a
	}
	rt := q.routeTo(t.Name, out.path)
	req := request(ctx, q.r, out)
	a.resp, a.err = forward.Open(req, forward.Call{Request: route.NewRequest(req.Method, rt, out.query.Encode(), req.Header), User: q.user, Member: m, Renew: q.f.cfg.Members.Renew}) //nolint:bodyclose // by the answer's reader, or above
	if a.err != nil {
		return a
	}
	if a.body, a.err = plain(a.resp); a.err != nil {
		return a
	}
	if !a.succeeded() {
		a.err = refusal(t.Name, a)
		return a
	}
	if ready != nil {
		a.err = ready(a)
	}
	return a
}

// request makes the request to a member of the client's.
func request(ctx context.Context, r *http.Request, out outgoing) *http.Request {
	req := r.Clone(ctx)
	req.Method, req.RequestURI = out.method, ""
	req.Body, req.ContentLength = http.NoBody, 0
	for k, v := range out.header {
		if req.Header[k] = v; len(v) == 0 {
			delete(req.Header, k)
		}
	}
	if len(out.body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(out.body)), int64(len(out.body))
	}
	return req
}

// refusal returns a member's own error. Its Status passes whole, so that no cause is lost, and has the bound of other
// answers. The message, which also goes to logs, has at most maxText bytes.
func refusal(cluster string, a *answer) *failure {
	data, _ := read(a.body, merge.MaxObject) // an incomplete body is no Status
	e := &failure{cluster: cluster, code: a.resp.StatusCode}
	if st := statusOf(data); st != nil {
		st.Message = shorten(st.Message)
		e.status, e.message, e.raw = st, st.Message, data
		return e
	}
	if e.absent() { // kube-apiserver says so of a kind that it has not, in plain text; clients go by the code
		e.status = &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Message: "the server could not find the requested resource",
			Code:    http.StatusNotFound, Reason: metav1.StatusReasonNotFound}
		e.message = e.status.Message
		return e
	}
	e.message = fmt.Sprintf("HTTP %d %s", e.code, http.StatusText(e.code))
	return e
}

// statusOf reads the fields of a Status that the gateway uses; nil if data is no Status with a message. Of the causes
// it keeps one that says that the resourceVersion is too large. The others are not decoded, since a Status may have
// more than fit into memory.
func statusOf(data []byte) *metav1.Status {
	o, err := merge.ObjectOf(data)
	if err != nil {
		return nil
	}
	kind, _ := kindOf(o)
	text := func(path ...string) string { return scan.Text(scan.Lookup(o.Text, path...)) }
	st := &metav1.Status{TypeMeta: kind, Status: text("status"), Message: text("message"),
		Reason: metav1.StatusReason(text("reason"))}
	if kind.Kind != "Status" || st.Message == "" {
		return nil
	}
	code, _ := strconv.ParseInt(string(scan.Lookup(o.Text, "code")), 10, 32) // 0 where there is none
	st.Code = int32(code)
	if details := scan.Lookup(o.Text, "details"); details != nil && details[0] == '{' {
		st.Details = &metav1.StatusDetails{Name: text("details", "name"), Group: text("details", "group"),
			Kind: text("details", "kind")}
		var s scan.Scanner
		causes := scan.Lookup(details, "causes")
		for at, end := range s.Elements(causes, 0) {
			why := metav1.CauseType(scan.Text(scan.Lookup(causes[at:end], "reason")))
			if why == metav1.CauseTypeResourceVersionTooLarge {
				st.Details.Causes = []metav1.StatusCause{{Type: why}}
				break
			}
		}
	}
	return st
}

// failed makes a failure of any error. That the client has gone is none.
func (q *ask) failed(ctx context.Context, cluster string, err error) error {
	if q.r.Context().Err() != nil {
		return context.Cause(q.r.Context())
	}
	var e *failure
	var own *status.Error
	var late *slow
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(context.Cause(ctx), &late):
		return &failure{cluster: cluster, code: http.StatusGatewayTimeout, err: err, message: fmt.Sprintf("cluster %q %v", cluster, late)}
	case errors.Is(context.Cause(ctx), errElsewhere):
		return &failure{cluster: cluster, code: http.StatusGatewayTimeout, err: err,
			message: fmt.Sprintf("cluster %q was not waited for, since the object is where it was", cluster)}
	case errors.As(err, &own):
		return &failure{cluster: cluster, code: own.Code(), message: own.Message, err: err}
	default:
		return &failure{cluster: cluster, code: http.StatusBadGateway, message: fmt.Sprintf("cluster %q: %v", cluster, err), err: err}
	}
}

// each runs call for every target, the ith of them, in parallel and returns the answers in the targets' order.
func (q *ask) each(targets []target, call func(i int, t target) *answer) []*answer {
	answers := make([]*answer, len(targets))
	done := make(chan struct{})
	for i, t := range targets {
		go func() { // ends with its deadline
			defer func() { done <- struct{}{} }()
			defer q.f.guard(t.Name, func(e *failure) { answers[i] = &answer{target: t, err: e} })
			answers[i] = call(i, t)
		}()
	}
	for range targets {
		<-done
	}
	return answers
}

// guard makes a panic in a goroutine of its own, over a member's answer that nobody foresaw, that member's failure: it would end the process
// and every stream in it. It is to be deferred.
func (f *Fleet) guard(cluster string, failed func(*failure)) {
	if p := recover(); p != nil {
		f.cfg.Log.Error("a cluster's answer was not foreseen", "cluster", cluster, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		failed(&failure{cluster: cluster, code: http.StatusBadGateway, message: fmt.Sprintf("cluster %q gave an answer that the gateway cannot handle; its log has more", cluster)})
	}
}

// split parts answers and failures. An error that is no failure is returned: the client has gone.
func split(answers []*answer) (good []*answer, bad []*failure, err error) {
	for _, a := range answers {
		var e *failure
		switch {
		case a.err == nil:
			good = append(good, a)
		case errors.As(a.err, &e):
			bad = append(bad, e)
		default:
			err = a.err
		}
	}
	if err != nil {
		stopAll(good)
	}
	return good, bad, err
}

func stopAll(answers []*answer) {
	for _, a := range answers {
		a.stop()
		if a.resp != nil {
			_ = a.resp.Body.Close()
		}
	}
}

// summary is the error of a call that failures decide: with the members' code where all have the same, and listing each.
func summary(failures []*failure) error {
	first := failures[0]
	same := first.status != nil && !slices.ContainsFunc(failures, func(e *failure) bool { return e.code != first.code || e.status == nil })
	out := &status.Error{Reason: status.MembersFailed, Message: texts(failures), Err: errors.Join(causes(failures)...)}
	if len(failures) == 1 {
		out.Cluster = first.cluster
	}
	if same && first.code < 500 {
		as := *first.status // a copy: a failure that is kept is other callers' too
		as.Code = int32(first.code)
		out.Reason, out.As = status.MembersRefused, &as
	}
	return out
}

// incomplete is summary for a list or watch. A strict request also fails for clusters that lack the kind. The message
// then names two settings that leave them out.
func (q *ask) incomplete(failures []*failure) error {
	err := summary(failures)
	if e := status.From(err); q.strict && slices.ContainsFunc(failures, (*failure).absent) {
		e.Message += fmt.Sprintf("; a strict request needs %s of every cluster that a ResourceRegistry chooses: choose only "+
			"clusters that have them, by spec.targetCluster of the registries, or by the parameter %s",
			q.res.Resource, clustersParam)
	}
	return err
}

// expired is summary for failures that all are of that sort: clients list again.
func expired(failures []*failure) error {
	e := status.From(summary(failures))
	e.Reason, e.As = status.Expired, nil
	e.Message += ": list from the start"
	return e
}

func causes(failures []*failure) []error {
	out := make([]error, 0, len(failures))
	for _, e := range failures {
		out = append(out, e.err)
	}
	return out
}

// maxText bounds the message of a member, in bytes.
const maxText = 64 << 10

// shorten returns text with at most maxText bytes.
func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}

// texts joins the messages of failures.
func texts(failures []*failure) string {
	out := make([]string, len(failures))
	for i, e := range failures {
		out[i] = shorten(e.text())
	}
	return strings.Join(out, "; ")
}

// text names the cluster, once: what a cluster says of itself or others is told as its word.
func (e *failure) text() string {
	if e.cluster == "" || e.status == nil && strings.Contains(e.message, fmt.Sprintf("cluster %q", e.cluster)) {
		return e.message
	}
	return fmt.Sprintf("cluster %q: %s", e.cluster, e.message)
}

// Bounds of warnings: of one, and of all in an answer, which balancers give some kilobytes of headers.
const (
	maxWarning  = 400
	maxWarnings = 16
)

// warn adds what is left out to the answer, for kubectl to print.
func warn(h http.Header, failures []*failure) {
	for i, e := range failures {
		if len(h["Warning"]) >= maxWarnings-1 && i < len(failures)-1 {
			addWarning(h, fmt.Sprintf("%d more clusters are left out", len(failures)-i))
			return
		}
		addWarning(h, e.text()+" (left out)")
	}
}

func addWarning(h http.Header, text string) {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxWarning {
		text = strings.ToValidUTF8(text[:maxWarning], "") + "..."
	}
	if v, err := utilnet.NewWarningHeader(299, "clusterpass", text); err == nil {
		h.Add("Warning", v)
	}
}

// passWarnings adds the members' own warnings, each once. What one says of clusters is told as its word: it could be taken for the gateway's.
func passWarnings(h http.Header, answers []*answer) {
	for _, a := range answers {
		said, _ := utilnet.ParseWarningHeaders(a.resp.Header["Warning"]) // what is none is left out
		for _, w := range said {
			if strings.Contains(strings.ToLower(w.Text), "cluster") {
				w.Text = fmt.Sprintf("cluster %q says: %s", a.Name, w.Text)
			}
			v, err := utilnet.NewWarningHeader(w.Code, w.Agent, w.Text)
			if err == nil && len(v) <= 2*maxWarning && len(h["Warning"]) < maxWarnings && !slices.Contains(h["Warning"], v) {
				h.Add("Warning", v)
			}
		}
	}
}
