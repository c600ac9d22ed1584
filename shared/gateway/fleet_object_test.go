package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// lacksKind answers as kube-apiserver does for a kind that it has not.
var lacksKind = sends(404, "404 page not found\n")

// answered is the answer's code, its warnings and its body.
func answered(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", strings.Join(resp.Header["Warning"], " "), "\n", string(body))
}

// TestFleetDeletesWhereTheKindIs holds: to delete a collection succeeds where some clusters do not have the kind, and says which; any other
// failure stays one.
func TestFleetDeletesWhereTheKindIs(t *testing.T) {
	done := sends(200, podList("10"))
	for name, tt := range map[string]struct {
		third http.HandlerFunc
		query string
		want  []string
		not   string
	}{
		"done":   {done, "", []string{"200 299 clusterpass", `cluster \"a\": the server could not find the requested resource (left out)`, `"Success"`}, "cluster \\\"b"},
		"strict": {done, "?strict=true", []string{"404 ", `cluster \"a\": the server could not find`, `done in cluster \"b\"`, `done in cluster \"c\"`}, "299"},
		"fails":  {refuses(403, "Forbidden", "not here"), "", []string{"403 299 clusterpass", `"cluster \"c\": not here; done in cluster \"b\""`}, `done in cluster \"c\"`},
		"no one": {lacksKind, "?clusters=a,c", []string{"404 ", `cluster \"a\"`, `cluster \"c\"`}, "299"},
	} {
		h, _ := fleetOf(t, lacksKind, done, tt.third)
		got := answered(t, h.do("DELETE", "/fleet/api/v1/namespaces/x/pods"+tt.query, nil, ""))
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: it lacks %s: %s", name, want, got)
			}
		}
		if strings.Contains(got, tt.not) {
			t.Errorf("%s: it has %s: %s", name, tt.not, got)
		}
	}
}
