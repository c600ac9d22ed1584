package aws

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/websocket-bridge/bridge"
)

type given struct {
	*template
	parameters map[string]any
}

func (tmpl *template) with(parameters ...string) given {
	g := given{tmpl, map[string]any{}}
	for name, p := range tmpl.Parameters {
		if p.Default != nil {
			g.parameters[name] = *p.Default
		}
	}
	for _, p := range parameters {
		name, value, _ := strings.Cut(p, "=")
		g.parameters[name] = value
	}
	return g
}

func (g given) value(v any) any {
	switch v := v.(type) {
	case []any:
		list := []any{}
		for _, e := range v {
			if get(e, "Ref") != "AWS::NoValue" {
				list = append(list, g.value(e))
			}
		}
		return list
	case map[string]any:
		operands := func(name string) []any {
			list, _ := v[name].([]any)
			return list
		}
		holds := func(e any) bool { return g.value(e) == true }
		switch {
		case v["Ref"] != nil:
			if p, ok := g.parameters[v["Ref"].(string)]; ok {
				return p
			}
			return v
		case v["Condition"] != nil && len(v) == 1:
			return g.condition(v["Condition"].(string))
		case v["Fn::Equals"] != nil:
			list := operands("Fn::Equals")
			return fmt.Sprint(g.value(list[0])) == fmt.Sprint(g.value(list[1]))
		case v["Fn::Not"] != nil:
			return !holds(operands("Fn::Not")[0])
		case v["Fn::And"] != nil:
			return !slices.ContainsFunc(operands("Fn::And"), func(e any) bool { return !holds(e) })
		case v["Fn::Or"] != nil:
			return slices.ContainsFunc(operands("Fn::Or"), holds)
		case v["Fn::If"] != nil:
			list := operands("Fn::If")
			if g.condition(list[0].(string)) {
				return g.value(list[1])
			}
			return g.value(list[2])
		case v["Fn::EachMemberEquals"] != nil: // a list parameter is given as one string
			list := operands("Fn::EachMemberEquals")
			want := g.value(list[1])
			return !slices.ContainsFunc(strings.Split(fmt.Sprint(g.value(list[0])), ","), func(e string) bool {
				return e != want
			})
		case v["Fn::Join"] != nil: // a list parameter, too
			return fmt.Sprint(g.value(operands("Fn::Join")[1]))
		}
		all := map[string]any{}
		for k, e := range v {
			all[k] = g.value(e)
		}
		return all
	}
	return v
}

func (g given) condition(name string) bool { return g.value(g.Conditions[name]) == true }

func (g given) refusals() []string {
	var all []string
	for _, r := range g.Rules {
		if r.RuleCondition != nil && g.value(r.RuleCondition) != true {
			continue
		}
		for _, a := range r.Assertions {
			if g.value(a.Assert) != true {
				all = append(all, a.AssertDescription)
			}
		}
	}
	return all
}

// An invalid combination of parameters must fail before CloudFormation creates anything.
func TestRules(t *testing.T) {
	tmpl := load(t)["template.yaml"]
	text := fmt.Sprint(tmpl.Rules)
	for _, used := range regexp.MustCompile(`Fn::\w+`).FindAllString(text, -1) {
		if !slices.Contains(
			[]string{
				"Fn::And", "Fn::Contains", "Fn::EachMemberEquals", "Fn::EachMemberIn", "Fn::Equals", "Fn::Not", "Fn::Or",
				"Fn::RefAll", "Fn::ValueOf", "Fn::ValueOfAll",
			}, used) {
			t.Errorf("a rule uses %s, which CloudFormation refuses in rules", used)
		}
	}
	const domain = "DomainName=clusterpass.example.com"
	const certificate = "CertificateArn=arn:aws:acm:eu-central-1:111122223333:certificate/0-1"
	const ownBridge = "BridgeUrl=https://bridge.example.com"
	for _, tt := range []struct {
		parameters []string
		want       string // part of the refusal; "" for none
	}{
		{[]string{domain, certificate, image}, ""},
		{[]string{domain, image, "HostedZoneId=Z1"}, ""},
		{[]string{"FrontDoor=api", domain, certificate, image}, ""},
		{[]string{"FrontDoor=api", "BridgeUrl=https://bridge.example.com"}, ""},
		{[]string{domain, certificate, image, "NatGateways=0", "BridgeMinTasks=1", "BridgeSpot=all"}, ""},
		{[]string{domain, certificate, image, "VpcId=vpc-1", "PublicSubnetIds=subnet-1,subnet-2", "Scheme=internal"}, ""},
		{[]string{domain, certificate, image, "MutualTLS=passthrough"}, ""},
		{[]string{"FrontDoor=api", domain, certificate, image, "AllowedCidr=10.0.0.0/8"}, "FrontDoor alb"},
		{
			[]string{
				"FrontDoor=api", domain, certificate, image, "VpcId=vpc-1", "PublicSubnetIds=subnet-1,subnet-2",
				"Scheme=internal",
			}, "FrontDoor alb",
		},
		{[]string{domain, certificate, image, "RecordingDays=30"}, ""},
		{
			[]string{"FrontDoor=api", "BridgeUrl=https://bridge.example.com", "RecordingDays=30"}, "CLUSTERPASS_RECORDINGS",
		},
		{[]string{domain, certificate}, "BridgeDigest"},
		{[]string{image}, "DomainName"},
		{[]string{certificate, image}, "DomainName"},
		{[]string{domain, image}, "CertificateArn, or HostedZoneId"},
		{[]string{domain, certificate, image, "BridgeUrl=https://bridge.example.com"}, "FrontDoor api"},
		{[]string{domain, certificate, image, "MutualTLS=verify"}, "TrustStoreArn"},
		{[]string{domain, certificate, image, "Scheme=internal"}, "VpcId"},
		{[]string{domain, certificate, image, "VpcId=vpc-1"}, "PublicSubnetIds"},
		{[]string{"FrontDoor=api", ownBridge, "VpcId=vpc-1", "PublicSubnetIds=subnet-1,subnet-2"}, "BridgeUrl"},
		{[]string{"FrontDoor=api", ownBridge, "PrivateSubnetIds=subnet-1,subnet-2"}, "VpcId"},
		{[]string{"FrontDoor=api", ownBridge, "ZoneA=us-east-1a", "ZoneB=us-east-1b"}, "BridgeUrl"},
		{[]string{domain, certificate, image, "PublicSubnetIds=subnet-1,subnet-2"}, "VpcId"},
		{[]string{domain, certificate, image, "ZoneA=us-east-1a", "ZoneB=us-gov-east-1b"}, ""},
		{[]string{domain, certificate, image, "ZoneA=us-east-1a"}, "two zones"},
		{[]string{domain, certificate, image, "ZoneB=us-east-1a"}, "two zones"},
		{[]string{domain, certificate, image, "ZoneA=us-east-1a", "ZoneB=us-east-1a"}, "two zones"},
		{
			[]string{
				domain, certificate, image, "VpcId=vpc-1", "PublicSubnetIds=subnet-1,subnet-2", "ZoneA=us-east-1a",
				"ZoneB=us-east-1b",
			}, "new network",
		},
		{
			[]string{
				domain, certificate, "MutualTLS=passthrough", "FrontDoor=api", "BridgeUrl=https://bridge.example.com",
			},
			"MutualTLS",
		},
	} {
		got := strings.Join(tmpl.with(tt.parameters...).refusals(), "; ")
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%v: refused by %q, want %q", tt.parameters, got, tt.want)
		}
	}
}

// TestWhereThingsRun covers the effect of the network parameters on functions and the bridge.
func TestWhereThingsRun(t *testing.T) {
	tmpl := load(t)["template.yaml"]
	const domain = "DomainName=clusterpass.example.com"
	for _, tt := range []struct {
		parameters                   []string
		made, private, balancer, api bool
	}{
		{[]string{domain}, true, true, true, false},
		{[]string{domain, "NatGateways=0"}, true, false, true, false},
		{
			[]string{domain, "VpcId=vpc-1", "PublicSubnetIds=a,b", "PrivateSubnetIds=c,d", "NatGateways=0"}, false, true, true,
			false,
		},
		{[]string{domain, "VpcId=vpc-1", "PublicSubnetIds=a,b"}, false, false, true, false},
		{[]string{domain, "FrontDoor=api"}, true, true, true, true},
		{[]string{"FrontDoor=api", "BridgeUrl=https://bridge.example.com"}, false, false, false, true},
	} {
		g := tmpl.with(tt.parameters...)
		exists := func(id string) bool {
			c := g.Resources[id].Condition
			return c == "" || g.condition(c)
		}
		inNetwork := get(g.value(g.Resources["ProxyFunction"].Properties["VpcConfig"]), "SubnetIds") != nil
		public := get(g.value(g.Resources["BridgeService"].Properties["Parameters"]), "PublicAddress") == "ENABLED"
		if exists("Network") != tt.made || inNetwork != tt.private || exists("RunInVpc") != tt.private ||
			exists("LoadBalancer") != tt.balancer ||
			exists("BridgeService") != tt.balancer || exists("RestApi") != tt.api ||
			exists("Routes") != (tt.balancer && !tt.api) || tt.balancer && public == tt.private {
			t.Errorf("%v: network %t, functions in it %t, balancer %t, API %t, bridge public %t", tt.parameters,
				exists("Network"), inNetwork, exists("LoadBalancer"), exists("RestApi"), public)
		}
	}
}

// TestTwoZones: the loss of one zone does not affect the other.
func TestTwoZones(t *testing.T) {
	all := load(t)
	resources := all["infra/aws/network.yaml"].Resources
	outputs := all["infra/aws/network.yaml"].Outputs
	for _, kind := range []string{"Public", "Private"} {
		for i, zone := range []string{"A", "B"} {
			choice, _ := get(resources[kind+zone].Properties["AvailabilityZone"], "Fn::If").([]any)
			if len(choice) != 3 || choice[0] != "HasZones" || get(choice[1], "Ref") != "Zone"+zone {
				t.Fatalf("%s%s is in zone %v", kind, zone, choice)
			}
			selected, _ := get(choice[2], "Fn::Select").([]any)
			if len(selected) != 2 || fmt.Sprint(selected[0]) != strconv.Itoa(i) {
				t.Errorf("%s%s is in zone %v of the region", kind, zone, selected)
			}
			if !strings.Contains(fmt.Sprint(outputs[kind+"Subnets"].Value), kind+zone) {
				t.Errorf("%s%s is not where anything runs: %v", kind, zone, outputs[kind+"Subnets"].Value)
			}
		}
	}
	service := all["infra/aws/bridge.yaml"].Resources["Service"].Properties
	if got := render(get(service, "NetworkConfiguration", "AwsvpcConfiguration", "Subnets")); got[0] != "${Subnets}" ||
		service["AvailabilityZoneRebalancing"] != "ENABLED" {
		t.Errorf("the bridges are in %v, and not spread", got)
	}
	if got := fmt.Sprint(*all["template.yaml"].Parameters["BridgeMinTasks"].Default); got != "2" {
		t.Errorf("by default there are %s bridges", got)
	}
}

// TestScaling: the number of bridges grows with streams or CPU, before a bridge refuses requests. It shrinks slowly.
func TestScaling(t *testing.T) {
	all := load(t)
	resources := all["infra/aws/bridge.yaml"].Resources
	target := resources["Scaling"].Properties
	if fmt.Sprint(render(target["MinCapacity"]), render(target["MaxCapacity"])) != "[${MinTasks}] [${MaxTasks}]" ||
		target["ScalableDimension"] != "ecs:service:DesiredCount" {
		t.Errorf("it scales %v", target)
	}
	metrics := map[string]bool{}
	for id, r := range of(all, "AWS::ApplicationAutoScaling::ScalingPolicy") {
		c := get(r.Properties, "TargetTrackingScalingPolicyConfiguration")
		in, _ := get(c, "ScaleInCooldown").(float64)
		out, _ := get(c, "ScaleOutCooldown").(float64)
		if fmt.Sprint(render(r.Properties["ScalingTargetId"])) != "[${Scaling}]" || out > 60 || in < 600 {
			t.Errorf("%s: out after %v s, in after %v s", id, out, in)
		}
		custom := get(c, "CustomizedMetricSpecification")
		metrics[strings.TrimSpace(
			fmt.Sprintln(render(get(custom, "Namespace")), get(custom, "MetricName"), get(custom, "Statistic"),
				get(custom, "Dimensions"),
				get(c, "PredefinedMetricSpecification", "PredefinedMetricType"), render(get(c, "TargetValue"))))] = true
	}
	for _, want := range []string{
		// printed by websocket-bridge/bridge, without dimensions
		"[Clusterpass/${Prefix}] OpenStreams Average <nil> <nil> [${StreamsPerTask}]",
		"[] <nil> <nil> <nil> ECSServiceAverageCPUUtilization [60]",
	} {
		if !metrics[want] {
			t.Errorf("nothing scales by %s, but %v", want, metrics)
		}
	}
	number := func(name string) float64 {
		n, _ := (*all["template.yaml"].Parameters[name].Default).(float64)
		return n
	}
	if number("BridgeStreams") <= 0 || number("BridgeStreams") > 0.8*number("BridgeMaxStreams") ||
		number("BridgeMinTasks") > number("BridgeMaxTasks") {
		t.Error("a bridge refuses, or the alarm goes off, before there are more")
	}
}

// TestSpot: Spot capacity is used only for the share in the parameter, and never for the minimum.
func TestSpot(t *testing.T) {
	tmpl := load(t)["infra/aws/bridge.yaml"]
	for spot, want := range map[string]string{
		"none":  "[map[CapacityProvider:FARGATE Weight:1]]",
		"extra": "[map[Base:2 CapacityProvider:FARGATE Weight:0] map[CapacityProvider:FARGATE_SPOT Weight:1]]",
		"all":   "[map[CapacityProvider:FARGATE_SPOT Weight:1]]",
	} {
		g := tmpl.with("Spot="+spot, "MinTasks=2")
		if got := fmt.Sprint(g.value(g.Resources["Service"].Properties["CapacityProviderStrategy"])); got != want {
			t.Errorf("%s: %s, want %s", spot, got, want)
		}
	}
	if got := fmt.Sprint(tmpl.Resources["Cluster"].Properties["CapacityProviders"]); got != "[FARGATE FARGATE_SPOT]" {
		t.Errorf("the cluster has %s", got)
	}
}

// A deployment must not interrupt streams, and a failed one must be rolled back.
func TestReplacement(t *testing.T) {
	all := load(t)
	service := all["infra/aws/bridge.yaml"].Resources["Service"].Properties
	c := service["DeploymentConfiguration"]
	if fmt.Sprint(get(c, "MinimumHealthyPercent")) != "100" || fmt.Sprint(get(c, "MaximumPercent")) != "200" ||
		get(c, "DeploymentCircuitBreaker", "Enable") != true || get(c, "DeploymentCircuitBreaker", "Rollback") != true {
		t.Errorf("a deploy is %v", c)
	}
	container := all["infra/aws/bridge.yaml"].Resources["Task"].Properties["ContainerDefinitions"].([]any)[0]
	env := map[string]string{}
	for _, v := range get(container, "Environment").([]any) {
		if name, ok := get(v, "Name").(string); ok {
			env[name] = strings.Join(render(get(v, "Value")), "")
		}
	}
	targets := all["infra/aws/frontdoor.yaml"].Resources["BridgeTargets"].Properties
	if got := fmt.Sprint(targets["HealthCheckProtocol"], " :", targets["HealthCheckPort"],
		targets["HealthCheckPath"]); got != "HTTP "+env["CLUSTERPASS_ADMIN_LISTEN"]+"/healthz" {
		t.Errorf("health is asked for at %s", got)
	}
	interval, _ := targets["HealthCheckIntervalSeconds"].(float64)
	unhealthy, _ := targets["UnhealthyThresholdCount"].(float64)
	delay, err := time.ParseDuration(env["CLUSTERPASS_DRAIN_DELAY"])
	if err != nil || delay.Seconds() < interval*unhealthy || interval == 0 {
		t.Errorf("a bridge accepts requests for %s after SIGTERM, and gets them for %v s", delay, interval*unhealthy)
	}
	if got := fmt.Sprint(targets["TargetGroupAttributes"]); !strings.Contains(got,
		"deregistration_delay.timeout_seconds Value:map[Ref:DrainSeconds]") {
		t.Errorf("streams of a bridge that goes end: %s", got)
	}
	if got := fmt.Sprint(
		render(
			get(all["template.yaml"].Resources["LoadBalancer"].Properties["Parameters"],
				"DrainSeconds"))); got != "[${BridgeDrainSeconds}]" {
		t.Errorf("they end after %s", got)
	}
}

// Alarms must name metrics that exist. Otherwise operators never hear of errors and full bridges.
func TestAlarms(t *testing.T) {
	all := load(t)
	var watched []string
	watch := func(metric any) {
		text := fmt.Sprint(render(get(metric, "Namespace"))[0], " ", get(metric, "MetricName"))
		dimensions, _ := get(metric, "Dimensions").([]any)
		for _, d := range dimensions {
			text += fmt.Sprint(" ", get(d, "Name"), "=", render(get(d, "Value"))[0])
		}
		watched = append(watched, text)
	}
	for id, r := range of(all, "AWS::CloudWatch::Alarm") {
		if got := fmt.Sprint(render(r.Properties["AlarmActions"])); got != "[${Topic}]" ||
			r.Properties["AlarmDescription"] == nil {
			t.Errorf("%s notifies %s, with description %v", id, got, r.Properties["AlarmDescription"])
		}
		if r.Properties["TreatMissingData"] == nil {
			t.Errorf("%s does not define TreatMissingData", id)
		}
		checkFill(t, id, r)
		if r.Properties["MetricName"] != nil {
			watch(r.Properties)
		}
		metrics, _ := r.Properties["Metrics"].([]any)
		for _, m := range metrics {
			if stat := get(m, "MetricStat"); stat != nil {
				watch(get(stat, "Metric"))
			}
		}
	}
	want := []string{
		"AWS/Firehose DeliveryToS3.DataFreshness DeliveryStreamName=${Delivery}",
		"AWS/DynamoDB ReadThrottleEvents TableName=${Table}",
		"AWS/DynamoDB WriteThrottleEvents TableName=${Table}",
		"AWS/ApiGateway Count ApiName=${Api}",
		"AWS/ApiGateway 5XXError ApiName=${Api}",
		"AWS/ApplicationELB RequestCount LoadBalancer=${LoadBalancer}",
		"AWS/ApplicationELB HTTPCode_ELB_5XX_Count LoadBalancer=${LoadBalancer}",
		"AWS/ApplicationELB HTTPCode_Target_5XX_Count LoadBalancer=${LoadBalancer}",
		"AWS/ApplicationELB UnHealthyHostCount LoadBalancer=${LoadBalancer} TargetGroup=${BridgeTargets}",
		"AWS/ApplicationELB HealthyHostCount LoadBalancer=${LoadBalancer} TargetGroup=${BridgeTargets}",
		"Clusterpass/${Prefix} StreamSaturation",
		"Clusterpass/${Prefix} " + bridge.AgentReusesMetric,
		"Clusterpass/${Prefix} " + gateway.StaleReadsMetric,
		"Clusterpass/${Prefix} " + gateway.AuditLostMetric,
		"Clusterpass/${Prefix} " + gateway.AuditRefusedMetric,
	}
	for id, r := range of(all, "AWS::Lambda::Function") {
		name := render(r.Properties["FunctionName"])[0]
		want = append(want, "AWS/Lambda Errors FunctionName="+name)
		if !strings.HasSuffix(id, "RotateFunction") { // not critical: Secrets Manager retries
			want = append(want, "AWS/Lambda Throttles FunctionName="+name, "AWS/Lambda Invocations FunctionName="+name)
		}
	}
	want = append(want, deliveryErrors(all)...)
	slices.Sort(want)
	slices.Sort(watched)
	if !reflect.DeepEqual(watched, want) {
		t.Errorf("alarms look at\n  %s\nwant\n  %s", strings.Join(watched, "\n  "), strings.Join(want, "\n  "))
	}
	given := all["template.yaml"].Resources["Alarms"].Properties["Parameters"]
	for name, want := range map[string]string{
		"Table": "${Objects}", "LoadBalancer": "${LoadBalancer.Outputs.Name}",
		// With data of the load balancer instead, an alarm could fire before the first bridge is healthy.
		"BridgeTargets": "${BridgeService.Outputs.TargetsName}",
	} {
		if got := render(get(given, name)); got[0] != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	cost, err := os.ReadFile(filepath.Join(root, "docs/explanation/cost.md"))
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("alarms (%d metrics,", len(watched)); !strings.Contains(string(cost), text) {
		t.Errorf("docs/explanation/cost.md does not count %s", text)
	}
}

// checkFill refuses an alarm that may never leave OK. Data arrives late, so FILL may always replace the newest minute.
func checkFill(t *testing.T, id string, alarm resource) {
	t.Helper()
	if !strings.Contains(fmt.Sprint(alarm.Properties["Metrics"]), "FILL(") {
		return
	}
	evaluated, _ := alarm.Properties["EvaluationPeriods"].(float64)
	breaching, _ := alarm.Properties["DatapointsToAlarm"].(float64)
	if breaching < 1 || breaching >= evaluated {
		t.Errorf("%s uses FILL, and needs %v of %v minutes", id, breaching, evaluated)
	}
}

// deliveryErrors returns the metrics of all subscriptions.
func deliveryErrors(all map[string]*template) []string {
	var metrics []string
	for _, r := range of(all, "AWS::Logs::SubscriptionFilter") {
		group, filter := render(r.Properties["LogGroupName"]), render(r.Properties["FilterName"])
		metrics = append(metrics, "AWS/Logs DeliveryErrors LogGroupName="+strings.Join(group, ",")+
			" DestinationType=Firehose FilterName="+strings.Join(filter, ","))
	}
	return metrics
}

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

// The cost of tasks is attributed by the tags of the stack.
func TestTagsReachTasks(t *testing.T) {
	service := load(t)["infra/aws/bridge.yaml"].Resources["Service"].Properties
	if service["PropagateTags"] != "SERVICE" || service["EnableECSManagedTags"] != true {
		t.Errorf("tasks have the tags of %v", service["PropagateTags"])
	}
}

// Calls that the bridge serves, such as large lists, must count for a cluster's times. A stream lasts as long as its
// client wants, and must not.
func TestDashboardTimesIncludeBridge(t *testing.T) {
	for loadBalancer, isBridge := range map[string]bool{"x": true, "": false} {
		for _, widget := range dashboard(t, "LoadBalancer="+loadBalancer, "Api=x") {
			query, _ := get(widget, "properties", "query").(string)
			if !strings.Contains(query, "pct(duration") {
				continue
			}
			if strings.Contains(query, "SOURCE '${BridgeLogs}'") != isBridge {
				t.Errorf("with the load balancer %q, times are queried by %s", loadBalancer, query)
			}
			for _, filter := range []string{
				"verb != 'watch'", "code != 101", "'pods/log'", "'pods/exec'", "'pods/attach'", "'pods/portforward'",
			} {
				if !strings.Contains(query, filter) {
					t.Errorf("%s counts streams: it has no %s", query, filter)
				}
			}
		}
	}
}

// dashboard returns the widgets for a stack, with each substitution replaced by its name.
func dashboard(t *testing.T, parameters ...string) []map[string]any {
	t.Helper()
	g := load(t)["infra/aws/dashboard.yaml"].with(parameters...)
	body := g.Resources["Dashboard"].Properties["DashboardBody"].(map[string]any)["Fn::Sub"].([]any)
	text := body[0].(string)
	for name, value := range body[1].(map[string]any) {
		chosen := g.value(value)
		if sub := get(chosen, "Fn::Sub"); sub != nil {
			chosen = sub
		}
		text = strings.ReplaceAll(text, "${"+name+"}", chosen.(string))
	}
	var board struct{ Widgets []map[string]any }
	if err := json.Unmarshal([]byte(text), &board); err != nil {
		t.Fatalf("the dashboard is no JSON: %v\n%s", err, text)
	}
	return board.Widgets
}

// Operators must see calls, errors, times, streams, audit loss and the drivers of cost. A widget of a metric or a field
// that does not exist is empty, and looks as if all was well.
func TestDashboard(t *testing.T) {
	all := load(t)
	known := []string{
		"AWS/Lambda Invocations", "AWS/Lambda Errors", "AWS/Lambda Throttles", "AWS/Lambda ConcurrentExecutions",
		"AWS/Lambda Duration", "AWS/DynamoDB ConsumedReadCapacityUnits", "AWS/DynamoDB ConsumedWriteCapacityUnits",
		"AWS/Logs IncomingBytes", "AWS/ApplicationELB RequestCount", "AWS/ApplicationELB HTTPCode_ELB_5XX_Count",
		"AWS/ApplicationELB HTTPCode_Target_5XX_Count", "AWS/ApplicationELB ConsumedLCUs", "AWS/ApiGateway Count",
		"AWS/ApiGateway 4XXError", "AWS/ApiGateway 5XXError", "Clusterpass/${Prefix} OpenStreams",
		"Clusterpass/${Prefix} FailedStreams", "Clusterpass/${Prefix} StreamSaturation",
		"Clusterpass/${Prefix} " + gateway.StaleReadsMetric, "Clusterpass/${Prefix} " + gateway.AuditLostMetric,
		"Clusterpass/${Prefix} " + gateway.AuditRefusedMetric,
	}
	fields := []string{"msg", "reason", "code", "duration", "cluster", "Agents", "TunnelStreams"}
	shown, queried := map[string]bool{}, map[string]bool{}
	for _, widgets := range [][]map[string]any{
		dashboard(t, "LoadBalancer=x", "Api="), dashboard(t, "LoadBalancer=", "Api=x"),
		dashboard(t, "LoadBalancer=x", "Api=x"),
	} {
		occupied := map[string]any{}
		for _, widget := range widgets {
			properties := widget["properties"]
			place := fmt.Sprint(widget["x"], " ", widget["y"])
			if occupied[place] != nil {
				t.Errorf("%v and %v are at the same place", occupied[place], get(properties, "title"))
			}
			occupied[place] = get(properties, "title")
			metrics, _ := get(properties, "metrics").([]any)
			for _, m := range metrics {
				name := fmt.Sprint(m.([]any)[0], " ", m.([]any)[1])
				if shown[name] = true; !slices.Contains(known, name) {
					t.Errorf("%v shows %s, which this test does not know", get(properties, "title"), name)
				}
			}
			query, _ := get(properties, "query").(string)
			for _, m := range regexp.MustCompile(`(?:filter |ispresent\(|by |pct\(|max\(|, (?:max\()?)([A-Za-z]+)`).
				FindAllStringSubmatch(query, -1) {
				queried[m[1]] = true
			}
		}
	}
	for _, name := range known {
		if !shown[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
	for _, field := range fields {
		if !queried[field] {
			t.Errorf("the dashboard does not query %s, but %v", field, slices.Sorted(maps.Keys(queried)))
		}
	}
	given := all["template.yaml"].Resources["DashboardStack"].Properties["Parameters"]
	if got := render(get(given, "ProxyLogs")); got[0] != "${ProxyLogs}" {
		t.Errorf("it queries %s", got)
	}
}
