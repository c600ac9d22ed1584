package discovery

import (
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
)

// TestUnionsSize fails if callers could exhaust the gateway's memory with unions and failures.
func TestUnionsSize(t *testing.T) {
	u, expires := newUnions(), time.Now().Add(time.Hour)
	put := func(key byte, size int) {
		one := &cachedUnion{failures: []*members.Failure{{Raw: make([]byte, size)}}}
		u.Add(members.Digest{key}, one, expires)
	}
	has := func(want string) {
		t.Helper()
		got := ""
		for _, key := range "abcd" {
			if _, ok := u.Get(members.Digest{byte(key)}); ok {
				got += string(key)
			}
		}
		if got != want {
			t.Errorf("cached %q, want %q", got, want)
		}
	}
	put('a', discoverySize/3)
	put('b', discoverySize/3)
	has("ab")
	put('c', discoverySize/2)
	has("bc")
	put('d', discoverySize+1)
	has("bc")
	large := newUniter()
	large.add(0, 1, groupOf("g", strings.Repeat("k", 1000), "v1/r"), anything)
	if size := (&cachedUnion{union: large.union()}).size(); size < 1000 {
		t.Errorf("a union of over 1000 bytes counts as %d", size)
	}
}
