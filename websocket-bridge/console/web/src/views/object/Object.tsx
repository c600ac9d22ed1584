// One object of a member cluster, or of the gateway's own API.
import type { ComponentType } from 'preact';
import { clusterBase, resourcePath, type Base, type ResourcePath } from '../../api/paths.ts';
import type { KubeObject } from '../../api/types.ts';
import { Link, type ViewProps } from '../../router.tsx';
import { AsKubectl, kubectl } from '../../ui/AsKubectl.tsx';
import { Notice } from '../../ui/Notice.tsx';
import { adopt } from '../../ui/sheet.ts';
import { parseGroup, parseOptional, urls, type ObjectRef } from '../../urls.ts';
import { fullName } from '../fleet/scope.ts';
import { Events } from './Events.tsx';
import css from './object.css' with { type: 'text' };
import { Related } from './Related.tsx';
import { Summary } from './Summary.tsx';
import { useObject, type Loaded } from './useObject.ts';
import { YAML } from './YAML.tsx';

adopt(css);

export interface TabProps {
  at: ObjectRef;
  base: Base;
  path: string;
  object: KubeObject;
  loaded: Loaded;
  query: URLSearchParams;
}

interface Tab {
  name: string;
  title: string;
  Body: ComponentType<TabProps>;
  // command is the one of kubectl. context is its context.
  command: (at: ObjectRef, context: string, uid: string) => string;
}

function namespaceArgs(at: ObjectRef): string[] {
  return at.namespace === undefined ? [] : ['-n', at.namespace];
}

const tabs: Tab[] = [
  {
    name: '', title: 'Summary', Body: Summary,
    command: (at, context) => kubectl(context, 'describe', [fullName(at), at.name], ...namespaceArgs(at)),
  },
  {
    name: 'yaml', title: 'YAML', Body: YAML,
    command: (at, context) => kubectl(context, 'get', [fullName(at), at.name], ...namespaceArgs(at), '-o', 'yaml'),
  },
  {
    name: 'events', title: 'Events', Body: Events,
    command: (at, context) => kubectl(context, 'events', ...namespaceArgs(at), '--for', `${fullName(at)}/${at.name}`),
  },
  {
    name: 'related', title: 'Owners and children', Body: Related,
    command: (at, context, uid) => kubectl(
      context, 'get', 'replicasets,pods,jobs', ...(at.namespace === undefined ? ['-A'] : namespaceArgs(at)), '-o',
      `jsonpath={range .items[?(@.metadata.ownerReferences[0].uid=="${uid}")]}{.kind}/{.metadata.name}{"\\n"}{end}`,
    ),
  },
];

export default function ObjectView({ params, query }: ViewProps) {
  const { cluster = '-', group = '', version = '', resource = '', namespace = '-', name = '' } = params;
  const at: ObjectRef = {
    cluster: parseOptional(cluster), group: parseGroup(group), version, resource, namespace: parseOptional(namespace), name,
  };
  const base: Base = at.cluster === undefined ? '' : clusterBase(at.cluster);
  const place: ResourcePath = { base, group: at.group, version, resource, namespace: at.namespace };
  const path = resourcePath({ ...place, name });
  const loaded = useObject(path, resourcePath(place), name);
  const { object, isDeleted, isLive, error, reload } = loaded;

  const tab = tabs.find((t) => t.name === (query.get('tab') ?? '')) ?? (tabs[0] as Tab);
  return (
    <>
      <nav class="crumbs" aria-label="Place">
        {at.cluster === undefined ? 'the gateway' : <Link href={urls.cluster(at.cluster)}>{at.cluster}</Link>}
        {' / '}
        {at.cluster === undefined
          ? fullName(at)
          : <Link href={urls.resources(at, { cluster: at.cluster, namespace: at.namespace })}>{fullName(at)}</Link>}
        {at.namespace !== undefined && ` / ${at.namespace}`}
      </nav>
      <h1>{object?.kind ?? resource} {name}</h1>
      <div class="toolbar">
        <nav class="tabs" aria-label="Parts of the object">
          {tabs.map((t) => (
            <Link key={t.name} href={urls.object(at, { tab: t.name })} class={t === tab ? 'chosen' : 'other'}>
              {t.title}
            </Link>
          ))}
        </nav>
        {object && !isDeleted && <Streams at={at} object={object} />}
        <AsKubectl command={tab.command(at, at.cluster ?? 'clusterpass', object?.metadata.uid ?? '')} />
      </div>
      {isDeleted && <p class="notice" role="status">The object is deleted. This is its last known state.</p>}
      {error !== undefined && <Notice error={error} title="The object cannot be read" onRetry={reload} />}
      {!object && error === undefined && <p class="loading" role="status">Loading…</p>}
      {object && <tab.Body key={path} at={at} base={base} path={path} object={object} loaded={loaded} query={query} />}
      {object && !isDeleted && !isLive && (
        <p class="muted">
          This page does not follow changes now. <button type="button" onClick={reload}>Load again</button>
        </p>
      )}
    </>
  );
}

// Streams links a pod with its logs and a terminal.
function Streams({ at, object }: { at: ObjectRef; object: KubeObject }) {
  if (at.group !== '' || at.resource !== 'pods' || at.cluster === undefined || at.namespace === undefined) {
    return null;
  }
  const { containers = [] } = (object['spec'] ?? {}) as { containers?: { name: string }[] };
  const pod = { cluster: at.cluster, namespace: at.namespace, pod: at.name };
  return (
    <>
      <Link href={urls.logs([pod])}>Logs</Link>
      <Link href={urls.terminal({ ...pod, container: containers[0]?.name })}>Terminal</Link>
    </>
  );
}
