package discovery

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
)

// TestUnionsAge fails if a union stayed in the cache while a function was frozen. The monotonic clock stops then.
func TestUnionsAge(t *testing.T) {
	u := newUnions()
	key := sha256.Sum256(nil)
	u.put(key, &cachedUnion{until: time.Now().Add(time.Hour)})
	k := u.get(key)
	if k == nil {
		t.Fatal("it is not kept")
	}
	if text := k.until.String(); strings.Contains(text, "m=") {
		t.Error(text)
	}
	u.put(key, &cachedUnion{until: time.Now().Add(-time.Second)})
	if u.get(key) != nil {
		t.Error("what is too old is of use")
	}
}

// TestUnionsSize fails if callers could fill the memory with unions and failures, or if a used union were evicted
// first.
func TestUnionsSize(t *testing.T) {
	u := newUnions()
	until := time.Now().Add(time.Hour)
	put := func(i byte, size int) {
		u.put([sha256.Size]byte{i}, &cachedUnion{until: until, failures: []*members.Failure{{Raw: make([]byte, size)}}})
	}
	has := func(want string) {
		t.Helper()
		var got, sum = "", 0
		for _, key := range u.entries.Keys() {
			k, _ := u.entries.Peek(key)
			got, sum = got+string(key[:1]), sum+k.size
		}
		if got != want || u.size != sum || sum > discoverySize {
			t.Errorf("kept %q of %d bytes, counted %d; want %q", got, sum, u.size, want)
		}
	}
	put('a', discoverySize/3)
	put('b', discoverySize/3)
	has("ab")
	if u.get([sha256.Size]byte{'a'}) == nil {
		t.Error("a is gone")
	}
	put('c', discoverySize/2)
	has("ac") // a was used after b
	put('c', discoverySize/4)
	has("ac")
	put('d', discoverySize+1)
	has("")
	large := newUniter()
	large.add(0, 1, groupOf("g", strings.Repeat("k", 1000), "v1/r"), func(string, *discoveryv2.APIResourceDiscovery) bool { return true })
	u.put([sha256.Size]byte{'e'}, &cachedUnion{until: until, union: large.union()})
	if has("e"); u.size < 1000 {
		t.Errorf("a union of over 1000 bytes counts as %d", u.size)
	}
}
