package aws

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/websocket-bridge/bridge"
)

// Alarms must name metrics that exist. Otherwise operators never hear of errors and full bridges.
func TestAlarms(t *testing.T) {
	all := load(t)
	var watched []string
	watch := func(metric any) { watched = append(watched, describeMetric(metric)) }
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
		"Clusterpass/${Prefix} " + bridge.RecordingFailuresMetric,
		"Clusterpass/${Prefix} " + gateway.StaleReadsMetric,
		"Clusterpass/${Prefix} " + gateway.AuditLostMetric,
		"Clusterpass/${Prefix} " + gateway.AuditRefusedMetric,
		"Clusterpass/${Prefix} " + gateway.AuditWaitingMetric,
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

// describeMetric returns the namespace, name and dimensions of a metric.
func describeMetric(metric any) string {
	text := fmt.Sprint(render(get(metric, "Namespace"))[0], " ", get(metric, "MetricName"))
	dimensions, _ := get(metric, "Dimensions").([]any)
	for _, d := range dimensions {
		text += fmt.Sprint(" ", get(d, "Name"), "=", render(get(d, "Value"))[0])
	}
	return text
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
