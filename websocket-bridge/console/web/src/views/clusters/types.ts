// The Cluster of cluster.karmada.io/v1alpha1, with the fields that the console shows.
import type { Condition, KubeObject } from '../../api/types.ts';

export const clustersPath = '/apis/cluster.karmada.io/v1alpha1/clusters';

export interface Cluster extends KubeObject {
  spec?: {
    syncMode?: 'Push' | 'Pull';
    apiEndpoint?: string;
    proxyURL?: string;
    identity?: string;
    provider?: string;
    region?: string;
    zone?: string;
  };
  status?: { kubernetesVersion?: string; conditions?: Condition[]; probe?: { time: string; latency?: string } };
}

export function conditionOf(cluster: Cluster, type: string): Condition | undefined {
  return cluster.status?.conditions?.find((c) => c.type === type);
}

export type Health = 'ready' | 'not ready' | 'unknown';

export function healthOf(cluster: Cluster): Health {
  switch (conditionOf(cluster, 'Ready')?.status) {
    case 'True':
      return 'ready';
    case 'False':
      return 'not ready';
    default:
      return 'unknown';
  }
}

export function isPrivate(cluster: Cluster): boolean {
  return cluster.spec?.syncMode === 'Pull';
}

// todo returns what an administrator can do about the reason of a condition Ready that is not True.
export function todo(cluster: Cluster): string {
  const reason = conditionOf(cluster, 'Ready')?.reason;
  switch (reason) {
    case 'credential_refused':
      return 'The stored credential is not valid any more. Register the cluster again.';
    case 'misconfigured':
      return 'The Cluster or its secret is unusable, as the message explains. Register the cluster again.';
    case 'cannot_impersonate':
      return 'Give the account of the gateway the right to impersonate in this cluster.';
    case 'bad_redirect':
      return 'Register the URL of the API server itself: the server at this URL redirects to another host.';
    case 'unreachable':
    case 'timeout':
    case 'circuit_open':
      return isPrivate(cluster)
        ? 'Check that the agents of the cluster run and reach the gateway: their log names the failure.'
        : 'Check that the API server runs, and that the network and its firewalls let the gateway connect to it.';
    case undefined:
      return 'The gateway has not probed the cluster yet, or probes are disabled.';
    default:
      return 'The reference of errors explains the reason.';
  }
}
