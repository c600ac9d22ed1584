package aws

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Without these limits, one source or one credential uses up the account's concurrent executions.
func TestRequestRateAndConcurrencyAreLimited(t *testing.T) {
	all := load(t)
	acl := all["infra/aws/waf.yaml"].Resources["Acl"]
	rules, _ := acl.Properties["Rules"].([]any)
	var got []string
	for _, rule := range rules {
		rate := get(get(rule, "Statement"), "RateBasedStatement")
		description := fmt.Sprint(get(rate, "AggregateKeyType"), " ", render(get(rate, "Limit"))[0])
		if keys, _ := get(rate, "CustomKeys").([]any); len(keys) == 1 {
			description += fmt.Sprint(" ", get(get(keys[0], "Header"), "Name"))
		}
		got = append(got, description)
		blocked := get(get(get(rule, "Action"), "Block"), "CustomResponse")
		if code := fmt.Sprint(get(blocked, "ResponseCode")); code != "429" {
			t.Errorf("a blocked request gets %s, want 429", code)
		}
	}
	if want := []string{"IP ${RequestRate}", "CUSTOM_KEYS ${CredentialRate} authorization"}; !slices.Equal(got, want) {
		t.Errorf("the rules are %q, want %q", got, want)
	}
	for _, name := range []string{"Proxy", "Fleet", "Control", "Rotate"} {
		function := all["template.yaml"].Resources[name+"Function"]
		reserved := fmt.Sprint(function.Properties["ReservedConcurrentExecutions"])
		if !strings.Contains(reserved, "Has"+name+"Concurrency") || !strings.Contains(reserved, name+"Concurrency") {
			t.Errorf("%s reserves %s", name, reserved)
		}
	}
}

// By default there is no web ACL, which AWS would bill. A given one must have the place of our own.
func TestWebACLIsOwnGivenOrNone(t *testing.T) {
	all := load(t)
	main, waf := all["template.yaml"], all["infra/aws/waf.yaml"]
	const arn = "arn:aws:wafv2:eu-central-1:111122223333:regional/webacl/ours/1"
	for _, tt := range []struct {
		value            string // "" for the default
		hasStack, hasOwn bool
		want             any // web ACL of the load balancer
	}{
		{"", false, false, nil},
		{"own", true, true, map[string]any{"Fn::GetAtt": []any{"Acl", "Arn"}}},
		{arn, true, false, arn},
	} {
		parameters := []string{"LoadBalancer=x"}
		if tt.value != "" {
			parameters = append(parameters, "WebAcl="+tt.value)
		}
		stack, nested := main.with(parameters...), waf.with(parameters...)
		if got := stack.condition(stack.Resources["Waf"].Condition); got != tt.hasStack {
			t.Errorf("%q: has the stack: %t", tt.value, got)
		}
		if !tt.hasStack {
			continue
		}
		if got := nested.condition(nested.Resources["Acl"].Condition); got != tt.hasOwn {
			t.Errorf("%q: has a web ACL of its own: %t", tt.value, got)
		}
		association := nested.Resources["LoadBalancerAssociation"]
		got := nested.value(association.Properties["WebACLArn"])
		if !nested.condition(association.Condition) || fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%q: the load balancer has %v, want %v", tt.value, got, tt.want)
		}
	}
}

// Without a limit at the stage, one installation uses up the rate that all APIs of the account share. kubectl must be
// able to print the refusal, and to repeat the request.
func TestStageThrottles(t *testing.T) {
	all := load(t)
	given := all["template.yaml"].Resources["RestApi"].Properties["Parameters"]
	if got := fmt.Sprint(render(get(given, "Rate")), render(get(given, "Burst"))); got != "[${ApiRate}] [${ApiBurst}]" {
		t.Errorf("the API is given %s", got)
	}
	stages, apis := of(all, "AWS::ApiGateway::Stage"), of(all, "AWS::ApiGateway::RestApi")
	if len(stages) != 1 || len(apis) != 1 {
		t.Fatalf("there are %d stages of %d APIs", len(stages), len(apis))
	}
	for id, r := range stages {
		settings, _ := r.Properties["MethodSettings"].([]any)
		if len(settings) != 1 || get(settings[0], "HttpMethod") != "*" || get(settings[0], "ResourcePath") != "/*" ||
			fmt.Sprint(render(get(settings[0], "ThrottlingRateLimit")), render(get(settings[0], "ThrottlingBurstLimit"))) !=
				"[${Rate}] [${Burst}]" {
			t.Errorf("%s has the settings %v", id, settings)
		}
	}
	for id, r := range apis {
		refusal := get(r.Properties["Body"], "x-amazon-apigateway-gateway-responses", "THROTTLED")
		text, _ := get(refusal, "responseTemplates", "application/json").(string)
		var status metav1.Status
		if err := json.Unmarshal([]byte(text), &status); err != nil || status.Code != http.StatusTooManyRequests ||
			status.Reason != metav1.StatusReasonTooManyRequests || get(refusal, "statusCode") != fmt.Sprint(status.Code) ||
			get(refusal, "responseParameters", "gatewayresponse.header.Retry-After") != "'1'" {
			t.Errorf("%s refuses with %v (%v)", id, refusal, err)
		}
	}
}
