// Summary shows the metadata and the conditions of an object.
import type { ComponentChildren } from 'preact';
import type { Condition, KubeObject } from '../../api/types.ts';
import { Link } from '../../router.tsx';
import { urls } from '../../urls.ts';
import { visible } from '../../ui/text.ts';
import { age } from '../fleet/age.ts';
import type { TabProps } from './Object.tsx';
import { Owners } from './Owners.tsx';

const longestAnnotation = 500;

export function Summary({ at, base, object }: TabProps) {
  const { metadata } = object;
  const finalizers = (metadata as { finalizers?: string[] }).finalizers ?? [];
  return (
    <>
      <dl class="facts">
        <Fact name="Cluster">
          {at.cluster === undefined ? 'the gateway' : <Link href={urls.cluster(at.cluster)}>{at.cluster}</Link>}
        </Fact>
        {metadata.namespace !== undefined && <Fact name="Namespace">{metadata.namespace}</Fact>}
        <Fact name="Created">{created(metadata.creationTimestamp)}</Fact>
        {metadata.deletionTimestamp !== undefined && (
          <Fact name="Being deleted">
            since {metadata.deletionTimestamp}{finalizers.length > 0 && `, waits for ${finalizers.join(', ')}`}
          </Fact>
        )}
        <Fact name="UID"><code>{metadata.uid}</code></Fact>
        {(metadata.ownerReferences ?? []).length > 0 && (
          <Fact name="Owners"><Owners at={at} base={base} references={metadata.ownerReferences ?? []} /></Fact>
        )}
        <Pairs name="Labels" pairs={metadata.labels} />
        <Pairs name="Annotations" pairs={shortened(metadata.annotations)} />
      </dl>
      <Conditions object={object} />
    </>
  );
}

function created(timestamp: string | undefined): string {
  return timestamp === undefined ? 'unknown' : `${timestamp} (${age(Date.parse(timestamp))} ago)`;
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return <div><dt>{name}</dt><dd>{children}</dd></div>;
}

// shortened shortens long values, and hides the copy of a whole object that kubectl apply stores.
function shortened(annotations: Record<string, string> | undefined): Record<string, string> {
  return Object.fromEntries(Object.entries(annotations ?? {})
    .filter(([key]) => key !== 'kubectl.kubernetes.io/last-applied-configuration')
    .map(([key, value]) => [key, value.length > longestAnnotation ? `${value.slice(0, longestAnnotation)}…` : value]));
}

function Pairs({ name, pairs }: { name: string; pairs: Record<string, string> | undefined }) {
  const all = Object.entries(pairs ?? {});
  if (all.length === 0) {
    return null;
  }
  return (
    <Fact name={name}>
      <ul class="pairs">{all.map(([key, value]) => <li key={key}><code>{visible(`${key}=${value}`)}</code></li>)}</ul>
    </Fact>
  );
}

// conditionsOf returns the conditions of an object. A member cluster decides their form, so nothing is assumed of it.
function conditionsOf(object: KubeObject): Partial<Condition>[] {
  const conditions = (object['status'] as { conditions?: unknown } | undefined)?.conditions;
  return Array.isArray(conditions) ? conditions.filter((c) => typeof c === 'object' && c !== null) : [];
}

function Conditions({ object }: { object: KubeObject }) {
  const conditions = conditionsOf(object);
  if (conditions.length === 0) {
    return null;
  }
  return (
    <>
      <h2 id="conditions">Conditions</h2>
      <table aria-labelledby="conditions">
        <thead><tr><th>Type</th><th>Status</th><th>Reason</th><th>Message</th><th>Since</th></tr></thead>
        <tbody>
          {conditions.map((c, i) => (
            <tr key={i}>
              <td>{String(c.type ?? '')}</td>
              <td>{String(c.status ?? '')}</td>
              <td>{String(c.reason ?? '')}</td>
              <td class="long">{visible(String(c.message ?? ''))}</td>
              <td title={String(c.lastTransitionTime ?? '')}>
                {c.lastTransitionTime === undefined ? '' : age(Date.parse(String(c.lastTransitionTime)))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
