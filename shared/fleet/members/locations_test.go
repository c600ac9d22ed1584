package members

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/alloctest"
)

// TestLocationsSize fails if callers could fill the memory by the names of objects that they read.
func TestLocationsSize(t *testing.T) {
	p, before := NewPool(Config{}), alloctest.InUse()
	for i := range 1000 {
		key := DigestOf("alice", "pods", fmt.Sprint(i, strings.Repeat("x", 60<<10)))
		p.RememberLocation(key, 7)
		if id, ok := p.LastLocation(key); !ok || id != 7 {
			t.Fatal("it is not kept")
		}
	}
	if now := alloctest.InUse(); now > before+8<<20 {
		t.Errorf("%d MiB are kept", (now-before)>>20)
	}
	runtime.KeepAlive(p)
}
