// useDiscovery returns the resources of an API, or the error of its discovery.
import { useEffect, useState } from 'preact/hooks';
import { discover, forgetDiscovery, type Resource } from '../../api/discovery.ts';
import type { Base } from '../../api/paths.ts';

export interface Discovered {
  base: Base;
  resources?: Resource[];
  error?: unknown;
}

export function useDiscovery(base: Base): Discovered & { retry: () => void } {
  const [found, setFound] = useState<Discovered>({ base });
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    let isCurrent = true;
    discover(base).then(
      (resources) => isCurrent && setFound({ base, resources }),
      (error: unknown) => isCurrent && setFound({ base, error }),
    );
    return () => {
      isCurrent = false;
    };
  }, [base, attempt]);
  const retry = () => {
    forgetDiscovery(base);
    setAttempt(attempt + 1);
  };
  return { ...(found.base === base ? found : { base }), retry };
}
