// The view of the gateway itself: what the replica that answers has done since its start, and does now.
import { signal } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import { StatusError, text } from '../../api/client.ts';
import { userName } from '../../api/session.ts';
import type { ViewProps } from '../../router.tsx';
import { AsKubectl, kubectl } from '../../ui/AsKubectl.tsx';
import { Notice } from '../../ui/Notice.tsx';
import { milliseconds, Plot } from '../../ui/Plot.tsx';
import { adopt } from '../../ui/sheet.ts';
import css from './gateway.css' with { type: 'text' };
import { metricsPath, parse, quantile, sum, sumBy, type Metrics } from './metrics.ts';

adopt(css);

const interval = 5_000;
const most = 60; // five minutes
const targets = ['cluster', 'fleet', 'gateway'];
const duration = 'clusterpass_call_duration_seconds';

interface Sample {
  time: number;
  metrics: Metrics;
}

// history has the samples of each replica, by the time of its start.
const history = signal<Map<string, Sample[]>>(new Map());
userName.subscribe(() => {
  history.value = new Map();
});
const mostReplicas = 16;

function record(metrics: Metrics): string {
  const replica = String(sum(metrics, 'process_start_time_seconds'));
  const next = new Map([...history.value].slice(-mostReplicas));
  next.set(replica, [...(next.get(replica) ?? []), { time: Date.now(), metrics }].slice(-most));
  history.value = next;
  return replica;
}

export default function GatewayView(_props: ViewProps) {
  const [replica, setReplica] = useState<string>();
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    const ended = new AbortController();
    let isReading = false;
    const read = async () => {
      if (document.hidden || isReading) {
        return;
      }
      isReading = true;
      try {
        setReplica(record(parse(await text(metricsPath, { signal: ended.signal }))));
        setError(undefined);
      } catch (failed) {
        if (!ended.signal.aborted) {
          setError(failed);
        }
      } finally {
        isReading = false;
      }
    };
    void read();
    const timer = setInterval(read, interval);
    return () => {
      clearInterval(timer);
      ended.abort();
    };
  }, []);
  const samples = replica === undefined ? [] : history.value.get(replica) ?? [];
  return (
    <>
      <h1>Gateway</h1>
      <div class="toolbar">
        <span class="muted" role="status">
          {replica === undefined
            ? 'Loading…'
            : `one replica, which started ${new Date(1000 * Number(replica)).toLocaleString()}`}
        </span>
        <span class="spacer" />
        <AsKubectl command={kubectl('clusterpass', 'get', '--raw', metricsPath)} />
      </div>
      {error !== undefined && <Failure error={error} />}
      {samples.length > 0 && <Report samples={samples} />}
    </>
  );
}

function Failure({ error }: { error: unknown }) {
  if (error instanceof StatusError && error.code === 403) {
    return (
      <>
        <Notice error={error} />
        <p>
          Metrics need the verb <code>get</code> on the non-resource URL <code>/metrics</code>, in a ClusterRole of the
          gateway.
        </p>
      </>
    );
  }
  return <Notice error={error} />;
}

function Report({ samples }: { samples: Sample[] }) {
  const now = samples[samples.length - 1]?.metrics ?? new Map();
  const first = samples.length > 1 ? samples[0]?.metrics : undefined;
  return (
    <>
      <div class="tiles">
        <Tile title="Calls per second" values={rates(samples, (m) => sum(m, `${duration}_count`))} />
        <Tile title="Errors per second" values={rates(samples, (m) => sum(m, 'clusterpass_call_failures_total'))} />
        <Tile title="Calls now" values={samples.map((s) => sum(s.metrics, 'clusterpass_calls_open'))} />
        <Tile title="Streams now" values={samples.map((s) => sum(s.metrics, 'clusterpass_streams_open'))} />
        <Tile title="Agents now" values={samples.map((s) => sum(s.metrics, 'clusterpass_agents'))} />
        <Tile title="Tunnel connections now"
          values={samples.map((s) => sum(s.metrics, 'clusterpass_tunnel_streams'))} />
      </div>
      <h2>Latency of calls</h2>
      <Latency now={now} before={first} />
      <div class="columns">
        <Sums title="Errors by reason, since the start" metrics={now}
          name="clusterpass_call_failures_total" label="reason" />
        <Sums title="Open streams by kind" metrics={now} name="clusterpass_streams_open" label="kind" />
        <Sums title="Failed streams by reason" metrics={now} name="clusterpass_stream_failures_total" label="reason" />
        <Sums title="Tunnel connections by result" metrics={now}
          name="clusterpass_tunnel_connects_total" label="result" />
      </div>
    </>
  );
}

// rates returns the increase per second between samples.
function rates(samples: Sample[], of: (metrics: Metrics) => number): number[] {
  return samples.slice(1).map((s, i) => {
    const before = samples[i];
    const seconds = before ? (s.time - before.time) / 1000 : 0;
    return before && seconds > 0 ? Math.max(0, of(s.metrics) - of(before.metrics)) / seconds : 0;
  });
}

function Tile({ title, values }: { title: string; values: number[] }) {
  const last = values[values.length - 1];
  const shown = last === undefined ? '–' : Number.isInteger(last) ? String(last) : last.toFixed(1);
  return (
    <section class="tile" aria-label={title}>
      <h2>{title}</h2>
      <strong>{shown}</strong>
      <Plot values={values} label={`${title}, now ${shown}`} width={150} height={32} />
    </section>
  );
}

function Latency({ now, before }: { now: Metrics; before: Metrics | undefined }) {
  const inSeconds = (q: number, target: string, since: Metrics | undefined) => {
    const seconds = quantile(q, now, since, duration, target);
    return milliseconds(seconds === undefined ? undefined : 1000 * seconds);
  };
  return (
    <table>
      <thead>
        <tr>
          <th scope="col" rowSpan={2}>Target</th>
          <th scope="colgroup" colSpan={3}>While this page is open</th>
          <th scope="colgroup" colSpan={2}>Since the start</th>
        </tr>
        <tr>
          {['median', '95 %', '99 %', 'median', '99 %'].map((p, i) => <th scope="col" key={i}>{p}</th>)}
        </tr>
      </thead>
      <tbody>
        {targets.map((target) => (
          <tr key={target}>
            <th scope="row">{target}</th>
            {[0.5, 0.95, 0.99].map((q) => <td key={q}>{before ? inSeconds(q, target, before) : '–'}</td>)}
            {[0.5, 0.99].map((q) => <td key={q}>{inSeconds(q, target, undefined)}</td>)}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Sums(props: { title: string; metrics: Metrics; name: string; label: string }) {
  const sums = sumBy(props.metrics, props.name, props.label);
  return (
    <section>
      <h2>{props.title}</h2>
      {sums.length === 0 ? <p class="muted">None.</p> : (
        <table>
          <tbody>
            {sums.map(([key, value]) => <tr key={key}><th scope="row">{key}</th><td>{value}</td></tr>)}
          </tbody>
        </table>
      )}
    </section>
  );
}
