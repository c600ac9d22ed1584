package fleet

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// partOf is a part of n numbers, and then of what rest gives.
func partOf(t *testing.T, name string, id uint64, n int, rest io.Reader, stop func()) *part {
	t.Helper()
	var items []string
	for i := range n {
		items = append(items, fmt.Sprintf(`{"n":"%s%d"}`, name, i))
	}
	head := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[` + strings.Join(items, ",")
	s, err := merge.Open(name, io.MultiReader(strings.NewReader(head), rest))
	if err != nil {
		t.Fatal(err)
	}
	return &part{Answer: &members.Answer{Target: member(name, id), Stop: stop}, Source: s,
		transform: func(dst []byte, object merge.Object) ([]byte, error) { return append(dst, object.Text...), nil }}
}

func listOfParts(limit int, parts ...*part) (string, error) {
	p := &page{limit: limit, q: &ask{f: New(Config{Log: slog.New(slog.DiscardHandler)})}, version: cursor.Version{}}
	w := httptest.NewRecorder()
	out := newSink(w)
	_, err := p.objects(out, parts)
	return w.Body.String() + string(out.buf), err
}

// TestTurns holds: a list has so many objects of each cluster as a turn has, in their order, then the next ones.
func TestTurns(t *testing.T) {
	end, nothing := strings.NewReader, func() {}
	got, err := listOfParts(0, partOf(t, "a", 1, 2*turn+50, end("]}"), nothing), partOf(t, "b", 2, 0, end("]}"), nothing), partOf(t, "c", 3, turn, end("]}"), nothing), partOf(t, "d", 4, 1, end("]}"), nothing))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	add := func(name string, from, to int) {
		for i := from; i < to; i++ {
			want = append(want, fmt.Sprintf(`{"n":"%s%d"}`, name, i))
		}
	}
	add("a", 0, turn)
	add("c", 0, turn)
	add("d", 0, 1)
	add("a", turn, 2*turn+50)
	if got != strings.Join(want, ",") {
		t.Errorf("got %s", got)
	}
}

// TestPieces holds: a page, and a list, of parts of many pieces each has all of all.
func TestPieces(t *testing.T) {
	const n = 3 * pieceSize / 10
	var want []string
	for _, name := range []string{"a", "b", "c"} {
		for i := range n {
			want = append(want, fmt.Sprintf(`{"n":"%s%d"}`, name, i))
		}
	}
	for _, limit := range []int{0, 3 * n} {
		got, err := listOfParts(limit, partOf(t, "a", 1, n, strings.NewReader("]}"), func() {}), partOf(t, "b", 2, n, strings.NewReader("]}"), func() {}), partOf(t, "c", 3, n, strings.NewReader("]}"), func() {}))
		has := strings.Split(got, ",")
		if slices.Sort(has); err != nil || !slices.Equal(has, slices.Sorted(slices.Values(want))) {
			t.Errorf("up to %d: %d of %d objects, %v", limit, len(has), len(want), err)
		}
	}
}

// TestTurnsBreakOff holds: a list of which one part fails, or is not foreseen, ends with that, while another still stands open.
func TestTurnsBreakOff(t *testing.T) {
	for name, spoil := range map[string]func(*part){
		"a broken object": func(*part) {},
		"a transform": func(one *part) {
			one.transform = func([]byte, merge.Object) ([]byte, error) { return nil, errors.New("no") }
		},
		"an end that is none": func(one *part) { one.transform = func([]byte, merge.Object) ([]byte, error) { return nil, io.EOF } },
		"a panic": func(one *part) {
			one.transform = func([]byte, merge.Object) ([]byte, error) { panic("not foreseen") }
		},
	} {
		open, stop := io.Pipe()
		waits := partOf(t, "a", 1, turn, open, func() { _ = stop.CloseWithError(errors.New("stopped")) })
		fails := partOf(t, "b", 2, 1, strings.NewReader(",x"), func() {})
		spoil(fails)
		if got, err := listOfParts(0, waits, fails); err == nil || strings.Contains(err.Error(), "stopped") { // its end was waited for
			t.Errorf("%s: %v, %d bytes", name, err, len(got))
		}
	}
}
