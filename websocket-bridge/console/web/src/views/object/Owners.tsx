// Owners links the owner references of an object.
import { useEffect, useState } from 'preact/hooks';
import { findKind, type Resource } from '../../api/discovery.ts';
import { splitAPIVersion, type Base } from '../../api/paths.ts';
import type { OwnerReference } from '../../api/types.ts';
import { Link } from '../../router.tsx';
import { urls, type ObjectRef } from '../../urls.ts';

interface OwnersProps {
  at: Pick<ObjectRef, 'cluster' | 'namespace'>;
  base: Base;
  references: OwnerReference[];
}

export function Owners({ at, base, references }: OwnersProps) {
  return (
    <ul class="pairs">
      {references.map((r) => <li key={r.uid}><Owner at={at} base={base} reference={r} /></li>)}
    </ul>
  );
}

function Owner({ at, base, reference }: { at: OwnersProps['at']; base: Base; reference: OwnerReference }) {
  const [resource, setResource] = useState<Resource>();
  const { apiVersion, kind, name } = reference;
  useEffect(() => {
    let isCurrent = true;
    const { group, version } = splitAPIVersion(apiVersion);
    findKind(base, group, version, kind).then((r) => isCurrent && setResource(r), () => undefined);
    return () => {
      isCurrent = false;
    };
  }, [base, apiVersion, kind]);
  const text = `${kind} ${name}`;
  if (!resource) {
    return <span>{text}</span>;
  }
  const { group, version, resource: plural, namespaced } = resource;
  return (
    <Link
      href={urls.object({
        cluster: at.cluster, group, version, resource: plural, namespace: namespaced ? at.namespace : undefined, name,
      })}
    >
      {text}
    </Link>
  );
}
