package aws

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

// Lambda's own lines for each invocation cost as much as the gateway's. Lambda must drop no line of the program: it
// treats an audit event as a line of level INFO.
func TestFunctionLogs(t *testing.T) {
	for id, r := range of(load(t), "AWS::Lambda::Function") {
		logging := r.Properties["LoggingConfig"]
		if get(logging, "LogFormat") != "JSON" || get(logging, "SystemLogLevel") != "WARN" ||
			get(logging, "ApplicationLogLevel") != "TRACE" {
			t.Errorf("%s logs by %v", id, logging)
		}
	}
}

// Operators find out from the access log who called and what failed before a function. It must not contain credentials,
// which can be in headers and in queries.
func TestAccessLog(t *testing.T) {
	for id, r := range of(load(t), "AWS::ApiGateway::Stage") {
		choice, _ := get(r.Properties["AccessLogSetting"], "Fn::If").([]any)
		if len(choice) != 3 || choice[0] != "AccessLogs" || get(choice[2], "Ref") != "AWS::NoValue" {
			t.Fatalf("%s has the access log %v", id, r.Properties["AccessLogSetting"])
		}
		text, _ := get(choice[1], "Format").(string)
		var line map[string]string
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%s logs %s: %v", id, text, err)
		}
		for _, name := range []string{"source", "method", "path", "status", "error", "functionStatus"} {
			if line[name] == "" {
				t.Errorf("%s does not log %s", id, name)
			}
		}
		if strings.Contains(text, "header") || strings.Contains(text, "query") || strings.Contains(text, "authorizer") {
			t.Errorf("%s logs %s", id, text)
		}
	}
}

// The load balancer must write its access log into the operator's bucket. Without a bucket it must write none, because
// AWS refuses a load balancer with a log and no bucket.
func TestLoadBalancerLogs(t *testing.T) {
	all := load(t)
	for bucket, want := range map[string]map[string]any{
		"": {"access_logs.s3.enabled": "false"},
		"logs-of-ours": {
			"access_logs.s3.enabled": "true", "access_logs.s3.bucket": "logs-of-ours", "access_logs.s3.prefix": "gateway",
		},
	} {
		g := all["infra/aws/frontdoor.yaml"].with("AccessLogsBucket="+bucket, "Prefix=gateway")
		got := map[string]any{}
		for _, a := range g.value(g.Resources["LoadBalancer"].Properties["LoadBalancerAttributes"]).([]any) {
			if key, _ := get(a, "Key").(string); strings.HasPrefix(key, "access_logs.") {
				got[key] = get(a, "Value")
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("with the bucket %q, the load balancer logs by %v, want %v", bucket, got, want)
		}
	}
	given := all["template.yaml"].Resources["LoadBalancer"].Properties["Parameters"]
	if got := render(get(given, "AccessLogsBucket")); got[0] != "${AccessLogsBucket}" {
		t.Errorf("the load balancer is given the bucket %s", got)
	}
}
