// Live clusters of the gateway.
import { useEffect, useState } from 'preact/hooks';
import { follow } from '../../api/client.ts';
import type { List } from '../../api/types.ts';
import { clustersPath, type Cluster } from './types.ts';

export interface Clusters {
  clusters: Cluster[] | undefined; // undefined until the first list
  error: unknown;
  isLive: boolean | undefined; // undefined until the first watch
  retry: () => void;
}

// useClusters follows all clusters, or the one of the name.
export function useClusters(name?: string): Clusters {
  const [clusters, setClusters] = useState<Cluster[]>();
  const [error, setError] = useState<unknown>();
  const [isLive, setLive] = useState<boolean>();
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    const ended = new AbortController();
    const known = new Map<string, Cluster>();
    const show = () => setClusters(
      [...known.values()].sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1)));
    setError(undefined);
    follow<List<Cluster>, Cluster>(clustersPath, {
      params: { fieldSelector: name && `metadata.name=${name}` },
      signal: ended.signal,
      onList: (list) => {
        known.clear();
        list.items.forEach((c) => known.set(c.metadata.name, c));
        show();
      },
      onEvent: ({ type, object }) => {
        if (type === 'BOOKMARK') {
          return;
        }
        if (type === 'DELETED') {
          known.delete(object.metadata.name);
        } else {
          known.set(object.metadata.name, object);
        }
        show();
      },
      onState: (state) => setLive(state === 'open'),
    }).catch((failed: unknown) => {
      setLive(false);
      setError(failed);
    });
    return () => ended.abort();
  }, [name, attempt]);
  return { clusters, error, isLive, retry: () => setAttempt(attempt + 1) };
}
