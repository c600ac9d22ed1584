package control

import (
	"strconv"
	"strings"
	"testing"
)

// The cost must be linear: a cluster with thousands of kinds would block the gateway.
func TestUnion(t *testing.T) {
	type named struct{ name, of string }
	keyCalls := 0
	key := func(n named) string { keyCalls++; return n.name }
	both := func(own, other *named) { own.of += other.of }
	for want, unite := range map[string]func(own, other *named){
		"b:1 a:12 a:1 c:22": both,
		"b:1 a:1 a:1 c:2":   nil,
	} {
		var got []string
		for _, n := range union([]named{{"b", "1"}, {"a", "1"}, {"a", "1"}}, []named{{"a", "2"}, {"c", "2"}, {"c", "2"}},
			key, unite) {
			got = append(got, n.name+":"+n.of)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s, want %s", text, want)
		}
	}
	keyCalls = 0
	const many = 2000
	var own, other []named
	for i := range many {
		own, other = append(own, named{name: "own" + strconv.Itoa(i)}), append(other, named{name: "other" + strconv.Itoa(i)})
	}
	if got := union(own, other, key, both); len(got) != 2*many || keyCalls != 2*many {
		t.Errorf("%d of %d, looked at %d times", len(got), 2*many, keyCalls)
	}
}
