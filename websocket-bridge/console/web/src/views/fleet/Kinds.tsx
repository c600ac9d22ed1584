// Kinds lists what discovery shows, for the user to choose from.
import { useRef } from 'preact/hooks';
import { Link, setQuery } from '../../router.tsx';
import { AsKubectl, kubectl } from '../../ui/AsKubectl.tsx';
import { useShortcuts } from '../../ui/keys.ts';
import { Notice } from '../../ui/Notice.tsx';
import { urls } from '../../urls.ts';
import { fullName, onePerKind, scopeOf } from './scope.ts';
import { useDiscovery } from './useDiscovery.ts';

export function Kinds({ query }: { query: URLSearchParams }) {
  const search = useRef<HTMLInputElement>(null);
  const scope = scopeOf(query.get('cluster'));
  const { resources, error, retry } = useDiscovery(scope.base);
  useShortcuts([{ keys: '/', description: 'Search the kinds', run: () => search.current?.focus() }]);

  const context = scope.base === '/fleet' ? 'fleet' : scope.clusters[0];
  const text = query.get('q') ?? '';
  const wanted = text.toLowerCase();
  const found = onePerKind(resources ?? []).filter((r) =>
    [fullName(r), r.kind, ...r.shortNames, ...r.categories].some((name) => name.toLowerCase().includes(wanted)));
  const groups = new Set(found.map((r) => r.group));
  return (
    <>
      <h1>Fleet{scope.clusters.length > 0 && `: ${scope.clusters.join(', ')}`}</h1>
      <div class="toolbar">
        <input
          ref={search} type="search" value={text} placeholder="Search kinds" aria-label="Search kinds"
          onInput={(event) => setQuery({ q: event.currentTarget.value })}
        />
        <span class="muted" role="status">
          {resources ? `${found.length} kinds` : error === undefined ? 'Loading…' : ''}
        </span>
        <AsKubectl command={kubectl(context, 'api-resources', '--verbs=list')} />
      </div>
      {error !== undefined && <Notice error={error} onRetry={retry} />}
      {resources?.length === 0 && (
        <p>
          No ResourceRegistry selects a kind of a cluster that you may call. Create one, or <Link href={urls.clusters()}>
            choose one cluster
          </Link>: its kinds need no registry.
        </p>
      )}
      {[...groups].map((group) => (
        <section key={group} aria-label={group || 'core'}>
          <h2>{group || 'core'}</h2>
          <ul class="kinds">
            {found.filter((r) => r.group === group).map((r) => (
              <li key={r.resource}>
                <Link
                  href={urls.resources(r, { cluster: scope.clusters.join(',') })} title={`${fullName(r)} ${r.version}`}
                >
                  {r.kind}
                </Link>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </>
  );
}
