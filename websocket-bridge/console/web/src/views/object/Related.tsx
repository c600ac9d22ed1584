// Related shows the owners of an object, and the objects that it owns.
import { useEffect, useState } from 'preact/hooks';
import { isAborted } from '../../api/client.ts';
import { Link, setQuery } from '../../router.tsx';
import { messageOf, Notice } from '../../ui/Notice.tsx';
import { urls } from '../../urls.ts';
import { age } from '../fleet/age.ts';
import type { TabProps } from './Object.tsx';
import { Owners } from './Owners.tsx';
import { childrenOf, ownersOf, podsOf, type Children, type Node, type Owner } from './related.ts';

const mostLogs = 20; // pods whose logs are opened at once

export function Related({ at, base, object, query }: TabProps) {
  const isAll = query.get('kinds') === 'all';
  const [attempt, setAttempt] = useState(0);
  const [owners, setOwners] = useState<Owner[]>();
  const [children, setChildren] = useState<Children>();
  const [error, setError] = useState<unknown>();
  const { uid } = object.metadata;
  useEffect(() => {
    const abort = new AbortController();
    const fail = (failed: unknown) => !isAborted(failed) && !abort.signal.aborted && setError(failed);
    setError(undefined);
    setChildren(undefined);
    ownersOf(base, object, abort.signal).then(setOwners, fail);
    childrenOf(base, object, isAll, abort.signal).then(setChildren, fail);
    return () => abort.abort();
  }, [base, uid, isAll, attempt]);

  const pods = at.cluster === undefined || !children ? [] : podsOf(children.nodes, mostLogs);
  return (
    <>
      {error !== undefined && <Notice error={error} onRetry={() => setAttempt(attempt + 1)} />}
      <h2>Owners</h2>
      {!owners && error === undefined && <p class="loading">Loading…</p>}
      {owners?.length === 0 && <p class="muted">None.</p>}
      {owners && owners.length > 0 && (
        <ul class="tree">
          {owners.map((o) => (
            <li key={o.reference.uid} class={o.depth > 0 ? 'above' : ''}>
              <Owners at={at} base={base} references={[o.reference]} />
              {o.error !== undefined && <span class="bad"> {messageOf(o.error)}</span>}
            </li>
          ))}
        </ul>
      )}
      <h2>Children</h2>
      <div class="toolbar">
        <label>
          <input type="checkbox" checked={isAll} onChange={() => setQuery({ kinds: isAll ? '' : 'all' })} /> Search all kinds
        </label>
        <button type="button" onClick={() => setAttempt(attempt + 1)}>Load again</button>
        {pods.length > 0 && at.cluster !== undefined && (
          <Link
            href={urls.logs(pods.map((p) => ({
              cluster: at.cluster as string, namespace: p.metadata.namespace ?? '', pod: p.metadata.name,
            })))}
          >
            Logs of {pods.length} {pods.length === 1 ? 'pod' : 'pods'}
          </Link>
        )}
      </div>
      {!children && error === undefined && <p class="loading" role="status">Searching…</p>}
      {children && <Tree at={at} nodes={children.nodes} />}
      {children && <Searched found={children} />}
    </>
  );
}

function Tree({ at, nodes }: { at: TabProps['at']; nodes: Node[] }) {
  if (nodes.length === 0) {
    return null;
  }
  return (
    <ul class="tree">
      {nodes.map((n) => {
        const { group, version, resource, kind } = n.resource;
        const { namespace, name, creationTimestamp, deletionTimestamp } = n.metadata;
        return (
          <li key={n.metadata.uid}>
            <Link href={urls.object({ cluster: at.cluster, group, version, resource, namespace, name })}>{kind} {name}</Link>
            {' '}
            <span class="muted">
              {age(Date.parse(creationTimestamp ?? ''))}{deletionTimestamp !== undefined && ', being deleted'}
            </span>
            <Tree at={at} nodes={n.children} />
          </li>
        );
      })}
    </ul>
  );
}

function Searched({ found }: { found: Children }) {
  return (
    <>
      <p class="muted" role="status">
        {found.nodes.length === 0 && 'None. '}{found.kinds} kinds were searched.
        {found.incomplete.length > 0 && ` Only a part was read of: ${found.incomplete.join(', ')}.`}
      </p>
      {found.failed.length > 0 && (
        <details class="warnings">
          <summary>{found.failed.length} kinds could not be searched</summary>
          <ul>{found.failed.map((text) => <li key={text}>{text}</li>)}</ul>
        </details>
      )}
    </>
  );
}
