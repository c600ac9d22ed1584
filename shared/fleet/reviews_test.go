package fleet_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

const (
	accessReviews  = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	rulesReviews   = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	subjectReviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

var inJSON = http.Header{"Content-Type": {"application/json"}}

// reviewStatus responds to a review of the kind of the request with a status in JSON.
func reviewStatus(status string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case accessReviews:
			respond(201, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},`+
				`"spec":{},"status":`+status+`}`)(w, r)
		case rulesReviews:
			respond(201, `{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","metadata":{},`+
				`"spec":{},"status":`+status+`}`)(w, r)
		default:
			kindNotFound(w, r)
		}
	}
}

// neverAnswers reads nothing and answers nothing until the caller has gone.
func neverAnswers(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

var (
	allows = reviewStatus(`{"allowed":true,"reason":"RBAC: so it is"}`)
	denies = reviewStatus(`{"allowed":false,"reason":"not here"}`)
)

// accessReview returns a SelfSubjectAccessReview for a verb on pods. fields follow the verb in resourceAttributes.
func accessReview(verb, fields string) string {
	return fmt.Sprintf(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":`+
		`{"resourceAttributes":{"resource":"pods","verb":%q%s}}}`, verb, fields)
}

// review sends a review and decodes the answer.
func (h *fixture) review(path, body string, header http.Header, into any) *http.Response {
	h.t.Helper()
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/json")
	}
	text, resp := h.DoText("POST", path, header, body)
	if err := json.Unmarshal([]byte(text), into); err != nil || resp.StatusCode != http.StatusCreated {
		h.t.Fatalf("%s: %s %s", path, resp.Status, text)
	}
	return resp
}

// canI describes the answer to an access review, with its warnings.
func (h *fixture) canI(path, body string) string {
	h.t.Helper()
	var review authorizationv1.SelfSubjectAccessReview
	resp := h.review(path, body, nil, &review)
	s := review.Status
	return fmt.Sprintf("%t|%s|%s|%s", s.Allowed, s.Reason, s.EvaluationError, strings.Join(resp.Header["Warning"], " "))
}

func reviewsOf(m *clustertest.Member) (bodies []string) {
	for _, r := range m.Requests() {
		if r.Method == "POST" {
			bodies = append(bodies, r.Body)
		}
	}
	return bodies
}

// TestFleetAccessReview fails if dashboards cannot start on the fleet, or show actions that no cluster allows.
func TestFleetAccessReview(t *testing.T) {
	down := refuse(503, "ServiceUnavailable", "it starts")
	for name, tt := range map[string]struct {
		members    []http.HandlerFunc
		query      string
		fields     string
		want       string
		notContain string
	}{
		"one allows": {
			[]http.HandlerFunc{denies, allows}, "", "",
			"true|clusters that allow it: b; clusters that do not: a||", "so it is",
		},
		"none allows": {[]http.HandlerFunc{denies, denies}, "", "", "false|clusters that do not: a, b||", ""},
		"one allows, one is down": {
			[]http.HandlerFunc{allows, down}, "", "",
			`true|clusters that allow it: a||299 clusterpass "cluster \"b\": it starts (left out)"`, "",
		},
		"none allows, one is down": {
			[]http.HandlerFunc{denies, down}, "", "",
			`false|clusters that do not: a|cluster "b": it starts|`, "299",
		},
		"strict, one denies": {
			[]http.HandlerFunc{denies, allows}, "?strict=true", "",
			"false|clusters that allow it: b; clusters that do not: a||", "",
		},
		"strict, all allow": {
			[]http.HandlerFunc{allows, allows}, "?strict=true", "", "true|clusters that allow it: a, b||", "",
		},
		"strict, one is down": {
			[]http.HandlerFunc{allows, down}, "?strict=true", "",
			`false|clusters that allow it: a|cluster "b": it starts|`, "",
		},
		"a namespace of one cluster": {
			[]http.HandlerFunc{allows, denies}, "", `,"namespace":"x@b"`,
			"false|clusters that do not: b (not here)||", "",
		},
		"a name of one cluster": {
			[]http.HandlerFunc{allows, denies}, "", `,"namespace":"x","name":"web@a"`,
			"true|clusters that allow it: a (RBAC: so it is)||", "",
		},
		"a parameter": {
			[]http.HandlerFunc{allows, denies}, "?clusters=b", "", "false|clusters that do not: b (not here)||", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, prefix := range []string{"/fleet", "/fleet/@", allClusters} {
				h, _ := newFleet(t, gatewaytest.Options{}, tt.members...)
				got := h.canI(prefix+accessReviews+tt.query, accessReview("list", tt.fields))
				if got != tt.want || tt.notContain != "" && strings.Contains(got, tt.notContain) {
					t.Errorf("%s: %s\nwant %s", prefix, got, tt.want)
				}
			}
		})
	}
}

// TestFleetReviewOfOneCluster fails if a cluster is asked for a name that it does not have, or if the answer has other
// fields than the question.
func TestFleetReviewOfOneCluster(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, allows, allows)
	var review authorizationv1.SelfSubjectAccessReview
	h.review("/fleet"+accessReviews, accessReview("get", `,"namespace":"x@b","name":"web@b"`), nil, &review)
	if of := review.Spec.ResourceAttributes; of.Namespace != "x@b" || of.Name != "web@b" {
		t.Errorf("the answer has %+v", of)
	}
	want := `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":` +
		`{"namespace":"x","verb":"get","resource":"pods","name":"web"}}}`
	if got := reviewsOf(members[1]); len(got) != 1 || got[0] != want {
		t.Errorf("the cluster receives %q", got)
	}
	if got := reviewsOf(members[0]); got != nil {
		t.Errorf("another cluster receives %q", got)
	}
	for body, want := range map[string]string{
		accessReview("get", `,"namespace":"x@a","name":"web@b"`): "several clusters",
		accessReview("get", `,"namespace":"x@nowhere"`):          `no cluster "nowhere"`,
	} {
		if got := describeResponse(t, h.Do("POST", "/fleet"+accessReviews, inJSON, body)); !strings.HasPrefix(got, "40") ||
			!strings.Contains(strings.ReplaceAll(got, `\`, ""), want) {
			t.Errorf("%s: %s", body, got)
		}
	}
	if got := describeResponse(t, h.Do("POST", "/fleet"+accessReviews+"?clusters=a", inJSON,
		accessReview("get", `,"namespace":"x@b"`))); !strings.HasPrefix(got, "400 ") {
		t.Errorf("a parameter for another cluster: %s", got)
	}
}

// TestFleetReviewHonorsGrants fails if a review promises what the gateway refuses, or names a hidden cluster.
func TestFleetReviewHonorsGrants(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, allows, allows, reviewStatus(`{"allowed":true}`))
	of := func(verbs, cluster string) string {
		return `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":[` + verbs +
			`],"resourceNames":["` + cluster + `"]}`
	}
	h.Grant("readers", of(`"get"`, "a"))
	h.Grant("writers", of(`"get","create"`, "a")+","+of(`"*"`, "b"))
	for _, tt := range []struct{ groups, review, want string }{
		{"readers", accessReview("list", ""), "true|clusters that allow it: a (RBAC: so it is)||"},
		{"readers", accessReview("delete", ""), "false|clusters that do not: a (you lack delete on clusters/proxy)||"},
		{"readers", accessReview("get", `,"subresource":"exec"`),
			"false|clusters that do not: a (you lack create on clusters/proxy)||"},
		{"readers", accessReview("*", ""),
			"false|clusters that do not: a (you lack create, update, patch, delete on clusters/proxy)||"},
		{"readers", accessReview("use", ""), "true|clusters that allow it: a (RBAC: so it is)||"},
		{"writers", accessReview("create", ""), "true|clusters that allow it: a, b||"},
		{"writers", accessReview("deletecollection", ""),
			"true|clusters that allow it: b (RBAC: so it is); clusters that do not: a (you lack delete on clusters/proxy)||"},
		{"strangers", accessReview("list", ""),
			"false|no ResourceRegistry of search.karmada.io/v1alpha1 selects a cluster that you may call||"},
	} {
		h.LogIn("bob", tt.groups)
		if got := h.canI("/fleet"+accessReviews, tt.review); got != tt.want {
			t.Errorf("%s, %s: %s", tt.groups, tt.review, got)
		}
		if resp := h.Do("POST", "/fleet"+accessReviews+"?clusters=c", inJSON, tt.review); resp.StatusCode != 403 {
			t.Errorf("%s ask a hidden cluster: %s", tt.groups, resp.Status)
		}
		resp := h.Do("POST", "/fleet"+accessReviews, inJSON, accessReview("get", `,"namespace":"x@c"`))
		if resp.StatusCode != 403 {
			t.Errorf("%s ask a namespace of a hidden cluster: %s", tt.groups, resp.Status)
		}
	}
	if got := members[2].Requests(); len(got) > 0 {
		t.Errorf("a cluster without a grant receives %v", got)
	}
}

// TestFleetReviewOfProxies fails if a review promises a proxy subresource that the gateway refuses.
func TestFleetReviewOfProxies(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, allows, allows)
	h.EditCluster("b", func(c *v1alpha1.Cluster) { c.Spec.ServiceProxy = []string{"pods/x/web", "pods/y/*"} })
	const (
		refusesA = "a (its spec.serviceProxy does not allow that)"
		none     = "false|clusters that do not: " + refusesA + ", b (its spec.serviceProxy does not allow that)||"
		onlyB    = "true|clusters that allow it: b (RBAC: so it is); clusters that do not: " + refusesA + "||"
	)
	for fields, want := range map[string]string{
		`,"subresource":"proxy","namespace":"x","name":"web"`:    onlyB,
		`,"subresource":"proxy","namespace":"x","name":"web:80"`: onlyB,
		`,"subresource":"proxy","namespace":"y"`:                 onlyB,
		`,"subresource":"proxy","namespace":"x","name":"db"`:     none,
		`,"subresource":"proxy","namespace":"x"`:                 none,
		`,"subresource":"proxy"`:                                 none,
		`,"subresource":"log","namespace":"x","name":"db"`:       "true|clusters that allow it: a, b||",
	} {
		if got := h.canI("/fleet"+accessReviews, accessReview("get", fields)); got != want {
			t.Errorf("%s: %s", fields, got)
		}
	}
	rules := rulesStatus(`{"verbs":["*"],"resources":["pods","pods/proxy"]},{"verbs":["get"],"resources":["nodes/proxy"]}`)
	h, _ = newFleet(t, gatewaytest.Options{}, rules)
	for _, tt := range []struct {
		entries []string
		want    string
	}{
		{nil, "[*] [pods] [], [get] [/version]|false|"},
		{[]string{"pods/x/*", "nodes/*"}, "[*] [pods pods/proxy] [], [get] [nodes/proxy] [], [get] [/version]|false|"},
		{[]string{"pods/x/*", "nodes/n"}, "[*] [pods pods/proxy] [], [get] [/version]|true|cluster \"a\": proxy " +
			"subresources are left out, because its spec.serviceProxy allows only some objects"},
	} {
		h.EditCluster("a", func(c *v1alpha1.Cluster) { c.Spec.ServiceProxy = tt.entries })
		if got := h.rules("/fleet"+rulesReviews, rulesReview); got != tt.want {
			t.Errorf("rules with %q: %s", tt.entries, got)
		}
	}
}

// TestFleetReviewOfCoveredClusters fails if a review asks clusters in which the fleet serves nothing.
func TestFleetReviewOfCoveredClusters(t *testing.T) {
	h := newGateway(t, gatewaytest.Options{ControlPlane: "cp"})
	for _, name := range []string{"a", "b", "cp"} {
		h.AddCluster(name, clustertest.NewMember(t, allows).Kubeconfig(`{token: t}`))
	}
	h.AddRegistry("pods", `{"targetCluster":{"clusterNames":["b"]},`+
		`"resourceSelectors":[{"apiVersion":"v1","kind":"Pod"}]}`)
	if got := h.canI("/fleet"+accessReviews, accessReview("list", "")); got != "true|clusters that allow it: b, cp||" {
		t.Error(got)
	}
	if got := h.canI("/fleet"+accessReviews+"?clusters=a", accessReview("list", "")); got !=
		"false|no ResourceRegistry of search.karmada.io/v1alpha1 selects a cluster that you may call||" {
		t.Error(got)
	}
}

// TestFleetReviewConveysIdentity fails if a cluster is asked without the caller's identity, or is left out silently.
func TestFleetReviewConveysIdentity(t *testing.T) {
	h, _ := newFleet(t, gatewaytest.Options{}, denies)
	silent := clustertest.NewMember(t, func(http.ResponseWriter, *http.Request) {
		t.Error("a cluster is called that cannot identify the caller")
	})
	h.AddCluster("p", silent.Kubeconfig(`{token: t}`), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	h.AddCluster("d", silent.Kubeconfig(`{token: t}`),
		func(s *v1alpha1.ClusterSpec) { s.Identity, s.DirectUsers = v1alpha1.Direct, []string{"bob"} })
	got := h.canI("/fleet"+accessReviews, accessReview("list", ""))
	if !strings.HasPrefix(got, "false|clusters that do not: a (not here)||") ||
		!strings.Contains(got, `cluster \"p\" needs your own bearer token (left out)`) ||
		!strings.Contains(got, `cluster \"d\" is registered with identity direct`) {
		t.Error(got)
	}
	got = h.canI("/fleet"+accessReviews, accessReview("list", `,"namespace":"x@p"`))
	if got != `false||cluster "p" needs your own bearer token|` {
		t.Error(got)
	}
	got = h.canI("/fleet"+accessReviews+"?strict=true", accessReview("list", ""))
	if !strings.HasPrefix(got, "false|clusters that do not: a|") || !strings.Contains(got, `cluster "p" needs your own`) {
		t.Error(got)
	}
}

// headerIdentity identifies callers by headers, with a Scope and extras.
type headerIdentity struct{}

func (headerIdentity) Method() string { return "header" }

func (headerIdentity) Authenticate(r *http.Request) (*identity.User, error) {
	u := &identity.User{Name: r.Header.Get("Test-User"), UID: r.Header.Get("Test-Uid"), Groups: []string{"dev"}}
	u.Groups = append(u.Groups, r.Header["Test-Group"]...)
	if v := r.Header["Test-Extra"]; v != nil {
		u.Extra = map[string][]string{"scopes": v}
	}
	if verbs := r.Header["Test-Scope"]; verbs != nil {
		u.Scope = &identity.Scope{Clusters: []string{"*"}, Verbs: verbs}
	}
	return u, nil
}

// TestFleetReviewCache fails if one caller gets another's answer, if an answer outlives ten seconds, or if a caller who
// asks again reaches the clusters again.
func TestFleetReviewCache(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	h, members := newFleet(t, gatewaytest.Options{
		Now:       func() time.Time { return time.Unix(0, now.Load()) },
		Configure: func(c *gateway.Config) { c.Identity = identity.Chain{headerIdentity{}} },
	}, allows)
	h.Grant("impersonators", `{"apiGroups":[""],"resources":["users"],"verbs":["impersonate"]}`)
	alice := http.Header{"Test-User": {"alice"}}
	with := func(key string, values ...string) http.Header {
		out := alice.Clone()
		out[key] = values
		return out
	}
	ask := func(header http.Header, path, body string) int {
		t.Helper()
		before := len(reviewsOf(members[0]))
		var review authorizationv1.SelfSubjectAccessReview
		h.review(path, body, header, &review)
		return len(reviewsOf(members[0])) - before
	}
	list := accessReview("list", "")
	for name, header := range map[string]http.Header{
		"alice": alice, "another user": with("Test-User", "bob"), "another uid": with("Test-Uid", "7"),
		"another group": with("Test-Group", "more"), "an extra": with("Test-Extra", "one"),
		"another extra": with("Test-Extra", "two"), "a scoped pass": with("Test-Scope", "get"),
		"an impersonator": {"Test-User": {"root"}, "Test-Group": {"impersonators"}, "Impersonate-User": {"alice"},
			"Impersonate-Group": {"dev"}},
	} {
		if name == "an impersonator" {
			h.Grant("dev-impersonators", `{"apiGroups":[""],"resources":["groups"],"verbs":["impersonate"]}`)
			header["Test-Group"] = []string{"impersonators", "dev-impersonators"}
		}
		var n int
		waittest.Until(t, name+" is allowed to ask", func() bool { // a grant is effective within seconds
			resp := h.Do("GET", "/fleet/version", header, "")
			return resp.StatusCode != 403
		})
		if n = ask(header, "/fleet"+accessReviews, list); n != 1 {
			t.Errorf("%s: %d calls, want 1", name, n)
		}
		if n = ask(header, "/fleet"+accessReviews, list); n != 0 {
			t.Errorf("%s asks again: %d calls, want 0", name, n)
		}
	}
	for path, body := range map[string]string{
		"/fleet" + accessReviews + "?strict=true": list,
		"/fleet" + accessReviews:                  accessReview("get", ""),
		"/fleet/@" + accessReviews:                accessReview("list", `,"namespace":"x"`),
	} {
		if n := ask(alice, path, body); n != 1 {
			t.Errorf("another question, %s %s: %d calls, want 1", path, body, n)
		}
	}
	now.Add(int64(10 * time.Second))
	if n := ask(alice, "/fleet"+accessReviews, list); n != 1 {
		t.Errorf("after ten seconds: %d calls, want 1", n)
	}
	h.Delete("clusterrolebindings/dev")
	waittest.Until(t, "the grant is revoked", func() bool {
		var review authorizationv1.SelfSubjectAccessReview
		h.review("/fleet"+accessReviews, list, alice, &review)
		return !review.Status.Allowed && strings.HasPrefix(review.Status.Reason, "no ResourceRegistry")
	})
}

// TestFleetReviewAsksFew fails if one review occupies a connection to every cluster of a large fleet at once.
func TestFleetReviewAsksFew(t *testing.T) {
	const clusters, most = 40, 32
	var asked, finished atomic.Int64
	full, proceed := make(chan struct{}), make(chan struct{})
	handler := func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == most {
			close(full)
		}
		<-proceed
		asked := asked.Load() // before finished, so that the difference is never too large
		if now := asked - finished.Add(1) + 1; now > most {
			t.Errorf("%d clusters are asked at once", now)
		}
		denies(w, r)
	}
	h := newGateway(t, gatewaytest.Options{})
	member := clustertest.NewMember(t, handler)
	for i := range clusters {
		h.AddCluster(fmt.Sprintf("c%02d", i), member.Kubeconfig(`{token: t}`))
	}
	h.AddRegistry("pods", allPods)
	answer := make(chan string, 1)
	go func() { answer <- h.canI("/fleet"+accessReviews, accessReview("list", "")) }() // ends with the gateway
	<-full
	close(proceed)
	if got := awaitResult(t, "the review", func() string { return <-answer }); strings.Count(got, "c") < clusters ||
		!strings.HasPrefix(got, "false|clusters that do not: c00, c01") {
		t.Error(got)
	}
	if n := asked.Load(); n != clusters {
		t.Errorf("%d clusters were asked", n)
	}
}

// TestFleetReviewHangs fails if a frozen cluster delays the answer of another one, or each review anew.
func TestFleetReviewHangs(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	now := time.Now()
	h, _ := newFleet(t, gatewaytest.Options{GracePeriod: time.Millisecond}, allows, neverAnswers)
	got := awaitResult(t, "a review that one cluster allows", func() string {
		return h.canI("/fleet"+accessReviews, accessReview("list", ""))
	})
	if !strings.HasPrefix(got, "true|clusters that allow it: a||") ||
		!strings.Contains(got, `cluster \"b\": no answer within 1ms after another cluster allowed it (left out)`) {
		t.Error(got)
	}
	frozen := clustertest.NewMember(t, neverAnswers)
	h, _ = newFleet(t, gatewaytest.Options{FleetDeadline: hangDeadline, Now: func() time.Time { return now }}, denies)
	h.AddCluster("b", frozen.Kubeconfig(`{token: t}`))
	h.Do("GET", "/fleet/version", nil, "")
	got = h.canI("/fleet"+accessReviews, accessReview("list", ""))
	want := fmt.Sprintf(`false|clusters that do not: a|cluster "b" did not answer within %s|`, hangDeadline)
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := reviewsOf(frozen); got != nil {
		t.Errorf("after discovery has waited for a cluster, a review asks it: %q", got)
	}
}

// TestFleetWhoAmI fails if users cannot find out their identity at the gateway, or if a cluster decides it.
func TestFleetWhoAmI(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, respond(200, `{}`))
	h.Grant("impersonators", `{"apiGroups":[""],"resources":["users","groups"],"verbs":["impersonate"]},
		{"apiGroups":["authentication.k8s.io"],"resources":["userextras/scopes"],"verbs":["impersonate"]}`)
	h.LogIn("root", "impersonators")
	who := func(header http.Header) string {
		var review authenticationv1.SelfSubjectReview
		h.review("/fleet/@"+subjectReviews, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`, header,
			&review)
		u := review.Status.UserInfo
		return fmt.Sprintf("%s %s %v %v", review.Kind, u.Username, u.Groups, u.Extra)
	}
	if got := who(nil); got != "SelfSubjectReview root [impersonators system:authenticated] map[]" {
		t.Error(got)
	}
	if got := who(http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"painters"},
		"Impersonate-Extra-Scopes": {"view"}}); got != "SelfSubjectReview carol [painters system:authenticated] "+
		"map[clusterpass.io/original-user:[root] scopes:[view]]" {
		t.Error(got)
	}
	if got := members[0].Requests(); len(got) > 0 {
		t.Errorf("the cluster receives %v", got)
	}
}

// TestFleetReviewDiscovery fails if clients that read discovery first believe that the fleet has no reviews.
func TestFleetReviewDiscovery(t *testing.T) {
	const empty = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`
	h, _ := newFleet(t, gatewaytest.Options{}, respond(200, empty))
	for path, want := range map[string][]string{
		"/apis":                         {`"authorization.k8s.io/v1"`, `"authentication.k8s.io/v1"`},
		"/apis/authorization.k8s.io":    {`"authorization.k8s.io/v1"`},
		"/apis/authorization.k8s.io/v1": {`"selfsubjectaccessreviews"`, `"selfsubjectrulesreviews"`},
		"/apis/authentication.k8s.io/v1": {`{"name":"selfsubjectreviews","singularName":"selfsubjectreview",` +
			`"namespaced":false,"group":"authentication.k8s.io","version":"v1","kind":"SelfSubjectReview","verbs":["create"]`},
	} {
		for _, prefix := range []string{"/fleet", "/fleet/@"} {
			got := describeResponse(t, h.Do("GET", prefix+path, nil, ""))
			if !strings.Contains(got, "no kind is global") ||
				slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(got, w) }) {
				t.Errorf("%s: %s", path, got)
			}
		}
	}
}
