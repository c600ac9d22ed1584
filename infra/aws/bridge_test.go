package aws

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestBridgeTask checks the container's protection against attackers, and its shutdown.
func TestBridgeTask(t *testing.T) {
	task := load(t)["infra/aws/bridge.yaml"].Resources["Task"]
	container := task.Properties["ContainerDefinitions"].([]any)[0]
	if get(container, "ReadonlyRootFilesystem") != true ||
		fmt.Sprint(get(container, "LinuxParameters", "Capabilities", "Drop")) != "[ALL]" {
		t.Error("the container may do more than it needs")
	}
	var drain time.Duration
	for _, v := range get(container, "Environment").([]any) {
		if get(v, "Name") == "CLUSTERPASS_DRAIN_TIMEOUT" {
			drain, _ = time.ParseDuration(fmt.Sprint(get(v, "Value")))
		}
	}
	const most, audit = 120 * time.Second, 10 * time.Second // Fargate's limit, and the time for the last audit events
	stop, err := time.ParseDuration(fmt.Sprint(get(container, "StopTimeout")) + "s")
	if err != nil || drain <= 0 || stop > most || stop < drain+audit {
		t.Errorf("the container is killed after %s (%v) and drains for %s", stop, err, drain)
	}
	service := load(t)["infra/aws/bridge.yaml"].Resources["Service"]
	given := load(t)["template.yaml"].Resources["BridgeService"].Properties["Parameters"]
	if get(service.Properties, "NetworkConfiguration", "AwsvpcConfiguration", "AssignPublicIp") == nil ||
		fmt.Sprint(render(get(given, "PublicAddress"))) != "[DISABLED ENABLED]" {
		t.Error("the bridge has no way out of public subnets, or a public address in private ones")
	}
	if service.Properties["DesiredCount"] != nil {
		t.Error("an update sets the scaling back")
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

// The cost of tasks is attributed by the tags of the stack. CloudFormation gives them to all resources of the stack,
// and ECS must copy them to tasks.
func TestTagsReachTasks(t *testing.T) {
	service := load(t)["infra/aws/bridge.yaml"].Resources["Service"].Properties
	if service["PropagateTags"] != "SERVICE" || service["EnableECSManagedTags"] != true {
		t.Errorf("tasks have the tags of %v", service["PropagateTags"])
	}
}

// ECS must start the image of the deployment, also after a tag was moved. Otherwise bridges and functions have
// different versions.
func TestBridgeRunsTheDigest(t *testing.T) {
	all := load(t)
	container := all["infra/aws/bridge.yaml"].Resources["Task"].Properties["ContainerDefinitions"].([]any)[0]
	const want = "${AWS::AccountId}.dkr.ecr.${AWS::Region}.${AWS::URLSuffix}/${Repository}@${Digest}"
	if got := render(get(container, "Image")); len(got) != 1 || got[0] != want {
		t.Errorf("bridges run %q, want %q", got, want)
	}
	given := all["template.yaml"].Resources["BridgeService"].Properties["Parameters"]
	for name, want := range map[string]string{"Repository": "${BridgeRepository}", "Digest": "${BridgeDigest}"} {
		if got := render(get(given, name)); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
}
