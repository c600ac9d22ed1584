package fleet_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// kindNotFound responds as kube-apiserver does for a kind that it lacks.
var kindNotFound = respond(404, "404 page not found\n")

func describeResponse(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", strings.Join(resp.Header["Warning"], " "), "\n", string(body))
}

// TestFleetDeletesWhereKindExists fails if deletecollection needs the kind in every cluster, or hides another failure.
func TestFleetDeletesWhereKindExists(t *testing.T) {
	done := respond(200, podList("10"))
	for name, tt := range map[string]struct {
		third http.HandlerFunc
		query string
		want  []string
		not   string
	}{
		"done": {done, "", []string{"200 299 clusterpass",
			`cluster \"a\": the server could not find the requested resource (left out)`, `"Success"`}, "cluster \\\"b"},
		"strict": {done, "?strict=true", []string{"404 ", `cluster \"a\": the server could not find`,
			`done in cluster \"b\"`, `done in cluster \"c\"`}, "299"},
		"fails": {refuse(403, "Forbidden", "not here"), "",
			[]string{"403 299 clusterpass", `"cluster \"c\": not here; done in cluster \"b\""`}, `done in cluster \"c\"`},
		"no one": {kindNotFound, "?clusters=a,c", []string{"404 ", `cluster \"a\"`, `cluster \"c\"`}, "299"},
	} {
		h, _ := newFleet(t, gatewaytest.Options{}, kindNotFound, done, tt.third)
		got := describeResponse(t, h.Do("DELETE", "/fleet/api/v1/namespaces/x/pods"+tt.query, nil, ""))
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the response lacks %s: %s", name, want, got)
			}
		}
		if strings.Contains(got, tt.not) {
			t.Errorf("%s: the response has %s: %s", name, tt.not, got)
		}
	}
}

// TestFleetBodyOfManyValues fails if the gateway decodes a small body that needs hundreds of MiB.
func TestFleetBodyOfManyValues(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, respond(200, podList("10")), respond(200, podList("10")))
	for _, call := range [][2]string{{"DELETE", "/fleet/api/v1/namespaces/x/pods"},
		{"POST", "/fleet/api/v1/namespaces/x/pods"}, {"PUT", "/fleet/api/v1/namespaces/x/pods/one"}} {
		got := describeResponse(t, h.Do(call[0], call[1], http.Header{"Content-Type": {"application/json"}},
			`{"metadata":{"name":"one@a"},"a":[`+strings.Repeat(`{"":0},`, 200_000)+`0]}`))
		if !strings.HasPrefix(got, "413 ") || !strings.Contains(got, `"RequestEntityTooLarge"`) ||
			!strings.Contains(got, "too many values, over 200000") {
			t.Errorf("%s: %s", call[0], got)
		}
	}
	for _, m := range members {
		if calls := m.TakeRequests(); len(calls) > 0 {
			t.Errorf("a member receives %v", calls)
		}
	}
}

// TestFleetVersionOfSomeClusters fails if a version refuses reads, or permits writes, in a cluster that it lacks.
func TestFleetVersionOfSomeClusters(t *testing.T) {
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x","resourceVersion":"21"}}`
	h, members := newFleet(t, gatewaytest.Options{}, refuse(404, "NotFound", "not found"), respond(200, pod))
	version := map[string]string{}
	for _, name := range []string{"a", "b"} {
		version[name] = cursor.Version{h.clusterID(name): "20"}.String()
	}
	const one = "/fleet/api/v1/namespaces/x/pods/one"
	for of, want := range map[string][]string{"a": {"?resourceVersion=20", ""}, "b": {"", "?resourceVersion=20"}} {
		if got := describeResponse(t, h.Do("GET", one+"?resourceVersion="+version[of], nil, "")); !strings.HasPrefix(got,
			"200 \n") {
			t.Errorf("a get with the version of %s: %s", of, got)
		}
		for i, m := range members {
			if got := m.TakeRequests(); len(got) != 1 || got[0].URI != "/api/v1/namespaces/x/pods/one"+want[i] {
				t.Errorf("a get with the version of %s: member %d receives %+v", of, i, got)
			}
		}
	}
	for _, v := range []string{version["a"], version["b"] + "0"} {
		got := describeResponse(t, h.Do("PUT", one, http.Header{"Content-Type": {"application/json"}},
			strings.Replace(pod, `"21"`, `"`+v+`"`, 1)))
		if !strings.HasPrefix(got, "400 ") {
			t.Errorf("a write with the version %s: %s", v, got)
		}
	}
	if got := describeResponse(t, h.Do("GET", one+"?resourceVersion="+version["b"]+"0", nil, "")); !strings.Contains(got,
		"not one of the fleet's") {
		t.Errorf("a get with no version: %s", got)
	}
}

// TestFleetSubresourceWritesUseClusterOfBody fails if a write of a subresource reaches an object of another cluster.
func TestFleetSubresourceWritesUseClusterOfBody(t *testing.T) {
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x","annotations":{%q:%q}}}`
	const source, placement = "resource.karmada.io/cached-from-cluster", "clusterpass.io/cluster"
	both := func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/gone") {
			refuse(404, "NotFound", `pods "gone" not found`)(w, r)
			return
		}
		respond(200, fmt.Sprintf(pod, "some", "thing"))(w, r)
	}
	h, members := newFleet(t, gatewaytest.Options{}, both, both)
	for _, tt := range []struct {
		method, path, annotation, cluster, want string
		written                                 int // the index of the member that receives the write; -1 for none
	}{
		{"PUT", "/one/status", source, "b", "200 ", 1},
		{"PUT", "/one/status", source, "a", "200 ", 0},
		{"PUT", "/one/status", placement, "b", "200 ", 1},
		{"PATCH", "/one/status", source, "b", "200 ", 1},
		{"PUT", "/one/ephemeralcontainers", source, "b", "200 ", 1},
		{"PUT", "/one/scale", source, "b", "200 ", 1},
		{"POST", "/one/eviction", source, "b", "200 ", 1},
		{"PUT", "/one/status", "none", "b", "409 ", -1},
		{"PUT", "/one/status", source, "c", `no_placement`, -1},
		{"PUT", "/one@a/status", source, "b", "200 ", 0}, // the name has precedence
		{"PUT", "/gone/status", source, "b", `"pods \"gone\" not found"`, 1},
	} {
		contentType := "application/json"
		if tt.method == "PATCH" {
			contentType = "application/merge-patch+json"
		}
		body := fmt.Sprintf(pod, tt.annotation, tt.cluster)
		if got := describeResponse(t, h.Do(tt.method, "/fleet/api/v1/namespaces/x/pods"+tt.path,
			http.Header{"Content-Type": {contentType}}, body)); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s, %s %s: %s", tt.method, tt.path, tt.annotation, tt.cluster, got)
		}
		for i, m := range members {
			writes := 0
			for _, r := range m.TakeRequests() {
				if r.Method != http.MethodGet {
					if writes++; strings.Contains(r.Body, source) {
						t.Errorf("%s %s: the member receives %s", tt.method, tt.path, r.Body)
					}
				}
			}
			if want := tt.written == i; writes != map[bool]int{true: 1}[want] {
				t.Errorf("%s %s, %s %s: %d writes to member %d", tt.method, tt.path, tt.annotation, tt.cluster, writes, i)
			}
		}
	}
}

// TestFleetGetSkipsForbiddenClusters fails if a get needs the right to get in every cluster, or hides another failure.
func TestFleetGetSkipsForbiddenClusters(t *testing.T) {
	details := func(code int, reason, details string) http.HandlerFunc {
		return respond(code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"it is %s",`+
			`"reason":%[1]q,"details":%s,"code":%d}`, reason, details, code))
	}
	const one = `{"name":"one","kind":"pods"}`
	none, forbids := details(404, "NotFound", one), details(403, "Forbidden", one)
	has := respond(200, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x"}}`)
	const hidden = `cluster \"b\": it is Forbidden (left out)`
	for name, tt := range map[string]struct {
		method, path string
		members      []http.HandlerFunc
		code         int
		want         string
		warns        bool
	}{
		"hidden":            {"GET", "/one", []http.HandlerFunc{none, forbids}, 404, "it is NotFound", true},
		"hidden of three":   {"GET", "/one", []http.HandlerFunc{kindNotFound, forbids, none}, 404, "it is NotFound", true},
		"it is elsewhere":   {"GET", "/one", []http.HandlerFunc{has, forbids}, 200, "one", true},
		"strict":            {"GET", "/one?strict=true", []http.HandlerFunc{none, forbids}, 403, "it is Forbidden", false},
		"named":             {"GET", "/one@b", []http.HandlerFunc{none, forbids}, 403, "it is Forbidden", false},
		"named by clusters": {"GET", "/one?clusters=a,b", []http.HandlerFunc{none, forbids}, 403, "it is Forbidden", false},
		"nowhere known":     {"GET", "/one", []http.HandlerFunc{forbids, forbids}, 403, "it is Forbidden", false},
		"without the kind":  {"GET", "/one", []http.HandlerFunc{kindNotFound, forbids}, 403, "it is Forbidden", false},
		"another fails":     {"GET", "/one", []http.HandlerFunc{none, forbids, respond(500, "oops")}, 502, "HTTP 500", false},
		"the gateway may not": {"GET", "/one",
			[]http.HandlerFunc{none, details(403, "Forbidden", `{"name":"alice","kind":"users"}`)}, 403, "it is Forbidden",
			false},
		"a subresource": {"GET", "/one/status", []http.HandlerFunc{none, forbids}, 403, "it is Forbidden", false},
		"logs":          {"GET", "/one/log", []http.HandlerFunc{none, forbids}, 403, "it is Forbidden", false},
		"a deletion":    {"DELETE", "/one", []http.HandlerFunc{none, forbids}, 403, "it is Forbidden", false},
	} {
		h, _ := newFleet(t, gatewaytest.Options{}, tt.members...)
		got := describeResponse(t, h.Do(tt.method, "/fleet/api/v1/namespaces/x/pods"+tt.path, nil, ""))
		if !strings.HasPrefix(got, fmt.Sprint(tt.code, " ")) || !strings.Contains(got, tt.want) ||
			strings.Contains(got, hidden) != tt.warns {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestFleetRefusesOwnersInOtherClusters fails if the garbage collector deletes an object for lack of its owner.
func TestFleetRefusesOwnersInOtherClusters(t *testing.T) {
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x"}}`
	h, members := newFleet(t, gatewaytest.Options{BareWrites: fleet.BareAll}, withObject(""), withObject(pod))
	owners := func(names ...string) string {
		return `"ownerReferences":[{"kind":"Node","uid":"1","name":"` +
			strings.Join(names, `"},{"kind":"Node","uid":"1","name":"`) + `"}]`
	}
	const (
		other   = `metadata.ownerReferences[].name has "n@a", which names cluster "a"`
		several = "objects in several clusters, b, a"
	)
	for _, tt := range []struct{ method, path, contentType, body, stored string }{
		{"POST", "", "json", `{"metadata":{"name":"new@b",` + owners("n@a") + `}}`, ""},
		{"POST", "", "json", `{"metadata":{"name":"new","annotations":{"clusterpass.io/cluster":"b"},` + owners("n@a") +
			`}}`, ""},
		{"POST", "", "json", `{"metadata":{"name":"new",` + owners("n@b", "m@a") + `}}`, ""},
		{"PUT", "/one", "json", `{"metadata":{"name":"one",` + owners("n@a") + `}}`, ""},
		{"PATCH", "/one", "merge-patch+json", `{"metadata":{` + owners("n@a") + `}}`, ""},
		{"PATCH", "/one", "json-patch+json", `[{"op":"add","path":"/metadata/ownerReferences/-","value":{"name":"n@a"}}]`,
			""},
		{"POST", "", "json", `{"metadata":{"name":"new",` + owners("n@b", "m@nobody") + `}}`, `{"metadata":{"name":"new",` +
			owners("n", "m@nobody") + `}}`},
		{"PATCH", "/one", "merge-patch+json", `{"metadata":{` + owners("n@b") + `}}`, `{"metadata":{` + owners("n") + `}}`},
	} {
		resp := h.Do(tt.method, "/fleet/api/v1/namespaces/x/pods"+tt.path,
			http.Header{"Content-Type": {"application/" + tt.contentType}}, tt.body)
		if tt.stored == "" {
			want := other
			if strings.Contains(tt.body, "m@a") {
				want = several
			}
			gatewaytest.WantStatus(t, resp, 422, "no_placement", want)
		} else if resp.StatusCode != 200 {
			t.Errorf("%s %s: %s", tt.method, tt.body, resp.Status)
		}
		var stored []string
		for _, m := range members {
			for _, r := range m.TakeRequests() {
				if r.Method != http.MethodGet {
					stored = append(stored, r.Body)
				}
			}
		}
		var got, want any
		_ = json.Unmarshal([]byte(strings.Join(stored, " ")), &got)
		_ = json.Unmarshal([]byte(tt.stored), &want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s %s: stored %q, want %s", tt.method, tt.body, stored, tt.stored)
		}
	}
}

// TestFleetOneConnection fails if requests to one member open a connection each.
func TestFleetOneConnection(t *testing.T) {
	var from sync.Map
	var calls atomic.Int64
	h, _ := newFleet(t, gatewaytest.Options{}, func(w http.ResponseWriter, r *http.Request) {
		from.Store(r.RemoteAddr, true)
		calls.Add(1)
		respond(200, podList("10", "x/one"))(w, r)
	})
	for range 30 {
		h.list("/fleet/api/v1/pods", nil)
	}
	connections := 0
	from.Range(func(any, any) bool { connections++; return true })
	if connections != 1 || calls.Load() < 30 {
		t.Errorf("%d requests used %d connections", calls.Load(), connections)
	}
}

// TestFleetClusterSelector fails if a list by labels of clusters calls other clusters.
func TestFleetClusterSelector(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, respond(200, podList("10", "x/one")))
	for _, name := range []string{"dev", "prod"} {
		m := clustertest.NewMember(t, respond(200, podList("10", "x/one", "x/two")))
		members = append(members, m)
		if _, err := h.Objects.Create(t.Context(), v1alpha1.Prefix+name,
			[]byte(`{"metadata":{"name":"`+name+`","labels":{"env":"`+name+`"}}}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Secrets.Create(t.Context(), "clusters/"+name, secrets.NewValue(m.Kubeconfig(`{token: t}`)),
			nil); err != nil {
			t.Fatal(err)
		}
	}
	if l, _ := h.list("/fleet/api/v1/pods?clusterSelector=env%3Dprod", nil); l.names() != "one@prod two@prod" {
		t.Errorf("selected by label: %s", l.names())
	}
	if len(members[0].TakeRequests())+len(members[1].TakeRequests()) > 0 {
		t.Error("a cluster that is not selected receives a request")
	}
}
