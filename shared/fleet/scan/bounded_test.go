package scan

import (
	"errors"
	"strings"
	"testing"
)

// TestCheckValueCount would fail if nested values were not counted, or if brackets in strings were.
func TestCheckValueCount(t *testing.T) {
	for in, values := range map[string]int{
		`0`:                                     1,
		`"a,[{\",\\"`:                           1,
		`[1]`:                                   2,
		`[1,2,3]`:                               4,
		`{"a":1}`:                               2,
		` { "a,b" : [ 1 , 2 ] , "c" : "],[" } `: 5,
		`[]`:                                    2,
		`[{},[]]`:                               5,
		`["a" , {"b":{"c":null}}]`:              5,
		`[0,`:                                   3,
	} {
		if CheckValueCount([]byte(in), values) != nil || !errors.Is(CheckValueCount([]byte(in), values-1), ErrTooMany) {
			t.Errorf("%s does not have %d values", in, values)
		}
	}
	for _, in := range []string{`"`, `["a\"]`, "[\"\n\"]"} {
		if err := CheckValueCount([]byte(in), 10); !errors.Is(err, ErrSyntax) {
			t.Errorf("%q: %v", in, err)
		}
	}
	text := []byte("[" + strings.Repeat(`{"a":"b"},`, 100) + "0]")
	if n := testing.AllocsPerRun(10, func() { _ = CheckValueCount(text, 1000) }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}

// BenchmarkCheckValueCount counts the values of text that resembles an object of Kubernetes.
func BenchmarkCheckValueCount(b *testing.B) {
	text := []byte("[" + strings.Repeat(`{"name":"a-name-of-some-length","namespaced":true,"verbs":["get","list"],`+
		`"count":12345},`, 10_000) + "0]")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := CheckValueCount(text, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}
