package scan

import (
	"errors"
	"strings"
	"testing"
)

// TestBounded holds: values are counted wherever they are, and what only looks like them is not.
func TestBounded(t *testing.T) {
	for in, values := range map[string]int{
		`0`: 1, `"a,[{\",\\"`: 1, `[1]`: 2, `[1,2,3]`: 4, `{"a":1}`: 2, ` { "a,b" : [ 1 , 2 ] , "c" : "],[" } `: 5, `[]`: 2, `[{},[]]`: 5, `["a" , {"b":{"c":null}}]`: 5, `[0,`: 3,
	} {
		if Bounded([]byte(in), values) != nil || !errors.Is(Bounded([]byte(in), values-1), ErrTooMany) {
			t.Errorf("%s has not %d values", in, values)
		}
	}
	for _, in := range []string{`"`, `["a\"]`, "[\"\n\"]"} {
		if err := Bounded([]byte(in), 10); !errors.Is(err, ErrSyntax) {
			t.Errorf("%q: %v", in, err)
		}
	}
	text := []byte("[" + strings.Repeat(`{"a":"b"},`, 100) + "0]")
	if n := testing.AllocsPerRun(10, func() { _ = Bounded(text, 1000) }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}

// BenchmarkBounded counts what is like an object of Kubernetes.
func BenchmarkBounded(b *testing.B) {
	text := []byte("[" + strings.Repeat(`{"name":"a-name-of-some-length","namespaced":true,"verbs":["get","list"],"count":12345},`, 10_000) + "0]")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := Bounded(text, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}
