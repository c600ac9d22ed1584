package fleet_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

const rulesReview = `{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1",` +
	`"spec":{"namespace":"x"}}`

// rulesStatus responds with rules in JSON for resources.
func rulesStatus(rules string) http.HandlerFunc {
	return reviewStatus(`{"resourceRules":[` + rules +
		`],"nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/version"]}],"incomplete":false}`)
}

// rules describes the answer to a rules review.
func (h *fixture) rules(path, body string) string {
	h.t.Helper()
	var review authorizationv1.SelfSubjectRulesReview
	h.review(path, body, nil, &review)
	var out []string
	for _, r := range review.Status.ResourceRules {
		out = append(out, fmt.Sprintf("%v %v %v", r.Verbs, r.Resources, r.ResourceNames))
	}
	for _, r := range review.Status.NonResourceRules {
		out = append(out, fmt.Sprintf("%v %v", r.Verbs, r.NonResourceURLs))
	}
	return fmt.Sprintf("%s|%t|%s", strings.Join(out, ", "), review.Status.Incomplete, review.Status.EvaluationError)
}

// TestFleetRulesReview fails if users see rights that they have in no cluster, or an incomplete list as a complete one.
func TestFleetRulesReview(t *testing.T) {
	const (
		pods    = `{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]}`
		same    = `{"verbs":["list","get"],"apiGroups":[""],"resources":["pods"]}`
		secrets = `{"verbs":["*"],"apiGroups":[""],"resources":["secrets"],"resourceNames":["one"]}`
		// allVerbs are those of a rule with all verbs, of which the gateway permits some.
		allVerbs = "create delete deletecollection get list patch update watch"
		differ   = "the clusters have different rules; for those of one cluster, ask with a namespace NAMESPACE@CLUSTER"
	)
	unsure := reviewStatus(`{"resourceRules":[],"nonResourceRules":[],"incomplete":true,"evaluationError":"no webhook"}`)
	for name, tt := range map[string]struct {
		members []http.HandlerFunc
		want    string
	}{
		"agree": {[]http.HandlerFunc{rulesStatus(pods), rulesStatus(same)},
			"[get list] [pods] [], [get] [/version]|false|"},
		"one has": {[]http.HandlerFunc{rulesStatus(pods)}, "[get list] [pods] [], [get] [/version]|false|"},
		"differ": {[]http.HandlerFunc{rulesStatus(pods), rulesStatus(secrets + "," + pods)},
			"[get list] [pods] [], [*] [secrets] [one], [get] [/version]|true|" + differ},
		"one is down": {[]http.HandlerFunc{rulesStatus(pods), refuse(503, "ServiceUnavailable", "it starts")},
			`[get list] [pods] [], [get] [/version]|true|cluster "b": it starts`},
		"one is incomplete": {[]http.HandlerFunc{unsure, unsure},
			`|true|cluster "a": no webhook; cluster "b": no webhook`},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newFleet(t, gatewaytest.Options{}, tt.members...)
			if got := h.rules("/fleet"+rulesReviews, rulesReview); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
	h, members := newFleet(t, gatewaytest.Options{}, rulesStatus(pods), rulesStatus(secrets))
	h.Grant("readers", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["get"]}`)
	got := h.rules("/fleet/@"+rulesReviews, strings.Replace(rulesReview, `"x"`, `"x@b"`, 1))
	if got != "[*] [secrets] [one], [get] [/version]|false|" {
		t.Errorf("a namespace of one cluster: %s", got)
	}
	if got := reviewsOf(members[1]); len(got) != 1 || !strings.Contains(got[0], `"spec":{"namespace":"x"}`) {
		t.Errorf("the cluster receives %q", got)
	}
	h.LogIn("bob", "readers")
	if got := h.rules("/fleet"+rulesReviews+"?clusters=b", rulesReview); got !=
		"[get list watch] [secrets] [one], [get] [/version]|false|" {
		t.Errorf("a caller who may only read: %s", got)
	}
	h, _ = newFleet(t, gatewaytest.Options{}, rulesStatus(
		`{"verbs":["get","create"],"resources":["pods","pods/exec","pods/log"]},{"verbs":["*"],"resources":["*/attach"]}`))
	streams := map[string]string{ // an upgrade needs create
		"get":    "[get] [pods pods/log] [], [get] [/version]|false|",
		"create": "[create] [pods pods/log] [], [create get] [pods/exec] [], [" + allVerbs + "] [*/attach] []|false|",
		"*":      "[create get] [pods pods/exec pods/log] [], [*] [*/attach] [], [get] [/version]|false|",
	}
	for verb := range streams {
		h.Grant("only-"+strings.Trim(verb, "*"),
			`{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["`+verb+`"]}`)
	}
	for verb, want := range streams {
		h.LogIn("bob", "only-"+strings.Trim(verb, "*"))
		if got := h.rules("/fleet"+rulesReviews, rulesReview); got != want {
			t.Errorf("streams of a caller with the verb %s: %s\nwant %s", verb, got, want)
		}
	}
	h.LogIn("eve", "strangers")
	if got := h.rules("/fleet"+rulesReviews, rulesReview); got != "|false|"+
		"no ResourceRegistry of search.karmada.io/v1alpha1 selects a cluster that you may call" {
		t.Errorf("a caller without a grant: %s", got)
	}
}

// TestFleetReviewHostileMembers fails if an answer that is no review, or a huge one, is believed or needs much memory.
func TestFleetReviewHostileMembers(t *testing.T) {
	const kind = `"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1",`
	warns := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warning", `299 clusterpass "cluster \"a\" is compromised"`)
		allows(w, r)
	}
	for name, tt := range map[string]struct {
		member http.HandlerFunc
		want   string
	}{
		"another kind": {respond(201, `{"kind":"Pod","apiVersion":"v1","status":{"allowed":true}}`), "its answer is no"},
		"another version": {respond(201, `{"kind":"SelfSubjectAccessReview","apiVersion":"x/v1","status":{"allowed":true}}`),
			"its answer is no"},
		"other letters": {respond(201, `{`+kind+`"Status":{"Allowed":true}}`), "clusters that do not: a"},
		"text":          {respond(201, `{`+kind+`"status":{"allowed":"true"}}`), "cannot be read"},
		"no JSON":       {respond(201, `allowed`), "cannot be read"},
		"a success":     {respond(200, `{"kind":"Status","apiVersion":"v1","code":200}`), "its answer is no"},
		"huge":          {reviewStatus(`{"allowed":true,"reason":"` + strings.Repeat("x", 1<<20) + `"}`), "over"},
		"many values": {respond(201, `{`+kind+`"spec":{"resourceAttributes":{"fieldSelector":{"requirements":[`+
			strings.Repeat("{},", 10_000)+`{}]}}},"status":{"allowed":true}}`), "too many values"},
		"also denied": {reviewStatus(`{"allowed":true,"denied":true}`), "clusters that do not: a"},
		"a long reason": {reviewStatus(`{"allowed":false,"reason":"` + strings.Repeat("x", 1000) + `"}`),
			"(" + strings.Repeat("x", 400) + "...)"},
	} {
		h, _ := newFleet(t, gatewaytest.Options{}, tt.member)
		if got := h.canI("/fleet"+accessReviews, accessReview("list", "")); !strings.HasPrefix(got, "false|") ||
			!strings.Contains(got, tt.want) || len(got) > 1000 {
			t.Errorf("%s: %.2000s", name, got)
		}
	}
	h, _ := newFleet(t, gatewaytest.Options{}, warns)
	if got := h.canI("/fleet"+accessReviews, accessReview("list", "")); strings.Contains(got, "compromised") {
		t.Errorf("a member's warning reads as the gateway's: %s", got)
	}
	many := strings.TrimSuffix(strings.Repeat(`{"verbs":["get"],"resources":["pods"]},`, 20_000), ",")
	for name, rules := range map[string]string{
		"many rules": many, "a long rule": `{"verbs":["get"],"resources":["` + strings.Repeat("x", 1<<20) + `"]}`,
	} {
		h, _ := newFleet(t, gatewaytest.Options{}, rulesStatus(rules), rulesStatus(`{"verbs":["get"],"resources":["pods"]}`))
		if got := h.rules("/fleet"+rulesReviews, rulesReview); len(got) > 1000 ||
			!strings.HasPrefix(got, "[get] [pods] [], [get] [/version]|true|") || !strings.Contains(got, `cluster "a"`) {
			t.Errorf("%s: %.2000s", name, got)
		}
	}
}

func protobufReview(t *testing.T, spec authorizationv1.SelfSubjectAccessReviewSpec) string {
	t.Helper()
	raw, err := (&authorizationv1.SelfSubjectAccessReview{Spec: spec}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	types := runtime.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
	out, err := (&runtime.Unknown{TypeMeta: types, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return "k8s\x00" + string(out)
}

// TestFleetReviewBodies fails if a client's form of a review is refused, or if a large one is decoded.
func TestFleetReviewBodies(t *testing.T) {
	h, members := newFleet(t, gatewaytest.Options{}, allows)
	spec := authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "x@a", Verb: "list", Resource: "pods"},
	}
	for contentType, body := range map[string]string{
		"application/json": accessReview("list", `,"namespace":"x@a"`),
		"application/yaml": "kind: SelfSubjectAccessReview\napiVersion: authorization.k8s.io/v1\n" +
			"spec:\n  resourceAttributes: {namespace: x@a, verb: list, resource: pods}\n",
		"application/vnd.kubernetes.protobuf": protobufReview(t, spec),
	} {
		var review authorizationv1.SelfSubjectAccessReview
		h.review("/fleet"+accessReviews, body, http.Header{
			"Content-Type": {contentType}, "Accept": {"application/vnd.kubernetes.protobuf, application/json"},
		}, &review)
		if !review.Status.Allowed || review.Spec.ResourceAttributes.Namespace != "x@a" {
			t.Errorf("%s: %+v", contentType, review)
		}
	}
	if got := reviewsOf(members[0]); len(got) != 1 {
		t.Errorf("for the same question in other forms, the cluster receives %q", got)
	}
	for body, want := range map[string]string{
		`{"kind":"SelfSubjectRulesReview"}`:  "400 ",
		`{"spec":`:                           "400 ",
		`{"spec":{"resourceAttributes":[]}}`: "400 ",
		accessReview("list", `,"name":"`+strings.Repeat("x", 64<<10)+`"`):     "413 ",
		strings.Repeat(" ", 1<<20) + accessReview("list", `,"namespace":"x"`): "413 ",
	} {
		if got := describeResponse(t, h.Do("POST", "/fleet"+accessReviews, inJSON, body)); !strings.HasPrefix(got, want) {
			t.Errorf("%.100s: %s", body, got)
		}
	}
	for header, want := range map[string]http.Header{
		"415 ": {"Content-Type": {"text/plain"}},
		"406 ": {"Content-Type": {"application/json"}, "Accept": {"application/vnd.kubernetes.protobuf"}},
	} {
		got := describeResponse(t, h.Do("POST", "/fleet"+accessReviews, want, accessReview("list", "")))
		if !strings.HasPrefix(got, header) {
			t.Errorf("%v: %s", want, got)
		}
	}
	invalid := refuse(422, "Invalid", "spec.resourceAttributes.verb: Required value")
	h, _ = newFleet(t, gatewaytest.Options{}, invalid, invalid)
	if got := describeResponse(t, h.Do("POST", "/fleet"+accessReviews, inJSON, accessReview("", ""))); !strings.HasPrefix(
		got, "422 ") || !strings.Contains(got, "Required value") {
		t.Errorf("a review that every cluster refuses: %s", got)
	}
}
