package fleet

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/alloctest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
)

// TestOwnersSize holds: what is kept of an object is of one size, however it is called.
func TestOwnersSize(t *testing.T) {
	o, before := newOwners(), alloctest.Held()
	for i := range 1000 {
		q := &ask{user: &identity.User{Name: "alice"}, res: route.Resource{Name: fmt.Sprint(i, strings.Repeat("x", 60<<10))}}
		if o.put(q.key(), 7); i == 999 {
			if id, ok := o.get(q.key()); !ok || id != 7 {
				t.Error("it is not kept")
			}
			if q.res.Namespace = "x"; q.key() == (&ask{user: q.user, res: route.Resource{Name: q.res.Name}}).key() {
				t.Error("another's key")
			}
		}
	}
	if now := alloctest.Held(); now > before+8<<20 {
		t.Errorf("%d MiB are kept", (now-before)>>20)
	}
	runtime.KeepAlive(o)
}
