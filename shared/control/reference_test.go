package control_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/control"
	"github.com/clusterpass/clusterpass/shared/identity"
)

const (
	roles      = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	bindings   = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	registries = "/apis/search.karmada.io/v1alpha1/resourceregistries"
	protobuf   = "application/vnd.kubernetes.protobuf"
	tableType  = "application/json;as=Table;v=v1;g=meta.k8s.io"
	metaType   = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
)

// step is a request. Its type is that of its body, or the accepted type if it has none.
type step struct{ method, path, media, body string }

func role(name, rest string) string {
	return `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"` + name + `"` + rest
}

func resourceRegistry(name, rest string) string {
	return `{"apiVersion":"search.karmada.io/v1alpha1","kind":"ResourceRegistry","metadata":{"name":"` + name + `"` + rest
}

func binding(name string) string {
	return `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"` + name +
		`"},"roleRef":{"kind":"ClusterRole","name":"a"},"subjects":[{"kind":"User","name":"eve"}]}`
}

const (
	rules     = `},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`
	selectors = `},"spec":{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"Pod"}]}}`
	jsonType  = "application/json"
	patchType = "application/json-patch+json"
	applyType = "application/apply-patch+yaml"
	strategic = "application/strategic-merge-patch+json"
)

// steps depend on those before them.
var steps = map[string][]step{
	"creates": {
		{"POST", roles, jsonType, role("a", `,"labels":{"l":"1"}`+rules)},
		{"POST", roles, jsonType, role("a", rules)},
		{"POST", roles, "application/yaml", "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, " +
			"metadata: {name: b, generateName: unused-, labels: {l: '2'}}, rules: []}"},
		{"POST", roles, jsonType, `{"metadata":{"generateName":"gen-"},"rules":[]}`},
		{"POST", roles, "text/plain", role("c", rules)},
		{"POST", roles, jsonType, role("c", `},"rules":[{}]}`)},
		{"POST", roles, jsonType, role("c/d", rules)},
		{"POST", roles, jsonType, role("..", rules)},
		{"POST", roles, jsonType, role("", rules)},
		{"POST", roles, jsonType, `{"kind":`},
		{"POST", roles, jsonType, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}`},
		{"POST", roles, jsonType, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding"}`},
		{"POST", roles, jsonType, role("c", `,"namespace":"default"`+rules)},
		{"POST", roles, jsonType, role("c", `,"resourceVersion":"3"`+rules)},
		{"POST", roles + "?dryRun=All", jsonType, role("c", rules)},
		{"POST", roles + "?dryRun=All", jsonType, role("a", rules)},
		{"POST", roles + "?dryRun=Some", jsonType, role("c", rules)},
		{"POST", roles + "?fieldValidation=Strict", jsonType, role("c", `},"unknown":1,"rules":[]}`)},
		{"POST", roles + "?fieldValidation=Warn&dryRun=All", jsonType, role("c", `},"unknown":1,"rules":[]}`)},
		{"POST", roles + "?fieldManager=" + strings.Repeat("x", 200), jsonType, role("c", rules)},
		{"POST", registries, jsonType, resourceRegistry("r", `},"status":{"conditions":[]},"spec":{}}`)},
		{"POST", registries, jsonType, resourceRegistry("r", selectors)},
		{"POST", registries, protobuf, "k8s"},
		{"POST", roles + "/a", jsonType, role("a", rules)},
		{"GET", roles, "", ""},
	},
	"reads": {
		{"POST", roles, jsonType, role("a", `,"labels":{"l":"1"}`+rules)},
		{"POST", roles, jsonType, role("b", `,"labels":{"l":"2"}`+rules)},
		{"POST", roles, jsonType, role("c", `,"labels":{"l":"2"}`+rules)},
		{"GET", roles + "/a", "", ""}, {"GET", roles + "/a", "application/yaml", ""},
		{"GET", roles + "/a", protobuf, ""}, {"GET", roles + "/a", tableType, ""}, {"GET", roles + "/a", metaType, ""},
		{"GET", roles + "/a", "text/plain", ""}, {"GET", roles + "/a?resourceVersion=1000", "", ""},
		{"GET", roles + "/a?pretty=true", "", ""}, {"GET", registries + "/none", protobuf, ""},
		{"GET", roles + "/none", "", ""}, {"HEAD", roles + "/a", "", ""}, {"OPTIONS", roles + "/a", "", ""},
		{"GET", roles, "", ""}, {"GET", roles, tableType, ""}, {"GET", roles, metaType + "List", ""},
		{"GET", roles + "?limit=2", "", ""}, {"GET", roles + "?limit=2&continue=bad", "", ""},
		{"GET", roles + "?limit=1&labelSelector=l%3D2", "", ""}, {"GET", roles + "?labelSelector=l%3D%3D%3D", "", ""},
		{"GET", roles + "?fieldSelector=metadata.name%3Db", "", ""},
		{"GET", roles + "?fieldSelector=metadata.name!%3Db", "", ""},
		{"GET", roles + "?fieldSelector=rules%3Db", "", ""},
		{"GET", roles + "?resourceVersionMatch=Exact", "", ""}, {"GET", roles + "?resourceVersion=1000", "", ""},
		{"GET", roles + "?resourceVersion=x", "", ""}, {"GET", roles + "?includeObject=None", tableType, ""},
		{"GET", roles + "?resourceVersion=1&resourceVersionMatch=Exact", "", ""},
		{"GET", roles + "?sendInitialEvents=true", "", ""},
		{"GET", roles + "//a", "", ""}, {"GET", roles + "/a/", "", ""}, {"GET", roles + "/a%2Fb", "", ""},
		{"POST", "/apis/rbac.authorization.k8s.io/v1/watch/clusterroles", jsonType, role("d", rules)},
		{"DELETE", "/apis/rbac.authorization.k8s.io/v1/watch/clusterroles/a", "", ""},
	},
	"other kinds": {
		{"POST", bindings, jsonType, binding("a")}, {"PUT", bindings + "/b", jsonType, binding("b")},
		{"GET", bindings, tableType, ""}, {"DELETE", bindings + "/a", "", ""},
		{"POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", jsonType, `{}`},
		{"GET", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "", ""},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews?dryRun=All", jsonType,
			`{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`},
		{"POST", clusters, jsonType, `{"metadata":{"name":"m"},"spec":{"syncMode":"Pull"}}`},
		{"PATCH", clusters + "/m/status", mergePatch, `{"status":{"kubernetesVersion":"v1.36.0"}}`},
		{"PUT", clusters + "/m", jsonType, `{"metadata":{"name":"m"},"spec":{"syncMode":"Pull","region":"r"}}`},
		{"GET", clusters, tableType, ""}, {"DELETE", clusters, "", ""}, {"GET", clusters + "/m", "", ""},
	},
	"watches": {
		{"POST", roles, jsonType, role("a", rules)}, {"PUT", roles + "/b", jsonType, role("b", rules)},
		{"DELETE", roles + "/a", "", ""},
		{"GET", roles + "?watch=true&resourceVersion=1&timeoutSeconds=1", "", ""},
		{"GET", roles + "?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&" +
			"resourceVersionMatch=NotOlderThan", tableType, ""},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/watch/clusterroles/b?timeoutSeconds=1", "", ""},
		{"GET", roles + "?watch=true&resourceVersion=x", "", ""},
	},
	"updates": {
		{"PUT", roles + "/a", jsonType, role("a", rules)}, {"PUT", roles + "/a", jsonType, role("a", rules)},
		{"PUT", roles + "/a", jsonType, role("a", `,"labels":{"l":"1"}`+rules)},
		{"PUT", roles + "/a?dryRun=All", jsonType, role("a", `,"labels":{"l":"3"}`+rules)},
		{"PUT", roles + "/d?dryRun=All", jsonType, role("d", rules)}, {"GET", roles + "/d", "", ""},
		{"PUT", roles + "/a", jsonType, role("a", `,"resourceVersion":"1"`+rules)},
		{"PUT", roles + "/a", jsonType, role("a", `,"uid":"other"`+rules)},
		{"PUT", roles + "/d", jsonType, role("d", `,"uid":"other"`+rules)},
		{"PUT", roles + "/a", jsonType, role("b", rules)}, {"PUT", roles + "/a", jsonType, role("a", `},"rules":[{}]}`)},
		{"PUT", roles + "/e", jsonType, role("e", `},"rules":[{}]}`)},
		{"PUT", roles, jsonType, role("a", rules)}, {"PUT", registries + "/r", jsonType, resourceRegistry("r", selectors)},
		{"POST", registries, jsonType, resourceRegistry("r", selectors)},
		{"PUT", registries + "/r/status", jsonType, resourceRegistry("r", `},"status":{"conditions":[{"type":"Ready",`+
			`"status":"True","reason":"Is","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]},"spec":{}}`)},
		{"PUT", registries + "/r/status", jsonType, resourceRegistry("r", `},"status":{"conditions":[{}]},"spec":{}}`)},
		{"PUT", registries + "/none/status", jsonType, resourceRegistry("none", selectors)},
		{"PATCH", registries + "/r/status", mergePatch, `{"metadata":{"labels":{"a":"b"}},"spec":{"resourceSelectors":[]}}`},
		{"GET", registries + "/r/status", "", ""}, {"DELETE", registries + "/r/status", "", ""},
		{"GET", registries + "/r/scale", "", ""}, {"GET", registries + "/r/status/more", "", ""},
		{"GET", "/apis/search.karmada.io/v1alpha1/namespaces/n/resourceregistries", "", ""},
		{"GET", registries, tableType, ""},
	},
	"patches": {
		{"PATCH", roles + "/a", mergePatch, `{"rules":[]}`},
		{"PATCH", roles + "/a?fieldManager=one", applyType, role("a", `,"labels":{"l":"1"}`+rules)},
		{"PATCH", roles + "/a?fieldManager=two", applyType, role("a", `,"labels":{"l":"2"}}}`)},
		{"PATCH", roles + "/a?fieldManager=two&force=true", applyType, role("a", `,"labels":{"l":"2"}}}`)},
		{"PATCH", roles + "/a?fieldManager=one", applyType, role("a", `}}`)},
		{"PATCH", roles + "/a", applyType, role("a", `}}`)},
		{"PATCH", roles + "/z?fieldManager=one&dryRun=All", applyType, role("z", `}}`)},
		{"PATCH", registries + "/z?fieldManager=one", applyType, resourceRegistry("z", selectors)},
		{"PATCH", registries + "/y?fieldManager=one", applyType, resourceRegistry("y", `}}`)},
		{"PATCH", roles + "/a", mergePatch, `{"metadata":{"annotations":{"a":"b"}}}`},
		{"PATCH", roles + "/a", mergePatch, `{}`}, {"PATCH", roles + "/a", mergePatch, `{"metadata":{"name":"b"}}`},
		{"PATCH", roles + "/a", mergePatch, `{"metadata":{"resourceVersion":"1"}}`},
		{"PATCH", roles + "/a", mergePatch, `{"rules":[{}]}`}, {"PATCH", roles + "/a", "text/plain", `{}`},
		{"PATCH", roles + "/a", patchType, `[{"op":"replace","path":"/rules","value":[]}]`},
		{"PATCH", roles + "/a", patchType, `[{"op":"test","path":"/metadata/name","value":"b"}]`},
		{"PATCH", roles + "/a", strategic, `{"metadata":{"labels":{"l":null,"m":"1"}}}`},
		{"PATCH", registries + "/z", strategic, `{"metadata":{"labels":{"m":"1"}}}`},
		{"PATCH", roles + "/a?dryRun=All", mergePatch, `{"metadata":{"labels":{"n":"1"}}}`},
		{"PATCH", roles, mergePatch, `{}`}, {"GET", roles, "", ""},
	},
	"deletions": {
		{"POST", roles, jsonType, role("a", `,"labels":{"l":"1"},"finalizers":["example.com/f"]`+rules)},
		{"POST", roles, jsonType, role("b", `,"labels":{"l":"2"}`+rules)},
		{"POST", roles, jsonType, role("c", `,"labels":{"l":"2"}`+rules)}, {"POST", roles, jsonType, role("d", rules)},
		{"DELETE", roles + "/a?dryRun=All", "", ""}, {"DELETE", roles + "/b?dryRun=All", "", ""},
		{"DELETE", roles + "/a", jsonType, `{"preconditions":{"uid":"other"}}`},
		{"DELETE", roles + "/b", jsonType, `{"preconditions":{"resourceVersion":"1"}}`},
		{"DELETE", roles + "/b", jsonType, `{"propagationPolicy":"Foreground","orphanDependents":true}`},
		{"DELETE", roles + "/a?propagationPolicy=Background&gracePeriodSeconds=9", "", ""},
		{"DELETE", roles + "/a", "", ""}, {"POST", roles, jsonType, role("a", rules)},
		{"PATCH", roles + "/a", mergePatch, `{"metadata":{"finalizers":["example.com/f","example.com/g"]}}`},
		{"PATCH", roles + "/a?dryRun=All", mergePatch, `{"metadata":{"finalizers":null}}`},
		{"PATCH", roles + "/a", mergePatch, `{"metadata":{"finalizers":null,"labels":{"l":"3"}}}`},
		{"GET", roles + "/a", "", ""}, {"DELETE", roles + "/a", "", ""},
		{"DELETE", roles + "?labelSelector=l%3D2&dryRun=All", "", ""}, {"DELETE", roles + "?labelSelector=l%3D2", "", ""},
		{"DELETE", roles + "/d", jsonType, `{"kind":"DeleteOptions","apiVersion":"v1"}`},
		{"POST", roles, jsonType, role("a", `,"finalizers":["example.com/f"]`+rules)},
		{"POST", roles, jsonType, role("b", rules)}, {"POST", roles, jsonType, role("c", rules)},
		{"DELETE", roles + "?limit=2", "", ""}, {"DELETE", roles, "", ""}, {"GET", roles, "", ""},
	},
}

// TestLikeKubernetes fails if a request for a resource has another result than in the server and the registry of
// k8s.io/apiserver.
func TestLikeKubernetes(t *testing.T) {
	for name, steps := range steps {
		t.Run(name, func(t *testing.T) {
			ours, reference := newInstallation(t).gateway().api, newInstallation(t).gateway().api
			own, library := ours.Resources(), reference.Reference(t)
			for _, s := range steps {
				var got, want string
				var sent sync.WaitGroup // at once, since a watch lasts a second
				sent.Go(func() { got = s.send(t, own) })
				sent.Go(func() { want = s.send(t, library) })
				sent.Wait()
				if code := want[:3]; code == "406" || code == "415" { // the library's router has another text
					got, want = got[:3], code
				}
				if got != want {
					t.Errorf("%s %s %s\n got %s\nwant %s", s.method, s.path, s.body, got, want)
				}
			}
		})
	}
}

// volatile matches what differs between two servers: UIDs, times, ages and generated names.
var volatile = regexp.MustCompile(
	`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|20\d\d-\d\d-\d\dT[0-9:]+Z|"\d+s"|gen-[a-z0-9]{5}`)

// closeNotifier is what the library's server expects of a response before it flushes watches.
type closeNotifier struct{ *httptest.ResponseRecorder }

func (closeNotifier) CloseNotify() <-chan bool { return nil }

func (s step) send(t *testing.T, to http.Handler) string {
	t.Helper()
	ctx := control.WithCaller(t.Context(), &identity.User{Name: "root", Groups: []string{access.Masters}})
	r := httptest.NewRequestWithContext(ctx, s.method, s.path, strings.NewReader(s.body))
	r.Header.Set("User-Agent", "test")
	if s.body != "" {
		r.Header.Set("Content-Type", s.media)
	} else if s.media != "" {
		r.Header.Set("Accept", s.media)
	}
	w := httptest.NewRecorder()
	to.ServeHTTP(closeNotifier{w}, r)
	h := w.Header()
	body := volatile.ReplaceAllString(w.Body.String(), "*")
	if h.Get("Content-Type") == protobuf { // with times of varying lengths
		body = fmt.Sprint(strings.HasPrefix(body, "k8s\x00"))
	}
	return fmt.Sprintln(w.Code, h.Get("Content-Type"), h["Warning"], h["Cache-Control"], h["Vary"], body)
}
