package list

import (
	"net/url"
	"testing"
)

// TestLimitToFirst fails if the first request asked for another moment than the client, or hid that it is invalid.
func TestLimitToFirst(t *testing.T) {
	for in, want := range map[string]string{
		"a=b":               "a=b&limit=1",
		"resourceVersion=0": "limit=1&resourceVersion=0&resourceVersionMatch=NotOlderThan",
		"resourceVersion=5": "limit=1&resourceVersion=5&resourceVersionMatch=NotOlderThan",
		"resourceVersion=5&resourceVersionMatch=Exact": "limit=1&resourceVersion=5&resourceVersionMatch=Exact",
		"resourceVersion=0&resourceVersionMatch=Exact": "limit=1&resourceVersion=0&resourceVersionMatch=Exact",
		"resourceVersionMatch=Exact":                   "limit=1&resourceVersionMatch=Exact",
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
