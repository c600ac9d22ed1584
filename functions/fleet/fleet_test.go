package fleet

import (
	"net/http"
	"runtime"
	"testing"

	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/forward"
)

type emptyFleet struct{ assembly.Fleet }

func (emptyFleet) Do(http.ResponseWriter, *http.Request, forward.FleetCall) (*forward.Remainder, error) {
	return nil, nil
}

// TestFirstRequestUsesAllProcessors fails if lists used only the processor with which the function starts. It also
// fails if a later request, or the fleet of another process, changed the number.
func TestFirstRequestUsesAllProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	for _, tt := range []struct {
		process     proxy.Process
		first, then int // processors after a request that began with one
	}{
		{proxy.Process{IsFrozen: true}, all, 1},
		{proxy.Process{}, 1, 1},
	} {
		f := newFleet(emptyFleet{}, tt.process)
		for i, want := range []int{tt.first, tt.then} {
			runtime.GOMAXPROCS(1)
			if _, err := f.Do(nil, nil, forward.FleetCall{}); err != nil {
				t.Fatal(err)
			}
			if got := runtime.GOMAXPROCS(0); got != want {
				t.Errorf("%+v, request %d: %d processors, want %d", tt.process, i+1, got, want)
			}
		}
	}
}
