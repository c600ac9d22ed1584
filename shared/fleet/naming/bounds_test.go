package naming

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/alloctest"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// TestAnswerBounded holds: what a cluster sends is counted before it is decoded, and objects as large as any are rewritten.
func TestAnswerBounded(t *testing.T) {
	a := NewAnswer(anyKind, "c", true)
	a.SelectHere()
	rewrite := func(text string) (out []byte, bytes uint64, err error) {
		o, err := merge.ObjectOf([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		bytes = alloctest.Allocated(func() { out, err = a.Append(nil, o) })
		return out, bytes, err
	}
	bomb := `{"kind":"Service","metadata":{"name":"a"},"a":[` + strings.Repeat(`{"":0},`, 300_000) + `0]}`
	if _, bytes, err := rewrite(bomb); !errors.Is(err, scan.ErrTooMany) || bytes > 1<<20 {
		t.Errorf("%v, %d bytes", err, bytes)
	}
	var large strings.Builder
	large.WriteString(`{"kind":"Service","metadata":{"name":"a"},"spec":{"selector":{"a":"b"}},"x":{"":0`)
	for i := 0; large.Len() < 1_500_000; i++ {
		fmt.Fprintf(&large, `,"key-%d":{"value":"some text","more":[true,%d]}`, i, i)
	}
	large.WriteString(`}}`)
	if out, _, err := rewrite(large.String()); err != nil || !strings.Contains(string(out), `"clusterpass.io/cluster":"c"`) {
		t.Errorf("%v", err)
	}
	status := []byte(`{"kind":"Status","details":{"name":"a","x":[` + strings.Repeat(`{"":0},`, 300_000) + `0]}}`)
	if out := a.Status(status); string(out) != string(status) {
		t.Errorf("%.100s", out)
	}
	a = NewAnswer(anyKind, "c", true)
	a.ClaimsHere()
	if out, bytes, err := rewrite(bomb); err != nil || !strings.Contains(string(out), `"name":"a@c"`) || bytes > 8<<20 {
		t.Errorf("a list breaks off with %v, %d bytes", err, bytes)
	}
}

// TestAnswerInTurn holds: an object is decoded when its turn has come, which ends with that, and not at all where none comes.
func TestAnswerInTurn(t *testing.T) {
	o, err := merge.ObjectOf([]byte(`{"kind":"Service","metadata":{"name":"a"},"spec":{"selector":{"a":"b"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	a := NewAnswer(anyKind, "c", true)
	var turns []int
	none := errors.New("no turn")
	a.Turn = func(bytes int) (func(), error) {
		turns = append(turns, bytes)
		return func() { turns = append(turns, -bytes) }, err
	}
	for range 2 {
		_, _ = a.Append(nil, o) // nothing more is rewritten
		a.SelectHere()
	}
	if n := len(o.Text); !slices.Equal(turns, []int{n, -n}) {
		t.Errorf("%v", turns)
	}
	err = none
	if _, got := a.Append(nil, o); !errors.Is(got, none) {
		t.Errorf("%v", got)
	}
}
