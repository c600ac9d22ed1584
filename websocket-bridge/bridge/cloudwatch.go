package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
	"github.com/clusterpass/clusterpass/websocket-bridge/recorder"
)

// CloudWatch alarms evaluate minutes.
const cloudWatchPeriod = time.Minute

// printCloudWatch prints a line for CloudWatch Logs every cloudWatchPeriod until ctx ends.
func (b *Bridge) printCloudWatch(ctx context.Context, out io.Writer, namespace string) {
	t := time.NewTicker(cloudWatchPeriod)
	defer t.Stop()
	for before := (totals{}); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			line, all, err := b.cloudWatchLine(namespace, now, before)
			if err != nil {
				continue // a collector is wrong; /metrics reports it
			}
			before = all
			_, _ = fmt.Fprintf(out, "%s\n", line) // there is no fallback for this output
		}
	}
}

// AgentReusesMetric is the CloudWatch metric of refused uses of agents' credentials that were replaced.
const AgentReusesMetric = "AgentCredentialReuses"

// RecordingFailuresMetric is the CloudWatch metric of sessions whose recording is missing or incomplete.
const RecordingFailuresMetric = "RecordingFailures"

// totals count from the bridge's start. stale are reads of expired cache entries.
type totals struct{ failed, stale, auditLost, auditRefused, agentReuses, unrecorded float64 }

// cloudWatchLine returns the metrics in the embedded metric format, and the current totals. Counters cover the time
// since before, and those of rare events are omitted at 0. Open streams include requests and connections at the
// tunnel port, which need as much memory.
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
func (b *Bridge) cloudWatchLine(namespace string, now time.Time, before totals) (line []byte, all totals, err error) {
	families, err := b.Metrics.Gather()
	if err != nil {
		return nil, totals{}, err
	}
	var open, agents, tunnels float64
	for _, f := range families {
		switch f.GetName() {
		case "clusterpass_agents":
			agents = sum(f)
		case "clusterpass_tunnel_streams":
			tunnels = sum(f)
		case "clusterpass_streams_open", "clusterpass_tunnel_carried":
			open += sum(f)
		case "clusterpass_stream_failures_total":
			all.failed = sum(f)
		case "clusterpass_cache_stale_total":
			all.stale = sum(f)
		case auditLost:
			all.auditLost = sum(f)
		case auditRefused:
			all.auditRefused = sum(f)
		case agentserver.ReusesMetric:
			all.agentReuses = sum(f)
		case recorder.FailuresMetric:
			all.unrecorded = sum(f)
		}
	}
	type metric struct{ Name, Unit string }
	values := map[string]any{
		"OpenStreams": open, "FailedStreams": all.failed - before.failed,
		"Agents": agents, "TunnelStreams": tunnels, // only for queries of the log, since each metric costs
	}
	metrics := []metric{{"OpenStreams", "Count"}, {"FailedStreams", "Count"}}
	if b.limits.MaxStreams > 0 {
		values["StreamSaturation"] = 100 * open / float64(b.limits.MaxStreams)
		metrics = append(metrics, metric{"StreamSaturation", "Percent"})
	}
	for _, rare := range []struct {
		name  string
		count float64
	}{
		{gateway.StaleReadsMetric, all.stale - before.stale},
		{gateway.AuditLostMetric, all.auditLost - before.auditLost},
		{gateway.AuditRefusedMetric, all.auditRefused - before.auditRefused},
		{AgentReusesMetric, all.agentReuses - before.agentReuses},
		{RecordingFailuresMetric, all.unrecorded - before.unrecorded},
	} {
		if rare.count > 0 { // a metric without values is free
			values[rare.name] = rare.count
			metrics = append(metrics, metric{rare.name, "Count"})
		}
	}
	values["_aws"] = map[string]any{
		"Timestamp":         now.UnixMilli(),
		"CloudWatchMetrics": []any{map[string]any{"Namespace": namespace, "Dimensions": [][]string{{}}, "Metrics": metrics}},
	}
	line, err = json.Marshal(values)
	return line, all, err
}

func sum(f *dto.MetricFamily) (n float64) {
	for _, m := range f.GetMetric() {
		n += m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return n
}
