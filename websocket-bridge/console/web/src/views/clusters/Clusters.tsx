// The clusters view lists all member clusters with their health, and what to do about those that are not ready.
import { useRef } from 'preact/hooks';
import { Link, setQuery, type ViewProps } from '../../router.tsx';
import { AsKubectl, kubectl } from '../../ui/AsKubectl.tsx';
import { useShortcuts } from '../../ui/keys.ts';
import { Notice } from '../../ui/Notice.tsx';
import { milliseconds, Plot } from '../../ui/Plot.tsx';
import { adopt } from '../../ui/sheet.ts';
import { urls } from '../../urls.ts';
import { agentsText, useAgents, type Agents } from './agents.ts';
import css from './clusters.css' with { type: 'text' };
import { samplesOf, useLatency } from './latency.ts';
import { conditionOf, healthOf, isPrivate, todo, type Cluster, type Health } from './types.ts';
import { useClusters } from './useClusters.ts';

adopt(css);

export default function ClustersView({ query }: ViewProps) {
  const { clusters, error, isLive, retry } = useClusters();
  const search = useRef<HTMLInputElement>(null);
  const text = query.get('q') ?? '';
  const isProblems = query.get('health') === 'problems';
  useShortcuts([{ keys: '/', description: 'Search the clusters', run: () => search.current?.focus() }]);
  const shown = (clusters ?? []).filter((c) => matches(c, text) && (!isProblems || healthOf(c) !== 'ready'));
  useLatency(shown.map((c) => c.metadata.name));
  const agents = useAgents(shown);
  if (error !== undefined) {
    return <><h1>Clusters</h1><Notice error={error} onRetry={retry} /></>;
  }
  return (
    <>
      <h1>Clusters</h1>
      <div class="toolbar">
        <input ref={search} type="search" placeholder="Search (/)"
          aria-label="Search clusters by name, version or label" value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        <label>
          <input type="checkbox" checked={isProblems}
            onChange={(event) => setQuery({ health: event.currentTarget.checked ? 'problems' : undefined })}
          /> Only problems
        </label>
        <span class="muted" role="status">{clusters ? summary(clusters, isLive) : 'Loading…'}</span>
        <span class="spacer" />
        <AsKubectl command={kubectl('clusterpass', 'get', 'clusters', '--watch')} />
      </div>
      {clusters?.length === 0 && (
        <p>The gateway has no clusters that you may see. <code>clusterpass cluster add NAME</code> registers one.</p>
      )}
      {shown.length > 0 && <Table clusters={shown} agents={agents} />}
      {clusters && clusters.length > 0 && shown.length === 0 && <p>No cluster matches.</p>}
    </>
  );
}

function matches(cluster: Cluster, text: string): boolean {
  const labels = Object.entries(cluster.metadata.labels ?? {}).map(([k, v]) => `${k}=${v}`);
  const all = [cluster.metadata.name, cluster.status?.kubernetesVersion ?? '', ...labels].join('\n').toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

function summary(clusters: Cluster[], isLive: boolean | undefined): string {
  const problems = clusters.filter((c) => healthOf(c) !== 'ready').length;
  const health = problems === 0 ? 'all ready' : `${problems} not ready`;
  const state = isLive === undefined ? '' : isLive ? ', live' : ', not live';
  return `${clusters.length} ${clusters.length === 1 ? 'cluster' : 'clusters'}, ${health}${state}`;
}

function Table({ clusters, agents }: { clusters: Cluster[]; agents: Agents | undefined }) {
  return (
    <table class="clusters">
      <thead>
        <tr>
          <th scope="col">Name</th><th scope="col">Health</th><th scope="col">Version</th>
          <th scope="col">Connection</th><th scope="col">Latency from here</th><th scope="col">Since</th>
          <th scope="col"><span class="hidden">Links</span></th>
        </tr>
      </thead>
      <tbody>{clusters.map((c) => <Row key={c.metadata.name} cluster={c} agents={agents} />)}</tbody>
    </table>
  );
}

function Row({ cluster, agents }: { cluster: Cluster; agents: Agents | undefined }) {
  const { name } = cluster.metadata;
  const ready = conditionOf(cluster, 'Ready');
  const samples = samplesOf(name).value;
  const last = samples[samples.length - 1]?.ms;
  return (
    <tr data-cluster={name}>
      <th scope="row"><Link href={urls.cluster(name)}>{name}</Link></th>
      <td>
        <HealthMark health={healthOf(cluster)} />
        {healthOf(cluster) !== 'ready' && <Problem cluster={cluster} />}
        {conditionOf(cluster, 'AgentCredentialReused')?.status === 'True' && <Reused cluster={cluster} />}
      </td>
      <td>{cluster.status?.kubernetesVersion ?? '–'}</td>
      <td>{isPrivate(cluster) ? agentsText(cluster, agents) ?? 'agents' : 'direct'}</td>
      <td class="latency">
        <Plot values={samples.map((s) => s.ms)} label={`Latency of ${name}, now ${milliseconds(last)}`} />
        <span>{milliseconds(last)}</span>
      </td>
      <td>{ready?.lastTransitionTime ? <Time time={ready.lastTransitionTime} /> : '–'}</td>
      <td><Link href={urls.fleet({ cluster: name })} title={`Objects of ${name}`}>Objects</Link></td>
    </tr>
  );
}

export function Time({ time }: { time: string }) {
  return <time dateTime={time}>{new Date(time).toLocaleString()}</time>;
}

export function HealthMark({ health }: { health: Health }) {
  const colour = { ready: 'good', 'not ready': 'bad', unknown: 'warn' }[health];
  const mark = { ready: '●', 'not ready': '▲', unknown: '◆' }[health];
  return <span class={colour}><span aria-hidden="true">{mark}</span> {health}</span>;
}

// Problem shows why a cluster is not ready. The texts may come from the cluster, so they are text and nothing else.
export function Problem({ cluster }: { cluster: Cluster }) {
  const ready = conditionOf(cluster, 'Ready');
  return (
    <div class="problem">
      {ready && <p>{ready.reason && <code>{ready.reason}</code>} {ready.message}</p>}
      <p>{todo(cluster)}</p>
    </div>
  );
}

export function Reused({ cluster }: { cluster: Cluster }) {
  return (
    <div class="problem">
      <p class="bad">A copy of the credential of the agents was used.</p>
      <p>{conditionOf(cluster, 'AgentCredentialReused')?.message} Join the cluster again.</p>
    </div>
  );
}
