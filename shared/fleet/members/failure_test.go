package members

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/status"
)

// TestDeadlineMessage fails if a user could not see the deadline, or that a write may be done.
func TestDeadlineMessage(t *testing.T) {
	read, write := (&deadlineError{10 * time.Second, false}).Error(), (&deadlineError{writeDeadline, true}).Error()
	if read != "did not answer within 10s" ||
		!strings.HasPrefix(write, "did not answer within 1m15s; the write may have been done") {
		t.Errorf("%q, %q", read, write)
	}
}

// TestSummaryChangesNothing fails if one caller could see the code of another's answer.
func TestSummaryChangesNothing(t *testing.T) {
	sent := metav1.Status{Message: "no", Reason: metav1.StatusReasonForbidden, Code: 1} // the response has another code
	e := &Failure{Cluster: "a", Code: http.StatusForbidden, Status: &sent, Message: "no"}
	var out *status.Error
	if !errors.As(Summary([]*Failure{e}), &out) || out.Code() != http.StatusForbidden ||
		out.Kubernetes() != metav1.StatusReasonForbidden {
		t.Errorf("%#v", out)
	}
	if sent.Code != 1 {
		t.Errorf("the member's Status is changed: %v", sent)
	}
}

// TestTextsAreBounded fails if hundreds of clusters that refuse a request could fill the memory with one error. It also
// fails if one cluster could hide the messages of others.
func TestTextsAreBounded(t *testing.T) {
	long := strings.Repeat("x", maxText)
	for name, tt := range map[string]struct {
		failures int
		want     []string
	}{
		"one":      {1, []string{`cluster "m0": ` + long[:maxText/2]}},
		"two":      {2, []string{`cluster "m0": ` + long[:maxText/4], `...; cluster "m1": ` + long[:maxText/4]}},
		"hundreds": {500, []string{`cluster "m0": ` + long[:1000], `cluster "m15": x`, "; and 484 more failures"}},
	} {
		t.Run(name, func(t *testing.T) {
			var failures []*Failure
			for i := range tt.failures {
				failures = append(failures, NewFailure(fmt.Sprint("m", i), http.StatusBadGateway, nil, "%s", long))
			}
			text := Texts(failures)
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("%.40q is missing in %.400q", want, text)
				}
			}
			if len(text) > maxText+1<<10 {
				t.Errorf("%d bytes", len(text))
			}
		})
	}
}

// TestRefusalOfManyBytes fails if a member could fill the gateway's log, or if the client got a shortened message.
func TestRefusalOfManyBytes(t *testing.T) {
	body := []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":409,"reason":"Conflict","message":"` +
		strings.Repeat("x", 1<<20) + `"}`)
	e := refusal("m", &Answer{
		Response: &http.Response{StatusCode: http.StatusConflict}, Body: io.NopCloser(bytes.NewReader(body)),
	})
	if !bytes.Equal(e.Raw, body) {
		t.Errorf("%d of %d bytes pass", len(e.Raw), len(body))
	}
	if len(e.Message) > maxText+len("...") {
		t.Errorf("the message has %d bytes", len(e.Message))
	}
}
