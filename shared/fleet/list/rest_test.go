package list

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// TestRestOfPart fails if a list contained objects of another moment or form after the first one, or lacked some.
func TestRestOfPart(t *testing.T) {
	const first = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"t"},` +
		`"items":[{"n":"a0"}]}`
	const table = `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9","continue":"t"},` +
		`"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["a0"]}]}`
	for name, tt := range map[string]struct{ first, rest, want, err string }{
		"the rest": {first, strings.Replace(first, `,"continue":"t"`, "", 1), `{"n":"a0"},{"n":"a0"}`, ""},
		"another version": {first, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[]}`, "",
			"at version"},
		"another kind": {first, `{"kind":"JobList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}`, "",
			"another format"},
		"other columns": {table, strings.Replace(table, "Name", "Age", 1), "", "another format"},
		"another page":  {first, first, "", "a page instead of the whole list"},
		"an error":      {first, "", "", "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			open := func(text string) *merge.Source {
				s, err := merge.Open("a", strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			one := &part{Answer: &members.Answer{Target: member("a", 1), Stop: func() {}}, Source: open(tt.first),
				transform: func(dst []byte, o merge.Object) ([]byte, error) { return append(dst, o.Text...), nil }}
			one.rest = func(token string) (*members.Answer, *merge.Source, error) {
				if token != "t" || tt.rest == "" {
					return nil, nil, errors.New("unavailable")
				}
				return &members.Answer{Stop: func() {}}, open(tt.rest), nil
			}
			got, err := listOfParts(0, one)
			switch {
			case tt.err == "" && (err != nil || got != tt.want):
				t.Errorf("%s, %v", got, err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("%v, want %q", err, tt.err)
			}
		})
	}
}

// TestLimitToFirst fails if the first object could be older than the client permits, or if the rest came with it.
func TestLimitToFirst(t *testing.T) {
	for in, want := range map[string]string{
		"a=b":               "a=b&limit=1",
		"resourceVersion=0": "limit=1",
		"resourceVersion=0&resourceVersionMatch=NotOlderThan": "limit=1",
		"resourceVersion=5":                            "limit=1&resourceVersion=5&resourceVersionMatch=NotOlderThan",
		"resourceVersion=5&resourceVersionMatch=Exact": "limit=1&resourceVersion=5&resourceVersionMatch=Exact",
	} {
		query, err := url.ParseQuery(in)
		if err != nil {
			t.Fatal(err)
		}
		if limitToFirst(query); query.Encode() != want {
			t.Errorf("%s becomes %s, want %s", in, query.Encode(), want)
		}
	}
}
