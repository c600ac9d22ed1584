// The number of agents of each private cluster, as the replica of the gateway that answers counts them. Each agent is
// connected to every replica.
import { useEffect, useState } from 'preact/hooks';
import { sleep, StatusError, text } from '../../api/client.ts';
import { metricsPath, parse, sumBy } from '../gateway/metrics.ts';
import { isPrivate, type Cluster } from './types.ts';

const interval = 5_000;
const refusals = [401, 403, 404];

export type Agents = Map<string, number>;

// useAgents returns the agents by cluster, or undefined if no cluster is private or the user may not read the metrics.
export function useAgents(clusters: Cluster[]): Agents | undefined {
  const [agents, setAgents] = useState<Agents>();
  const isWanted = clusters.some(isPrivate);
  useEffect(() => {
    const ended = new AbortController();
    const run = async () => {
      while (isWanted && !ended.signal.aborted) {
        if (!document.hidden) {
          const metrics = parse(await text(metricsPath, { signal: ended.signal }));
          setAgents(new Map(sumBy(metrics, 'clusterpass_cluster_agents', 'cluster')));
        }
        await sleep(interval, ended.signal);
      }
    };
    const follow = async () => {
      try {
        await run();
      } catch (error) {
        if (!ended.signal.aborted) {
          setAgents(undefined);
        }
        if (!(error instanceof StatusError && refusals.includes(error.code))) {
          await sleep(interval, ended.signal);
          void follow();
        }
      }
    };
    void follow();
    return () => ended.abort();
  }, [isWanted]);
  return agents;
}

// agentCluster returns the cluster whose agents connect to a private cluster. The proxyURL may name another cluster.
export function agentCluster(cluster: Cluster): string {
  const { name } = cluster.metadata;
  try {
    return new URL(cluster.spec?.proxyURL ?? '').pathname.slice(1) || name;
  } catch {
    return name; // without a proxyURL
  }
}

// agentsText returns the number of agents that connect to a private cluster, or undefined if it is not known.
export function agentsText(cluster: Cluster, agents: Agents | undefined): string | undefined {
  const count = agents && (agents.get(agentCluster(cluster)) ?? 0);
  return count === undefined ? undefined : count === 1 ? '1 agent' : `${count} agents`;
}
