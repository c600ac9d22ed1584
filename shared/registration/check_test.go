package registration

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/api/clusterpass/login"
	"github.com/clusterpass/clusterpass/shared/cluster/plugintest"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// member is a fake API server. The credential may impersonate the resources in may, as resource.String prints them.
type member struct {
	user string // user name of the credential; "" before Kubernetes 1.28
	code int    // status code of the answers to reviews; 0 for a real answer
	may  []string
	some bool // may impersonate groups by name
	gate bool // publishes login methods, as a gateway does
}

func (m *member) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/version" {
		_, _ = io.WriteString(w, `{"gitVersion":"v1.99.0"}`)
		return
	}
	if r.URL.Path == login.Path {
		if m.gate {
			_, _ = io.WriteString(w, `{"oidc":[{"url":"https://login.example.com","audiences":["cp"]}]}`)
			return
		}
		http.NotFound(w, r)
		return
	}
	if m.code != 0 {
		w.WriteHeader(m.code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","message":%q}`, fmt.Sprintf("User %q cannot create it", m.user))
		return
	}
	switch r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] {
	case "selfsubjectreviews":
		if m.user == "" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `{"status":{"userInfo":{"username":%q}}}`, m.user)
	case "selfsubjectaccessreviews":
		var review struct {
			Spec struct{ ResourceAttributes resource }
		}
		_ = json.NewDecoder(r.Body).Decode(&review)
		allowed := false
		for _, one := range m.may {
			allowed = allowed ||
				one == review.Spec.ResourceAttributes.String() && review.Spec.ResourceAttributes.Verb == "impersonate"
		}
		_, _ = fmt.Fprintf(w, `{"status":{"allowed":%v}}`, allowed)
	case "selfsubjectrulesreviews":
		names := ""
		if m.some {
			names = `"dev"`
		}
		_, _ = fmt.Fprintf(w,
			`{"status":{"incomplete":true,"resourceRules":[{"verbs":["get"],"apiGroups":["*"],"resources":["*"]},
			{"verbs":["impersonate"],"apiGroups":[""],"resources":["groups"],"resourceNames":[%s]}]}}`, names)
	}
}

// TestCredentialIsTriedOut: a credential that lacks rights for its identity mode is refused before anything is stored.
func TestCredentialIsTriedOut(t *testing.T) {
	const (
		arn      = "userextras/arn in authentication.k8s.io"
		original = "userextras/clusterpass.io/original-user in authentication.k8s.io"
		pass     = "userextras/clusterpass.io/pass in authentication.k8s.io"
	)
	all := []string{"users", "groups", "serviceaccounts", "uids in authentication.k8s.io", arn, original, pass}
	allBut := func(gone string) (left []string) {
		for _, one := range all {
			if one != gone {
				left = append(left, one)
			}
		}
		return left
	}
	tests := []struct {
		name     string
		member   member
		identity v1alpha1.Identity
		want     v1alpha1.Identity
		wantErr  string
	}{
		{"everything", member{user: "a", may: all}, "impersonate", "impersonate", ""},
		{"everything, not asked for", member{user: "a", may: all}, "", "impersonate", ""},
		{"some groups", member{user: "a", may: allBut("groups"), some: true}, "impersonate", "impersonate", ""},
		{"some groups, not asked for", member{user: "a", may: allBut("groups"), some: true}, "", "direct", ""},
		{"no groups", member{user: "a", may: allBut("groups")}, "impersonate", "", "may not impersonate groups;"},
		{
			"no uids", member{user: "a", may: allBut("uids in authentication.k8s.io")}, "impersonate", "",
			"may not impersonate uids in authentication.k8s.io;",
		},
		{"no extras", member{user: "a", may: []string{"users", "groups", "serviceaccounts", "uids in authentication.k8s.io"}},
			"impersonate", "",
			"may not impersonate " + arn + ", " + original + ", " + pass},
		{"no extras, not asked for", member{user: "a", may: allBut(original)}, "", "direct", ""},
		{"nothing", member{user: "a"}, "impersonate", "", "may not impersonate users, groups, serviceaccounts"},
		{"nothing, direct", member{user: "a"}, "direct", "direct", ""},
		{"anonymous", member{user: "system:anonymous"}, "direct", "", "the caller is anonymous"},
		{"anonymous, who may not ask", member{user: "system:anonymous", code: 403}, "direct", "", "the caller is anonymous"},
		{"known, and may not ask", member{user: "a", code: 403}, "direct", "direct", ""},
		{"unknown", member{code: 401}, "direct", "", "refuses the credential (401)"},
		{"before 1.28", member{may: all}, "impersonate", "impersonate", ""},
		{"a gateway", member{user: "a", may: all, gate: true}, "impersonate", "", "is a Clusterpass gateway"},
		{"a gateway, passthrough", member{code: 401, gate: true}, "passthrough", "", "is a Clusterpass gateway"},
		{"passthrough has no credential", member{code: 401}, "passthrough", "passthrough", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := clustertest.NewStreamingMember(t, tt.member.ServeHTTP)
			r, _, _ := setup(t)
			r.Policy.AllowLoopback = true
			res, err := r.Register(t.Context(), Request{Name: "m", Identity: tt.identity, DirectUsers: []string{"alice"},
				Kubeconfig: secrets.NewValue(m.Kubeconfig(`{username: u, password: sesame-open}`))})
			if tt.wantErr == "" && (err != nil || res.Cluster.Mode() != tt.want) {
				t.Errorf("%+v, %v, want identity %s", res, err, tt.want)
			}
			if tt.wantErr != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.wantErr) || strings.Contains(err.Error(), "sesame")) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
			if all, err := r.Clusters(t.Context()); err != nil || (len(all) == 0) != (tt.wantErr != "") {
				t.Errorf("stored: %d, %v", len(all), err)
			}
		})
	}
}

// TestDirectNeedsUsers: who did not ask for identity direct must read why the cluster has it.
func TestDirectNeedsUsers(t *testing.T) {
	for identity, want := range map[v1alpha1.Identity]string{
		"": "the credential may not impersonate", "direct": "identity direct gives every caller",
	} {
		unprivileged := member{user: "a"}
		m := clustertest.NewStreamingMember(t, unprivileged.ServeHTTP)
		r, _, _ := setup(t)
		r.Policy.AllowLoopback = true
		_, err := r.Register(t.Context(), Request{Name: "m", Identity: identity,
			Kubeconfig: secrets.NewValue(m.Kubeconfig(`{username: u, password: sesame-open}`))})
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "--direct-user") {
			t.Errorf("identity %q: error %v, want %q", identity, err, want)
		}
	}
}

// TestCheckRunsNoPlugin: a slow plugin whose credentials expire at once must not use up the time of the check.
func TestCheckRunsNoPlugin(t *testing.T) {
	for _, code := range []int{0, http.StatusUnauthorized} {
		api := member{user: "a", code: code}
		m := clustertest.NewStreamingMember(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization"); got != "Bearer sesame-open" && r.URL.Path != login.Path {
				t.Errorf("%s has the credential %q", r.URL.Path, got)
			}
			api.ServeHTTP(w, r)
		})
		r, _, _ := setup(t)
		r.Policy.AllowLoopback = true
		_, err := r.Register(t.Context(), Request{Name: "m", Identity: v1alpha1.Direct, DirectUsers: []string{"alice"},
			Kubeconfig: secrets.NewValue(m.Kubeconfig("{}")), Plugin: &plugintest.Latest{TB: t, Token: "sesame-open"}})
		if (err == nil) != (code == 0) {
			t.Errorf("code %d: %v", code, err)
		}
	}
}

func jwt(claims string) string {
	return "eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2lnbmF0dXJl"
}

// TestRefusedWithoutCall: invalid requests are refused without a call to the member.
func TestRefusedWithoutCall(t *testing.T) {
	r, _, kc := setup(t)
	tests := []struct {
		token  string
		labels map[string]string
		want   string
	}{
		{
			jwt(fmt.Sprintf(`{"exp":%d}`, time.Now().Add(-time.Minute).Unix())), nil,
			"the token of its kubeconfig expired on 20",
		},
		{jwt(fmt.Sprintf(`{"exp":%d.5}`, time.Now().Add(time.Hour).Unix())), nil, ""},
		{jwt(`{}`), nil, ""},
		{jwt(`{"exp":"soon"}`), nil, ""},
		{"a.b.c", nil, ""},
		{"opaque", map[string]string{"region": "eu", "example.com/tier": ""}, ""},
		{"opaque", map[string]string{"a b": "c"}, `labels: Invalid value: "a b"`},
		{"opaque", map[string]string{"a": "not/a/value"}, `labels: Invalid value: "not/a/value"`},
		{"opaque", map[string]string{strings.Repeat("a", 64): "b"}, "labels: Invalid value"},
	}
	for i, tt := range tests {
		_, err := r.Register(t.Context(), Request{
			Name: fmt.Sprintf("m%d", i), Kubeconfig: kc(tt.token, "https://10.0.0.1"), Identity: v1alpha1.Impersonate,
			Labels: tt.labels, SkipCheck: true,
		})
		if (err == nil) != (tt.want == "") ||
			err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), tt.token)) {
			t.Errorf("%s %v: %v, want %q", tt.token, tt.labels, err, tt.want)
		}
	}
}

// TestRequestsHideKubeconfigs: a Request or Context that is printed by mistake contains no credential.
func TestRequestsHideKubeconfigs(t *testing.T) {
	_, _, kc := setup(t)
	value := kc("sesame-open", "https://10.0.0.1")
	for _, x := range []any{
		Request{Name: "m", Kubeconfig: value}, &Request{Kubeconfig: value}, Context{Kubeconfig: value},
		[]Context{{Kubeconfig: value}},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
			out := fmt.Sprintf(verb, x)
			for _, form := range []string{
				"sesame-open", fmt.Sprintf("%x", "sesame-open"), strings.Trim(fmt.Sprintf("%d", []byte("sesame-open")), "[]"),
			} {
				if strings.Contains(out, form) {
					t.Errorf("%s of %T: %s", verb, x, out)
				}
			}
		}
	}
}

func TestInstallation(t *testing.T) {
	one, _, _ := setup(t)
	other, _, _ := setup(t)
	first, err := one.Installation(t.Context())
	if err != nil || len(first) != 8 {
		t.Fatalf("%q, %v", first, err)
	}
	if again, err := one.Installation(t.Context()); again != first || err != nil {
		t.Errorf("%q, %v, want %q as before", again, err, first)
	}
	if theirs, err := other.Installation(t.Context()); theirs == first || err != nil {
		t.Errorf("another installation is %q, too, %v", theirs, err)
	}
}

// An administrator who follows the guide must give the gateway's roles all rights that the check wants. With fewer,
// each discovered cluster would be refused.
func TestGuideOfEKSGivesRights(t *testing.T) {
	text, err := os.ReadFile("../../docs/guide/eks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, documents, _ := strings.Cut(string(text), "```yaml\n")
	documents, _, _ = strings.Cut(documents, "```")
	role, binding, _ := strings.Cut(documents, "---\n")
	var rights rbacv1.ClusterRole
	var given rbacv1.ClusterRoleBinding
	err = errors.Join(yaml.UnmarshalStrict([]byte(role), &rights), yaml.UnmarshalStrict([]byte(binding), &given))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range impersonated {
		name := strings.TrimSuffix(want.Resource+"/"+want.Subresource, "/")
		if !slices.ContainsFunc(rights.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, want.Group) && slices.Contains(r.Resources, name) &&
				slices.Equal(r.Verbs, []string{"impersonate"}) && (want.Resource == "groups") == (len(r.ResourceNames) > 0)
		}) {
			t.Errorf("docs/guide/eks.md does not let the gateway impersonate %s", want)
		}
	}
	command := regexp.MustCompile(`scripts/eks-access (?:--regions \S+ )?(\S+)`).FindStringSubmatch(string(text))
	if len(command) != 2 || len(given.Subjects) != 1 || given.Subjects[0].Name != command[1] ||
		given.RoleRef.Name != rights.Name {
		t.Errorf("the access entries have the group in %q, and the role is bound to %v", command, given.Subjects)
	}
}
