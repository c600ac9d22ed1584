package object

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
	"github.com/clusterpass/clusterpass/shared/status"
)

// TestDecoding fails if a client could not learn whether its body is too large or malformed.
func TestDecoding(t *testing.T) {
	client := members.NewPool(members.Config{}).Client(members.Caller{Request: httptest.NewRequest("POST", "/", nil)})
	for err, want := range map[error]int{scan.ErrTooMany: 413, errors.New("it is not JSON"): 400} {
		_, got := decode(client, 1<<20, "a", func() (int, error) { return 0, fmt.Errorf("the body: %w", err) })
		if status.From(got).Code() != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
