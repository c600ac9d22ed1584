// useObject returns an object and keeps it up to date.
import { useEffect, useState } from 'preact/hooks';
import { follow, isAborted, request } from '../../api/client.ts';
import type { KubeObject, List } from '../../api/types.ts';
import { fieldValue } from './fields.ts';

export interface Loaded {
  path: string;
  object?: KubeObject; // the last state that is known
  isDeleted: boolean;
  isLive: boolean; // a watch is open
  error?: unknown;
}

// useObject reads the object at path, which is name in the list at listPath.
export function useObject(path: string, listPath: string, name: string): Loaded & { reload: () => void } {
  const empty: Loaded = { path, isDeleted: false, isLive: false };
  const [loaded, setLoaded] = useState<Loaded>(empty);
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    const change = (next: Partial<Loaded>) => {
      if (!abort.signal.aborted) {
        setLoaded((old) => ({ ...(old.path === path ? old : empty), ...next }));
      }
    };
    const run = async () => {
      const object = await request<KubeObject>(path, { signal: abort.signal });
      change({ object, isDeleted: false, error: undefined });
      const { apiVersion, kind } = object;
      const show = (newer: KubeObject) => change({ object: { ...newer, apiVersion, kind }, isDeleted: false });
      await follow<List<KubeObject>, KubeObject>(listPath, {
        params: { fieldSelector: `metadata.name=${fieldValue(name)}` }, signal: abort.signal,
        onList: ({ items }) => {
          const [newer] = items ?? [];
          if (newer) {
            show(newer);
          } else {
            change({ isDeleted: true });
          }
        },
        onEvent: ({ type, object: newer }) => {
          if (type === 'DELETED') {
            change({ isDeleted: true });
          } else if (type !== 'BOOKMARK') {
            show(newer);
          }
        },
        onState: (state) => change({ isLive: state === 'open' }),
      }).catch(() => change({ isLive: false })); // the caller may get the object, but neither list nor watch
    };
    run().catch((error: unknown) => {
      if (!isAborted(error)) {
        change({ error });
      }
    });
    return () => abort.abort();
  }, [path, attempt]);
  return { ...(loaded.path === path ? loaded : empty), reload: () => setAttempt((n) => n + 1) };
}
