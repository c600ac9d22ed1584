// The view of one cluster: its health, its connection and its latency.
import { Link, type ViewProps } from '../../router.tsx';
import { AsKubectl, kubectl } from '../../ui/AsKubectl.tsx';
import { Notice } from '../../ui/Notice.tsx';
import { milliseconds, Plot } from '../../ui/Plot.tsx';
import { adopt } from '../../ui/sheet.ts';
import { urls } from '../../urls.ts';
import { agentCluster, agentsText, useAgents } from './agents.ts';
import css from './clusters.css' with { type: 'text' };
import { HealthMark, Problem, Reused, Time } from './Clusters.tsx';
import { interval, percentile, samplesOf, useLatency } from './latency.ts';
import { conditionOf, healthOf, isPrivate, type Cluster } from './types.ts';
import { useClusters } from './useClusters.ts';

adopt(css);

export default function ClusterView({ params }: ViewProps) {
  const name = params['name'] ?? '';
  const { clusters, error, retry } = useClusters(name);
  const cluster = clusters?.[0];
  useLatency(cluster ? [name] : []);
  return (
    <>
      <p><Link href={urls.clusters()}>Clusters</Link></p>
      <h1>{name}</h1>
      {error !== undefined && <Notice error={error} onRetry={retry} />}
      {clusters && !cluster && <p>The gateway has no cluster of this name.</p>}
      {cluster && <Details cluster={cluster} />}
    </>
  );
}

function Details({ cluster }: { cluster: Cluster }) {
  const { name, labels } = cluster.metadata;
  const { apiEndpoint, identity, provider, region, zone } = cluster.spec ?? {};
  const object = { group: 'cluster.karmada.io', version: 'v1alpha1', resource: 'clusters', name };
  return (
    <>
      <div class="toolbar">
        <Link href={urls.fleet({ cluster: name })}>Objects</Link>
        <Link href={urls.object(object)}>YAML</Link>
        <span class="spacer" />
        <AsKubectl command={kubectl('clusterpass', 'get', 'cluster', [name], '-o', 'yaml')} />
      </div>
      <dl class="facts">
        <dt>Health</dt>
        <dd>
          <HealthMark health={healthOf(cluster)} />
          {healthOf(cluster) === 'ready'
            ? <p>{conditionOf(cluster, 'Ready')?.message}</p>
            : <Problem cluster={cluster} />}
          {conditionOf(cluster, 'AgentCredentialReused')?.status === 'True' && <Reused cluster={cluster} />}
        </dd>
        <dt>Since</dt>
        <dd><Since cluster={cluster} /></dd>
        <dt>Version</dt>
        <dd>{cluster.status?.kubernetesVersion ?? '–'}</dd>
        <dt>Connection</dt>
        <dd>
          {isPrivate(cluster)
            ? <Connected cluster={cluster} />
            : `direct, to ${apiEndpoint ?? 'the server in its kubeconfig'}`}
        </dd>
        <dt>Identity</dt>
        <dd>{identity ?? 'impersonate'}</dd>
        {[['Provider', provider], ['Region', region], ['Zone', zone]].map(([title, value]) =>
          value && <><dt>{title}</dt><dd>{value}</dd></>)}
        {labels && <><dt>Labels</dt><dd>{Object.entries(labels).map(([k, v]) => `${k}=${v}`).join(', ')}</dd></>}
      </dl>
      <Latency cluster={cluster} />
    </>
  );
}

// Connected describes the connection to a private cluster. Users who may not read metrics see no number.
function Connected({ cluster }: { cluster: Cluster }) {
  const count = agentsText(cluster, useAgents([cluster]));
  const behind = agentCluster(cluster);
  return (
    <>
      through {count ?? 'the agents'} in {behind === cluster.metadata.name
        ? 'the cluster'
        : <Link href={urls.cluster(behind)}>{behind}</Link>}
    </>
  );
}

function Since({ cluster }: { cluster: Cluster }) {
  const time = conditionOf(cluster, 'Ready')?.lastTransitionTime;
  return time ? <Time time={time} /> : <>–</>;
}

function Latency({ cluster }: { cluster: Cluster }) {
  const { name } = cluster.metadata;
  const samples = samplesOf(name).value;
  const failed = samples.filter((s) => s.ms === undefined).length;
  const [median, high] = [percentile(samples, 0.5), percentile(samples, 0.95)].map(milliseconds);
  return (
    <>
      <h2>Latency from here</h2>
      <Plot values={samples.map((s) => s.ms)} label={`Latency of ${name}, median ${median}`}
        width={720} height={80} slots={120} />
      <p class="muted">
        Requests of this page for the version of the cluster, every {interval / 1000} s while the page is visible:
        median {median}, 95 of 100 below {high}, {failed} of {samples.length} failed.
      </p>
    </>
  );
}
