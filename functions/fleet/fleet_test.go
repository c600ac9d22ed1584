package fleet

import (
	"net/http"
	"runtime"
	"testing"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/forward"
)

type emptyFleet struct{ assembly.Fleet }

func (emptyFleet) Do(http.ResponseWriter, *http.Request, forward.FleetCall) (*forward.Remainder, error) {
	return nil, nil
}

// TestFirstRequestUsesAllProcessors fails if lists used one processor only, with which the function starts.
func TestFirstRequestUsesAllProcessors(t *testing.T) {
	runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(1)
	t.Cleanup(runtime.SetDefaultGOMAXPROCS)
	p := &parallel{Fleet: emptyFleet{}}
	for range 2 {
		if _, err := p.Do(nil, nil, forward.FleetCall{}); err != nil {
			t.Fatal(err)
		}
		if got := runtime.GOMAXPROCS(0); got != all {
			t.Errorf("%d processors, want %d", got, all)
		}
	}
}
