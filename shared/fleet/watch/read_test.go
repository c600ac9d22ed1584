package watch

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowClientKeepsMember fails if a client that does not read for minutes ends the watch of a healthy member. It
// also fails if a member that sends nothing for minutes keeps its watch.
func TestSlowClientKeepsMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollower(0)
		body, member := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- f.read(t.Context(), body, func() { _ = member.CloseWithError(io.ErrUnexpectedEOF) }) }()
		for _, version := range []string{"7", "8"} {
			_, err := fmt.Fprintf(member, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a",`+
				`"resourceVersion":%q}}}`+"\n", version)
			if err != nil {
				t.Fatalf("the member was stopped: %v", err)
			}
			time.Sleep(2 * maxSilence) // the client does not read
			if e := <-f.events; e.version != version {
				t.Errorf("event %+v, want version %s", e, version)
			}
		}
		synctest.Wait()
		time.Sleep(maxSilence)
		synctest.Wait()
		select {
		case err := <-ended:
			if err == nil {
				t.Error("a silent member ended its watch without an error")
			}
		default:
			t.Error("a silent member keeps its watch")
		}
	})
}
