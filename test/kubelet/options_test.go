package kubelet

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/clusterpass/clusterpass/test/kubelet/crilog"
)

func TestLogOptions(t *testing.T) {
	tests := map[string]struct {
		query        string
		want         crilog.Options
		wantPrevious bool
		wantErr      string
	}{
		"none": {query: ""},
		"all": {
			query:        "follow=true&timestamps=true&tailLines=3&limitBytes=4&stream=All&previous=true",
			want:         crilog.Options{Follow: true, Timestamps: true, Tail: ptr.To[int64](3), Limit: ptr.To[int64](4)},
			wantPrevious: true,
		},
		"time": {
			query: "sinceTime=2026-07-01T12:00:00Z", want: crilog.Options{Since: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)},
		},
		"stream":    {query: "stream=Stderr", want: crilog.Options{Stream: crilog.Stderr}},
		"no number": {query: "tailLines=many", wantErr: `tailLines="many"`},
		"negative":  {query: "limitBytes=-1", wantErr: `limitBytes="-1"`},
		"no bool":   {query: "follow=perhaps", wantErr: `follow="perhaps"`},
		"no time":   {query: "sinceTime=noon", wantErr: `sinceTime="noon"`},
		"no stream": {query: "stream=Stdin", wantErr: `stream="Stdin"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			query, err := url.ParseQuery(test.query)
			if err != nil {
				t.Fatal(err)
			}
			got, previous, err := logOptions(query)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("error %v, want one with %s", err, test.wantErr)
				}
				return
			}
			if err != nil || previous != test.wantPrevious || got.Follow != test.want.Follow ||
				got.Timestamps != test.want.Timestamps ||
				!got.Since.Equal(test.want.Since) || !ptr.Equal(got.Tail, test.want.Tail) ||
				!ptr.Equal(got.Limit, test.want.Limit) || got.Stream != test.want.Stream {
				t.Errorf("got %+v, %t, %v; want %+v, %t", got, previous, err, test.want, test.wantPrevious)
			}
		})
	}
}

func TestSelectItemsStaysInside(t *testing.T) {
	for _, key := range []string{"../out", "/etc/passwd", ""} {
		if got, err := selectItems(map[string]string{key: "x"}, nil); err == nil {
			t.Errorf("%q: got %v", key, slices.Collect(maps.Keys(got)))
		}
	}
}
