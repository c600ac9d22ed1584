package fleet_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// servePages returns the handler of a member with n pods in pages, with remainingItemCount as of kube-apiserver.
func servePages(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		from, _ := strconv.Atoi(strings.TrimPrefix(query.Get("continue"), "from-"))
		to, metadata := n, `"resourceVersion":"10"`
		if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && from+limit < n {
			to = from + limit
			metadata += fmt.Sprintf(`,"continue":"from-%d"`, to)
			if query.Get("labelSelector") == "" {
				metadata += fmt.Sprintf(`,"remainingItemCount":%d`, n-to)
			}
		}
		var items []string
		for i := from; i < to; i++ {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":"p%d","namespace":"x","resourceVersion":"7"}}`, i))
		}
		const list = `{"kind":"PodList","apiVersion":"v1","metadata":{%s},"items":[%s]}`
		respond(200, fmt.Sprintf(list, metadata, strings.Join(items, ",")))(w, r)
	}
}

// remainders returns the remainingItemCount of each page, -1 for none, and the number of items.
func (h *fixture) remainders(query string) (counts []int64, items int) {
	h.t.Helper()
	for cont := ""; ; {
		l, _ := h.list("/fleet/api/v1/pods?"+query+"&continue="+cont, nil)
		items += len(l.Items)
		if cont = l.Metadata.Continue; cont == "" {
			if l.Metadata.RemainingItemCount != nil {
				h.t.Errorf("the last page reports %d", *l.Metadata.RemainingItemCount)
			}
			return counts, items
		}
		count := int64(-1)
		if n := l.Metadata.RemainingItemCount; n != nil {
			count = *n
		}
		counts = append(counts, count)
	}
}

// TestFleetPagesCountRemainingItems fails if a client cannot show the progress of a list of several clusters.
func TestFleetPagesCountRemainingItems(t *testing.T) {
	silent := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("limit") == "1" {
			refuse(500, "InternalError", "no")(w, r)
			return
		}
		servePages(3)(w, r)
	}
	for name, tt := range map[string]struct {
		query   string
		members []http.HandlerFunc
		want    []int64
		items   int
	}{
		"one cluster": {"limit=3", []http.HandlerFunc{servePages(7)}, []int64{4, 1}, 7},
		"a cut in the second": {"limit=4", []http.HandlerFunc{servePages(3), servePages(9), servePages(2)},
			[]int64{10, 6, 2}, 14},
		"a cut between two": {"limit=3", []http.HandlerFunc{servePages(3), servePages(2), servePages(2)}, []int64{4, 1}, 7},
		"more clusters than a page asks": {
			"limit=2", []http.HandlerFunc{servePages(2), servePages(1), servePages(1), servePages(0), servePages(1),
				servePages(2)},
			[]int64{5, 3, 1}, 7,
		},
		"a selector": {"limit=5&labelSelector=a", []http.HandlerFunc{servePages(3), servePages(5)},
			[]int64{-1}, 8},
		"one of one without pages": {"limit=5", []http.HandlerFunc{servePages(7), silent}, []int64{-1}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newFleet(t, gatewaytest.Options{}, tt.members...)
			got, items := h.remainders(tt.query)
			if !slices.Equal(got, tt.want) || items != tt.items {
				t.Errorf("%d items, and remaining %d; want %d and %d", items, got, tt.items, tt.want)
			}
		})
	}
}

// TestFleetPagesWithoutCount fails if the fleet reports a count although one cluster reports none.
func TestFleetPagesWithoutCount(t *testing.T) {
	page := func(count string) http.HandlerFunc {
		return respond(200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10","continue":"more"`+count+
			`},"items":[{"metadata":{"name":"one","namespace":"x"}}]}`)
	}
	for name, count := range map[string]string{
		"none": "", "negative": `,"remainingItemCount":-5`, "absurd": `,"remainingItemCount":9223372036854775807`,
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newFleet(t, gatewaytest.Options{}, page(count), page(`,"remainingItemCount":5`))
			l, _ := h.list("/fleet/api/v1/pods?limit=1", nil)
			if l.Metadata.Continue == "" || l.Metadata.RemainingItemCount != nil {
				t.Errorf("%+v", l.Metadata)
			}
		})
	}
}
