// Which containers a view of logs shows: those of named pods, and those of all pods that a selector matches.
import { follow, request } from '../../api/client.ts';
import { clusterAnnotation, clusterBase, resourcePath, type Base } from '../../api/paths.ts';
import type { List, WatchEvent } from '../../api/types.ts';
import { containerKey, podPath, type Container, type Pod } from './follower.ts';

// mostContainers is how many logs one view follows.
export const mostContainers = 24;

export interface Selection {
  pods: string[]; // cluster/namespace/pod[/container]
  clusters: string[]; // of the selector; none for all clusters of the fleet
  namespace: string;
  selector: string;
}

// hasSelector reports whether the selection has more than named pods.
export function hasSelector(s: Selection): boolean {
  return s.namespace !== '' && (s.selector !== '' || s.clusters.length > 0 || s.pods.length === 0);
}

// parsePod reads cluster/namespace/pod[/container].
export function parsePod(text: string): (Omit<Container, 'container'> & { container: string | undefined }) | undefined {
  const [cluster, namespace, pod, container, ...more] = text.split('/');
  return cluster && namespace && pod && more.length === 0 ? { cluster, namespace, pod, container } : undefined;
}

interface Handler {
  onChange: (containers: Container[]) => void;
  onError: (error: unknown) => void;
}

// select calls onChange with the containers of a selection, and again when pods come or go, until signal aborts.
export function select(s: Selection, handler: Handler, signal: AbortSignal): void {
  const found = new Map<string, Container[]>(); // by pod
  const publish = () => {
    const all = new Map([...found.values()].flat().map((c) => [containerKey(c), c]));
    handler.onChange([...all.values()]);
  };
  for (const text of s.pods) {
    const ref = parsePod(text);
    if (!ref) {
      handler.onError(new Error(`pod "${text}": want cluster/namespace/pod or cluster/namespace/pod/container`));
    } else if (ref.container) {
      found.set(text, [{ ...ref, container: ref.container }]);
    } else {
      request<Pod>(podPath(ref), { signal }).then((pod) => {
        found.set(text, containersOf(ref.cluster, pod));
        publish();
      }, (error: unknown) => signal.aborted || handler.onError(error));
    }
  }
  publish();
  if (!hasSelector(s)) {
    return;
  }
  const bases: { base: Base; cluster?: string }[] =
    s.clusters.map((cluster) => ({ base: clusterBase(cluster), cluster }));
  if (bases.length === 0) {
    bases.push({ base: '/fleet' });
  }
  for (const { base, cluster } of bases) {
    const path = resourcePath({ base, group: '', version: 'v1', resource: 'pods', namespace: s.namespace });
    const keyOf = (pod: Pod) => `selector/${clusterOf(pod, cluster)}/${pod.metadata.name}`;
    // A deleted pod stays: what it printed is still of interest.
    const add = (pod: Pod) => found.set(keyOf(pod), containersOf(clusterOf(pod, cluster), pod));
    follow<List<Pod>, Pod>(path, {
      params: { labelSelector: s.selector }, signal,
      onList: (list) => {
        list.items.forEach(add);
        publish();
      },
      onEvent: (event: WatchEvent<Pod>) => {
        if (event.type === 'ADDED') {
          add(event.object);
          publish();
        }
      },
    }).catch((error: unknown) => signal.aborted || handler.onError(error));
  }
}

function clusterOf(pod: Pod, cluster: string | undefined): string {
  return cluster ?? pod.metadata.annotations?.[clusterAnnotation] ?? '';
}

// containersOf returns the containers of a pod. The fleet adds the cluster to names if a selector names one cluster.
function containersOf(cluster: string, pod: Pod): Container[] {
  const plain = (name: string) => (name.endsWith(`@${cluster}`) ? name.slice(0, -cluster.length - 1) : name);
  return pod.spec.containers.map(({ name }) => ({
    cluster, namespace: plain(pod.metadata.namespace ?? ''), pod: plain(pod.metadata.name), container: name,
  }));
}
