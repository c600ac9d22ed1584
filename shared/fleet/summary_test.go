package fleet

import (
	"errors"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/status"
)

// TestSummaryChangesNothing holds: failures are kept, and told to several callers at once, so that what is said of them is a copy.
func TestSummaryChangesNothing(t *testing.T) {
	sent := metav1.Status{Message: "no", Reason: metav1.StatusReasonForbidden, Code: 1} // not what the answer's head says
	e := &failure{cluster: "a", code: http.StatusForbidden, status: &sent, message: "no"}
	var out *status.Error
	if !errors.As(summary([]*failure{e}), &out) || out.Code() != http.StatusForbidden || out.Kubernetes() != metav1.StatusReasonForbidden {
		t.Errorf("%#v", out)
	}
	if sent.Code != 1 {
		t.Errorf("the member's Status is changed: %v", sent)
	}
}
