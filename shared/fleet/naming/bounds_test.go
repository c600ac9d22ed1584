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

// TestAnswerBounded would fail if an object could exhaust memory, or if the largest objects of etcd were refused.
func TestAnswerBounded(t *testing.T) {
	a := NewAnswer(anyKind, "c", true, slots(nil))
	a.AddClusterToSelectors()
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
	if out, _, err := rewrite(large.String()); err != nil ||
		!strings.Contains(string(out), `"clusterpass.io/cluster":"c"`) {
		t.Errorf("%v", err)
	}
	status := []byte(`{"kind":"Status","details":{"name":"a","x":[` + strings.Repeat(`{"":0},`, 300_000) + `0]}}`)
	if out := a.Status(status); string(out) != string(status) {
		t.Errorf("%.100s", out)
	}
	a = NewAnswer(anyKind, "c", true, slots(nil))
	a.QualifyClaims()
	if out, bytes, err := rewrite(bomb); err != nil || !strings.Contains(string(out), `"name":"a@c"`) || bytes > 8<<20 {
		t.Errorf("%v, %d bytes", err, bytes)
	}
}

// slots are DecodeSlots; nil has no limit.
type slots func(bytes int) (release func(), err error)

func (s slots) AcquireDecodeSlot(bytes int) (release func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	return s(bytes)
}

// TestAnswerAcquiresDecodeSlot would fail if many objects were decoded at once, or if a slot were never released.
func TestAnswerAcquiresDecodeSlot(t *testing.T) {
	o, err := merge.ObjectOf([]byte(`{"kind":"Service","metadata":{"name":"a"},"spec":{"selector":{"a":"b"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var acquired []int
	errNoSlot := errors.New("no slot")
	a := NewAnswer(anyKind, "c", true, slots(func(bytes int) (func(), error) {
		acquired = append(acquired, bytes)
		return func() { acquired = append(acquired, -bytes) }, err
	}))
	for range 2 {
		_, _ = a.Append(nil, o) // the first call decodes nothing
		a.AddClusterToSelectors()
	}
	if n := len(o.Text); !slices.Equal(acquired, []int{n, -n}) {
		t.Errorf("%v", acquired)
	}
	err = errNoSlot
	if _, got := a.Append(nil, o); !errors.Is(got, errNoSlot) {
		t.Errorf("%v", got)
	}
}
