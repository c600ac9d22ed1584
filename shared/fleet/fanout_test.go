package fleet

import (
	"strings"
	"testing"
	"time"
)

// TestSlow holds: who waits in vain is told for how long and, of a write, that it may be done.
func TestSlow(t *testing.T) {
	read, write := (&slow{10 * time.Second, false}).Error(), (&slow{maxPatience, true}).Error()
	if read != "did not answer within 10s" || !strings.HasPrefix(write, "did not answer within 1m15s; it may have done") {
		t.Errorf("%q, %q", read, write)
	}
}
