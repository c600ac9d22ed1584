package aws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/route"
)

func TestRulesAreTheTable(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "run", "./infra/aws/rules")
	cmd.Dir = root
	want, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("infra/aws/rules.yaml differs from the Table of shared/route; run make aws-rules")
	}
}

type rule struct {
	Priority   int
	Conditions []struct {
		Field             string
		PathPatternConfig struct{ RegexValues []string }
		QueryStringConfig struct{ Values []struct{ Key, Value string } }
		HttpHeaderConfig  struct {
			HttpHeaderName      string
			Values, RegexValues []string
		}
	}
	Actions []struct {
		Type           string
		TargetGroupArn struct{ Ref string }
	}
}

// matches evaluates the conditions as AWS documents them.
func (r rule) matches(path, query string, header http.Header) bool {
	anyOf := func(values []string, expressions bool, s string) bool {
		return slices.ContainsFunc(values, func(v string) bool {
			if !expressions {
				v = "(?i)^" + strings.ReplaceAll(regexp.QuoteMeta(v), `\*`, ".*") + "$"
			}
			return regexp.MustCompile(v).MatchString(s)
		})
	}
	for _, c := range r.Conditions {
		ok := false
		switch c.Field {
		case "path-pattern":
			ok = anyOf(c.PathPatternConfig.RegexValues, true, path)
		case "query-string":
			values, _ := url.ParseQuery(query)
			for _, want := range c.QueryStringConfig.Values {
				for _, v := range values[want.Key] {
					ok = ok || anyOf([]string{want.Value}, false, v)
				}
			}
		case "http-header":
			for _, v := range header[http.CanonicalHeaderKey(c.HttpHeaderConfig.HttpHeaderName)] {
				ok = ok || anyOf(c.HttpHeaderConfig.Values, false, v) || anyOf(c.HttpHeaderConfig.RegexValues, true, v)
			}
		}
		if !ok {
			return false
		}
	}
	return len(r.Conditions) > 0
}

var samples = []struct {
	path, query string
	header      http.Header
}{
	{"/clusters/m/api/v1/pods", "limit=500", nil},
	{"/clusters/m/api/v1/pods", "watch=1", nil},
	{"/clusters/m/api/v1/pods", "watch", nil},
	{"/clusters/m/api/v1/pods", "labelSelector=watch%3D1", nil},
	{"/clusters/m/api/v1/namespaces/n/pods/p/log", "follow=true", nil},
	{"/clusters/m/api/v1/namespaces/n/pods/p/log", "", nil},
	{"/clusters/m/api/v1/namespaces/n/pods/p/exec", "command=sh", http.Header{"Upgrade": {"websocket"}}},
	{"/clusters/m/api/v1/namespaces/n/pods/p/exec", "command=sh", nil},
	{"/clusters/m/api/v1/namespaces/n/services/s/proxy/a/b", "", nil},
	{"/clusters/m/api/v1/watch/namespaces/n/pods", "", nil},
	{"/clusters/m/api/v1/namespaces/n/configmaps", "", http.Header{"Content-Length": {"899999"}}},
	{"/clusters/m/api/v1/namespaces/n/configmaps", "", http.Header{"Content-Length": {"900000"}}},
	{"/clusters/m/api/v1/namespaces/n/configmaps", "", http.Header{"Content-Length": {"12345678"}}},
	{"/clusters/m/api/v1/namespaces/n/configmaps", "", http.Header{"Transfer-Encoding": {"chunked"}}},
	{"/clusters/m", "", nil}, {"/clusters", "", nil}, {"/", "", nil}, {"/livez", "", nil},
	{"/apis/cluster.karmada.io/v1alpha1/clusters", "", nil},
	{"/apis/cluster.karmada.io/v1alpha1/clusters/m", "", nil},
	{"/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy", "", nil},
	{"/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api/v1/pods", "", nil},
	{"/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy/api/v1/pods", "", nil},
	{"/apis/cluster.karmada.io/v1alpha1/clusters/%2A/proxy/api/v1/pods", "", nil},
	{"/apis/clusterXkarmadaXio/v1alpha1/clusters/m/proxy/api", "", nil},
	{"/apis/cluster.karpor.io/v1beta1/clusters/m/proxy/api", "", nil},
	{"/apis/kusionstack.io/Cluster/m/proxy/api", "", nil},
	{"/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy/api/v1/pods", "", nil},
	{"/apis/search.karmada.io/v1alpha1/resourceregistries", "", nil},
	{"/fleet", "", nil}, {"/fleet/api/v1/pods", "", nil}, {"/fleet/api/v1/pods", "watch=true", nil},
	{"/fleets/api", "", nil},
	{"/m/api/v1/pods", "", nil}, {"/m/version", "", nil}, {"/m/other", "", nil}, {"/m/.well-known/x", "", nil},
	{"/api", "", nil}, {"/apis/rbac.authorization.k8s.io/v1/clusterroles", "watch=0", nil}, {"/openapi/v3", "", nil},
	{"/bridge", "", nil}, {"/bridge/clusters/m/api", "", nil}, {"/bridges/api", "", nil}, {"/console", "", nil},
	{"/console/logs", "", nil}, {"/consoles/api", "", nil}, {"/a%2Fb/api", "", nil},
}

func TestRulesMeanTheTable(t *testing.T) {
	var rules []rule
	for id, r := range load(t)["infra/aws/rules.yaml"].Resources {
		b, err := json.Marshal(r.Properties)
		if err != nil {
			t.Fatal(err)
		}
		var parsed rule
		if err := json.Unmarshal(b, &parsed); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		rules = append(rules, parsed)
	}
	slices.SortFunc(rules, func(a, b rule) int { return a.Priority - b.Priority })
	if len(rules) != len(route.Table)-1 || len(rules) > 100 {
		t.Errorf("%d rules for %d rows; an ALB takes 100", len(rules), len(route.Table))
	}
	seen := map[string]bool{}
	for _, s := range samples {
		row := route.Match(s.path, s.query, s.header)
		seen[row.Name] = true
		want := strings.ToUpper(string(row.To[:1])) + string(row.To[1:]) + "TargetGroup"
		got := "ControlTargetGroup" // the listener's default
		if i := slices.IndexFunc(rules, func(r rule) bool { return r.matches(s.path, s.query, s.header) }); i >= 0 {
			got = rules[i].Actions[0].TargetGroupArn.Ref
		}
		if got != want {
			t.Errorf("%s?%s %v goes to %s, want %s", s.path, s.query, s.header, got, want)
		}
	}
	for _, row := range route.Table {
		if !seen[row.Name] {
			t.Errorf("no sample meets row %s", row.Name)
		}
	}
	all := load(t)
	listener := all["infra/aws/frontdoor.yaml"].Resources["Listener"]
	if got := render(
		get(listener.Properties["DefaultActions"].([]any)[0], "TargetGroupArn")); got[0] != "${ControlTargets}" {
		t.Errorf("by default it goes to %s, want %s", got, route.Table[len(route.Table)-1].To)
	}
	given := all["template.yaml"].Resources["Routes"].Properties["Parameters"].(map[string]any)
	for name, v := range given {
		backend := strings.TrimSuffix(name, "TargetGroup")
		if got := render(v)[0]; name != "Listener" && got != "${LoadBalancer.Outputs."+backend+"Targets}" {
			t.Errorf("%s is %s", name, got)
		}
	}
}

// With FrontDoor api, a request must reach the function of the table, or one that can serve it as well.
func TestAPIMeansTheTable(t *testing.T) {
	paths, _ := get(load(t)["infra/aws/api.yaml"].Resources["Api"].Properties["Body"], "paths").(map[string]any)
	if len(paths) == 0 {
		t.Fatal("the API has no paths")
	}
	// Like API Gateway: segment by segment, a literal wins over a greedy path.
	serves := func(path string) string {
		best := ""
		for p := range paths {
			prefix, greedy := strings.CutSuffix(p, "{proxy+}")
			if (path == p || greedy && len(path) > len(prefix) && strings.HasPrefix(path, prefix)) && len(p) > len(best) {
				best = p
			}
		}
		return fmt.Sprint(get(paths[best], "x-amazon-apigateway-any-method", "x-amazon-apigateway-integration", "uri"))
	}
	for _, s := range samples {
		row := route.Match(s.path, s.query, s.header)
		if row.To == route.ToBridge {
			continue
		}
		uri := serves(s.path)
		name := strings.ToUpper(string(row.To[:1])) + string(row.To[1:]) + "Function}"
		if !strings.Contains(uri, name) && !strings.Contains(uri, "ControlFunction}") {
			t.Errorf("%s goes to %s, want %s or Control", s.path, uri, name)
		}
	}
}

// TestBalancer checks the load balancer's settings for streams, large headers and identities.
func TestBalancer(t *testing.T) {
	resources := load(t)["infra/aws/frontdoor.yaml"].Resources
	attributes := func(id, property string) map[string]string {
		found := map[string]string{}
		list, _ := resources[id].Properties[property].([]any)
		for _, a := range list {
			if key, ok := get(a, "Key").(string); ok {
				found[key] = strings.Join(render(get(a, "Value")), "|")
			}
		}
		return found
	}
	lb := attributes("LoadBalancer", "LoadBalancerAttributes")
	for key, want := range map[string]string{
		"idle_timeout.timeout_seconds":                    "4000",
		"routing.http2.enabled":                           "false",
		"routing.http.drop_invalid_header_fields.enabled": "false",
	} {
		if lb[key] != want {
			t.Errorf("%s is %q, want %s", key, lb[key], want)
		}
	}
	functions := 0
	for id, r := range resources {
		if r.Type == "AWS::ElasticLoadBalancingV2::TargetGroup" && r.Properties["TargetType"] == "lambda" {
			functions++
			if got := attributes(id, "TargetGroupAttributes")["lambda.multi_value_headers.enabled"]; got != "true" {
				t.Errorf("%s takes one value of each header alone", id)
			}
			// It forwards to its function, which accepts certificates only from a group of this name.
			balancer := load(t)["template.yaml"].Resources["LoadBalancer"].Properties["Parameters"]
			name := strings.ReplaceAll(render(r.Properties["Name"])[0], "${TargetSuffix}",
				get(balancer, "TargetSuffix").(string))
			function := strings.TrimSuffix(id, "Targets") + "Function"
			target := render(get(r.Properties["Targets"].([]any)[0], "Id"))[0]
			given := render(get(balancer, function))[0]
			if target != "${"+function+"}" || given != "${"+function+".Arn}" {
				t.Errorf("%s leads to %s, which is %s", id, target, given)
			}
			env, _ := get(load(t)["template.yaml"].Resources[function].Properties, "Environment", "Variables").(map[string]any)
			if got := render(env["CLUSTERPASS_MTLS_TARGET_GROUP"]); len(got) != 1 ||
				!strings.HasSuffix(got[0], ":targetgroup/"+name+"/*") {
				t.Errorf("%s believes %s, its group is %s", function, got, name)
			}
		}
	}
	if functions != 3 {
		t.Errorf("%d functions are behind the load balancer", functions)
	}
	listeners := of(load(t), "AWS::ElasticLoadBalancingV2::Listener")
	if len(listeners) != 1 {
		t.Errorf("%d listeners; a second would let tokens come in the clear", len(listeners))
	}
	for key := range map[string]bool{"passthrough": true, "verify": true} {
		if !slices.Contains(load(t)["template.yaml"].Parameters["MutualTLS"].AllowedValues, any(key)) {
			t.Errorf("MutualTLS cannot be %s", key)
		}
	}
	if text := fmt.Sprint(resources["Listener"].Properties["ListenerAttributes"]); !strings.Contains(text,
		"x_amzn_mtls_clientcert.header_name") ||
		!strings.Contains(text, "x_amzn_mtls_clientcert_leaf.header_name") || strings.Count(text, "CertificateHeader") != 2 {
		t.Errorf("the certificate's header has AWS's own name: %s", text)
	}
}
