package members

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Failure explains why a member gave no usable response. A Failure that several requests share must not be changed.
type Failure struct {
	Cluster string
	Code    int // the member's status code, or that of the gateway's own error
	// Status has those fields of the member's Status that the gateway uses. For a 404 without a Status, the gateway makes
	// one. In all other cases, Status is nil.
	Status  *metav1.Status
	Raw     []byte // the Status as the member sent it
	Message string
	Err     error
}

// NewFailure returns a Failure with a message and without a Status. err may be nil.
func NewFailure(cluster string, code int, err error, format string, args ...any) *Failure {
	return &Failure{Cluster: cluster, Code: code, Err: err, Message: fmt.Sprintf(format, args...)}
}

func (e *Failure) Error() string { return e.Message }

func (e *Failure) Unwrap() error { return e.Err }

// IsNotFound reports whether the member has no such object, or no such kind.
func (e *Failure) IsNotFound() bool { return e.Code == http.StatusNotFound }

// IsExpired reports whether the member lacks the requested resourceVersion, which is too old or too large.
func (e *Failure) IsExpired() bool {
	return e.Code == http.StatusGone || e.Status != nil && e.Status.Details != nil &&
		slices.ContainsFunc(e.Status.Details.Causes, func(c metav1.StatusCause) bool {
			return c.Type == metav1.CauseTypeResourceVersionTooLarge
		})
}

// Text returns the message with a prefix that names the cluster. A message of the gateway that names the cluster gets
// no prefix. The message of a member's Status always gets the prefix: the member may use the same name for another
// cluster.
func (e *Failure) Text() string {
	if e.Cluster == "" || e.Status == nil && strings.Contains(e.Message, fmt.Sprintf("cluster %q", e.Cluster)) {
		return e.Message
	}
	return fmt.Sprintf("cluster %q: %s", e.Cluster, e.Message)
}

type deadlineError struct {
	after   time.Duration
	isWrite bool // the member may have done the write
}

// NewDeadlineError returns a cause for context.CancelCauseFunc. For reads of members that are cancelled with this
// cause, Client.Fail reports that the member did not answer in time.
func NewDeadlineError(after time.Duration) error { return &deadlineError{after: after} }

func (e *deadlineError) Error() string {
	text := fmt.Sprintf("did not answer within %v", e.after)
	if e.isWrite {
		text += "; the write may have been done: read the object before you retry"
	}
	return text
}

const (
	maxText  = 64 << 10 // maximum number of bytes of one member's message, and of all messages in one error
	maxTexts = 16       // maximum number of failures whose messages appear in one error
)

// refusal returns the Failure for a response whose status code is not 2xx. It shortens Message, which the gateway logs.
func refusal(cluster string, a *Answer) *Failure {
	data, _ := ReadLimited(a.Body, merge.MaxObject) // an incomplete body is no Status
	e := &Failure{Cluster: cluster, Code: a.Response.StatusCode}
	if st := statusOf(data); st != nil {
		st.Message = shorten(st.Message, maxText)
		e.Status, e.Message, e.Raw = st, st.Message, data
		return e
	}
	if e.IsNotFound() { // kube-apiserver answers in plain text for a kind that it lacks; clients check the code
		e.Status = &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Message: "the server could not find the requested resource",
			Code:    http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		}
		e.Message = e.Status.Message
		return e
	}
	e.Message = fmt.Sprintf("HTTP %d %s", e.Code, http.StatusText(e.Code))
	return e
}

// statusOf decodes a Status. It returns nil if data is not a Status, or one without a message. It ignores all causes
// except ResourceVersionTooLarge, because the decoded causes of a large Status would use much memory.
func statusOf(data []byte) *metav1.Status {
	o, err := merge.ObjectOf(data)
	if err != nil {
		return nil
	}
	kind, _ := merge.KindOf(o)
	text := func(path ...string) string { return scan.Text(scan.Lookup(o.Text, path...)) }
	st := &metav1.Status{
		TypeMeta: kind, Status: text("status"), Message: text("message"), Reason: metav1.StatusReason(text("reason")),
	}
	if kind.Kind != "Status" || st.Message == "" {
		return nil
	}
	code, _ := strconv.ParseInt(string(scan.Lookup(o.Text, "code")), 10, 32) // 0 if it is missing
	st.Code = int32(code)
	if details := scan.Lookup(o.Text, "details"); details != nil && details[0] == '{' {
		st.Details = &metav1.StatusDetails{
			Name: text("details", "name"), Group: text("details", "group"), Kind: text("details", "kind"),
		}
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

func shorten(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxBytes], "") + "..."
}

// Summary returns one error for one or more failures. If all failures have a Status and the same code, and this code is
// below 500, the error has that code, too.
func Summary(failures []*Failure) error {
	first := failures[0]
	refused := first.asStatus()
	same := refused != nil && !slices.ContainsFunc(failures, func(e *Failure) bool {
		return e.Code != first.Code || e.asStatus() == nil
	})
	out := &status.Error{Reason: status.MembersFailed, Message: Texts(failures), Err: errors.Join(Errors(failures)...)}
	if len(failures) == 1 {
		out.Cluster = first.Cluster
	}
	if same && first.Code < 500 {
		as := *refused // a copy: other callers share the failure
		as.Code = int32(first.Code)
		out.Reason, out.As = status.MembersRefused, &as
	}
	return out
}

// asStatus returns the member's Status. If the member refuses impersonation, asStatus returns the Status of the
// gateway's own error. nil means that there is no Status.
func (e *Failure) asStatus() *metav1.Status {
	var own *status.Error
	if e.Status == nil && errors.As(e.Err, &own) && own.Reason == status.CannotImpersonate {
		st := own.Status()
		return &st
	}
	return e.Status
}

// ExpiredSummary returns the error for failures for which IsExpired is true. It has code 410, so clients list again.
func ExpiredSummary(failures []*Failure) error {
	e := status.From(Summary(failures))
	e.Reason, e.As = status.Expired, nil
	e.Message += ": list from the start"
	return e
}

// Errors returns the errors that the first maxTexts failures wrap. The gateway logs them as the cause of a failed
// request.
func Errors(failures []*Failure) []error {
	failures = failures[:min(len(failures), maxTexts)]
	out := make([]error, 0, len(failures))
	for _, e := range failures {
		out = append(out, e.Err)
	}
	return out
}

// Texts joins the texts of the first maxTexts failures, and counts the others. It shortens long texts, so that each
// failure gets an equal part of maxText.
func Texts(failures []*Failure) string {
	shown := failures[:min(len(failures), maxTexts)]
	out := make([]string, len(shown))
	for i, e := range shown {
		out[i] = shorten(e.Text(), maxText/len(shown))
	}
	text := strings.Join(out, "; ")
	if more := len(failures) - len(shown); more > 0 {
		text += fmt.Sprintf("; and %d more failures", more)
	}
	return text
}

// Without returns the failures for which drop returns false.
func Without(failures []*Failure, drop func(*Failure) bool) []*Failure {
	return slices.DeleteFunc(slices.Clone(failures), drop)
}
