package list

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
)

// partOf returns a part of n numbers, followed by the text of rest.
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
	pool := members.NewPool(members.Config{Log: slog.New(slog.DiscardHandler)})
	p := &page{limit: limit, client: pool.Client(members.Caller{}), req: &request.Request{}, version: cursor.Version{}}
	recorder := httptest.NewRecorder()
	w := &writer{page: p, out: newSink(recorder), stop: func() {
		for _, one := range parts {
			one.Stop()
		}
	}}
	_, err := w.objects(parts)
	return recorder.Body.String() + string(w.out.buf), err
}

// TestListAlternatesBetweenClusters fails if a client could not see objects of each cluster early in a list.
func TestListAlternatesBetweenClusters(t *testing.T) {
	end, nothing := strings.NewReader, func() {}
	got, err := listOfParts(0, partOf(t, "a", 1, 2*roundSize+50, end("]}"), nothing),
		partOf(t, "b", 2, 0, end("]}"), nothing), partOf(t, "c", 3, roundSize, end("]}"), nothing), partOf(t, "d", 4, 1,
			end("]}"), nothing))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	add := func(name string, from, to int) {
		for i := from; i < to; i++ {
			want = append(want, fmt.Sprintf(`{"n":"%s%d"}`, name, i))
		}
	}
	add("a", 0, roundSize)
	add("c", 0, roundSize)
	add("d", 0, 1)
	add("a", roundSize, 2*roundSize+50)
	if got != strings.Join(want, ",") {
		t.Errorf("got %s", got)
	}
}

// TestLargePartsAreComplete fails if a list or page with large parts lacked objects.
func TestLargePartsAreComplete(t *testing.T) {
	const n = 3 * chunkSize / 10
	var want []string
	for _, name := range []string{"a", "b", "c"} {
		for i := range n {
			want = append(want, fmt.Sprintf(`{"n":"%s%d"}`, name, i))
		}
	}
	for _, limit := range []int{0, 3 * n} {
		got, err := listOfParts(limit, partOf(t, "a", 1, n, strings.NewReader("]}"), func() {}),
			partOf(t, "b", 2, n, strings.NewReader("]}"), func() {}), partOf(t, "c", 3, n, strings.NewReader("]}"), func() {}))
		has := strings.Split(got, ",")
		if slices.Sort(has); err != nil || !slices.Equal(has, slices.Sorted(slices.Values(want))) {
			t.Errorf("up to %d: %d of %d objects, %v", limit, len(has), len(want), err)
		}
	}
}

// TestBrokenPartEndsList fails if a list did not end after one part failed, while another part stays open.
func TestBrokenPartEndsList(t *testing.T) {
	for name, breakPart := range map[string]func(*part){
		"a broken object": func(*part) {},
		"a transform": func(one *part) {
			one.transform = func([]byte, merge.Object) ([]byte, error) { return nil, errors.New("no") }
		},
		"an end that is none": func(one *part) {
			one.transform = func([]byte, merge.Object) ([]byte, error) { return nil, io.EOF }
		},
		"a panic": func(one *part) {
			one.transform = func([]byte, merge.Object) ([]byte, error) { panic("cannot be handled") }
		},
	} {
		open, stop := io.Pipe()
		waits := partOf(t, "a", 1, roundSize, open, func() { _ = stop.CloseWithError(errors.New("stopped")) })
		fails := partOf(t, "b", 2, 1, strings.NewReader(",x"), func() {})
		breakPart(fails)
		if got, err := listOfParts(0, waits, fails); err == nil || strings.Contains(err.Error(), "stopped") {
			t.Errorf("%s: %v, %d bytes", name, err, len(got))
		}
	}
}

func member(name string, id uint64) members.Target {
	return members.Target{Entry: members.Entry{
		Cluster: &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, ID: id},
		Scope: registry.Scope{All: true}}
}

// TestLongestToken fails if the continue token of the fleet did not fit into a request line of 16 KB.
func TestLongestToken(t *testing.T) {
	token := cursor.Token{Version: cursor.Version{}, Next: 1_000_000, Continue: strings.Repeat("x", merge.MaxContinue-2)}
	for i := range uint64(50) {
		token.Version[token.Next+i] = "18446744073709551615"
	}
	if n := len(token.String()); n > 14<<10 {
		t.Errorf("%d bytes", n)
	}
}

// TestMajorityDecidesColumns fails if one cluster could decide which columns come first.
func TestMajorityDecidesColumns(t *testing.T) {
	table := func(id uint64, names ...string) *part {
		one := &part{Answer: &members.Answer{Target: member("m", id)}, Source: &merge.Source{}}
		for _, n := range names {
			one.Columns = append(one.Columns, merge.Column{Name: n, Text: []byte(`{}`)})
		}
		return one
	}
	for want, parts := range map[string][]*part{
		"Name  Phase junk Age": {
			table(1, "junk"), table(3, "Name", "Age"), table(2, "Name", "Phase"), table(4, "Name", "Age"),
		},
		"Name  Age Ready": {table(7, "Age"), table(2, "Name", "Ready")},
	} {
		var got []string
		for _, c := range merge.NewLayout(columnsOf(parts)...).Columns {
			got = append(got, c.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestListReadsFewMembersAtATime fails if the memory of a list grows with the number of its clusters.
func TestListReadsFewMembersAtATime(t *testing.T) {
	const n = 3 * maxStarted
	var ended atomic.Int32
	var parts []*part
	var want []string
	for i := range n {
		name := fmt.Sprintf("m%d", i)
		one := partOf(t, name, uint64(i+1), 2, strings.NewReader("]}"), func() {})
		read := 0
		one.transform = func(dst []byte, object merge.Object) ([]byte, error) {
			if int(ended.Load()) <= i-maxStarted {
				return nil, fmt.Errorf("cluster %d is read while %d clusters have ended", i, ended.Load())
			}
			if read++; read == 2 {
				ended.Add(1)
			}
			return append(dst, object.Text...), nil
		}
		parts, want = append(parts, one), append(want, fmt.Sprintf(`{"n":"%s0"},{"n":"%s1"}`, name, name))
	}
	got, err := listOfParts(0, parts...)
	if err != nil || got != strings.Join(want, ",") {
		t.Errorf("%v, got %s", err, got)
	}
}
