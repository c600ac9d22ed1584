package aws

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/websocket-bridge/bridge"
)

// Calls that the bridge serves, such as large lists, must count for a cluster's times. A stream lasts as long as its
// client wants, and must not.
func TestDashboardTimesIncludeBridge(t *testing.T) {
	for loadBalancer, isBridge := range map[string]bool{"x": true, "": false} {
		for _, widget := range dashboard(t, "LoadBalancer="+loadBalancer, "Api=x", "AuditLog=") {
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

// Operators must see how many calls fail for each reason, and the median and the slowest calls of each cluster.
func TestDashboardQueries(t *testing.T) {
	for title, want := range map[string]string{
		"Errors by reason": "filter msg = 'request' and ispresent(reason) | stats count(*) as calls by reason, code",
		"Times of calls by cluster, in ms, without streams": "stats count(*) as calls, pct(duration, 50) / 1000000 as p50, " +
			"pct(duration, 99) / 1000000 as p99 by cluster",
		"Agents and connections to private clusters": "stats max(Agents) as agents, max(TunnelStreams) as connections",
	} {
		found := slices.ContainsFunc(dashboard(t, "LoadBalancer=x", "Api=", "AuditLog="), func(widget map[string]any) bool {
			query, _ := get(widget, "properties", "query").(string)
			return get(widget, "properties", "title") == title && strings.Contains(query, want)
		})
		if !found {
			t.Errorf("no widget %q queries %q", title, want)
		}
	}
}

// The cost of logs must include that of audit events, also in a log group of their own.
func TestDashboardShowsBytesOfAuditEvents(t *testing.T) {
	for group, want := range map[string]int{"": 0, "x": 1} {
		board := fmt.Sprint(dashboard(t, "LoadBalancer=x", "Api=x", "AuditLog="+group))
		if got := strings.Count(board, "[AWS/Logs IncomingBytes LogGroupName ${AuditLog}]"); got != want {
			t.Errorf("with the group %q, its bytes are shown %d times", group, got)
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
		"Clusterpass/${Prefix} " + bridge.RecordingFailuresMetric,
		"Clusterpass/${Prefix} " + gateway.StaleReadsMetric, "Clusterpass/${Prefix} " + gateway.AuditLostMetric,
		"Clusterpass/${Prefix} " + gateway.AuditRefusedMetric, "Clusterpass/${Prefix} " + gateway.AuditWaitingMetric,
	}
	fields := []string{"msg", "reason", "code", "duration", "cluster", "Agents", "TunnelStreams"}
	shown, queried := map[string]bool{}, map[string]bool{}
	for _, widgets := range [][]map[string]any{
		dashboard(t, "LoadBalancer=x", "Api=", "AuditLog="), dashboard(t, "LoadBalancer=", "Api=x", "AuditLog="),
		dashboard(t, "LoadBalancer=x", "Api=x", "AuditLog=x"),
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
