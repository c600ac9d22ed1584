// The owners and children of an object, by their owner references.
import { request } from '../../api/client.ts';
import { discover, findKind, type Resource } from '../../api/discovery.ts';
import { resourcePath, splitAPIVersion, type Base } from '../../api/paths.ts';
import type { KubeObject, List, ObjectMeta, OwnerReference } from '../../api/types.ts';
import { messageOf } from '../../ui/Notice.tsx';
import { fullName, onePerKind } from '../fleet/scope.ts';

// usualKinds are the kinds that controllers of Kubernetes create for other objects, by their names for kubectl.
export const usualKinds = [
  'replicasets.apps', 'pods', 'deployments.apps', 'statefulsets.apps', 'daemonsets.apps', 'jobs.batch', 'cronjobs.batch',
  'controllerrevisions.apps', 'services', 'endpointslices.discovery.k8s.io', 'persistentvolumeclaims', 'configmaps', 'secrets',
  'serviceaccounts', 'ingresses.networking.k8s.io', 'networkpolicies.networking.k8s.io', 'poddisruptionbudgets.policy',
  'horizontalpodautoscalers.autoscaling', 'roles.rbac.authorization.k8s.io', 'rolebindings.rbac.authorization.k8s.io',
  'replicationcontrollers', 'leases.coordination.k8s.io',
];

const metadataType = 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json';
const metadataListType = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json';
const pageSize = 500;
const mostPages = 10; // of a kind
const mostKinds = 200;
const mostNodes = 1_000;
const mostOwners = 8;
const listsAtOnce = 4;

export interface Node {
  resource: Resource;
  metadata: ObjectMeta;
  children: Node[];
}

export interface Children {
  nodes: Node[];
  kinds: number; // that were listed
  incomplete: string[]; // kinds with more objects than were read
  failed: string[]; // kinds that were not listed, with the reason
}

interface Item {
  metadata: ObjectMeta;
}

// selectorOf returns the label selector of an object whose children all have its labels.
function selectorOf(object: KubeObject): string {
  const { group } = splitAPIVersion(object.apiVersion);
  if (group !== 'apps' && !(group === 'batch' && object.kind === 'Job')) {
    return '';
  }
  const { selector } = (object['spec'] ?? {}) as { selector?: { matchLabels?: Record<string, string> } };
  return Object.entries(selector?.matchLabels ?? {}).map(([key, value]) => `${key}=${value}`).join(',');
}

async function kindsOf(base: Base, isAll: boolean, isNamespaced: boolean): Promise<Resource[]> {
  const all = onePerKind(await discover(base)).filter((r) =>
    (r.namespaced || !isNamespaced) && r.resource !== 'events' && r.verbs.includes('get'));
  return isAll ? all.slice(0, mostKinds) : all.filter((r) => usualKinds.includes(fullName(r)));
}

async function list(
  base: Base, resource: Resource, namespace: string | undefined, labelSelector: string, signal: AbortSignal,
): Promise<{ items: Item[]; isComplete: boolean }> {
  const path = resourcePath({ base, ...resource, namespace: resource.namespaced ? namespace : undefined });
  const items: Item[] = [];
  let [next, pages] = ['', 0];
  do {
    const page = await request<List<Item>>(path, {
      params: { limit: pageSize, continue: next, labelSelector }, accept: metadataListType, signal,
    });
    for (const { metadata } of page.items ?? []) {
      if (metadata.ownerReferences?.length) {
        items.push({ metadata });
      }
    }
    next = page.metadata.continue ?? '';
  } while (next !== '' && ++pages < mostPages);
  return { items, isComplete: next === '' };
}

// childrenOf returns the objects below an object. They are in its namespace, or anywhere if it has none.
export async function childrenOf(base: Base, object: KubeObject, isAll: boolean, signal: AbortSignal): Promise<Children> {
  const { uid, namespace } = object.metadata;
  const kinds = await kindsOf(base, isAll, namespace !== undefined);
  const labels = isAll ? '' : selectorOf(object);
  const byOwner = new Map<string, Node[]>();
  const result: Children = { nodes: [], kinds: kinds.length, incomplete: [], failed: [] };
  const queue = [...kinds];
  const work = async () => {
    for (let resource = queue.shift(); resource; resource = queue.shift()) {
      try {
        const { items, isComplete } = await list(base, resource, namespace, labels, signal);
        if (!isComplete) {
          result.incomplete.push(fullName(resource));
        }
        for (const { metadata } of items) {
          const node: Node = { resource, metadata, children: [] };
          for (const owner of metadata.ownerReferences ?? []) {
            byOwner.set(owner.uid, [...(byOwner.get(owner.uid) ?? []), node]);
          }
        }
      } catch (error) {
        signal.throwIfAborted();
        result.failed.push(`${fullName(resource)}: ${messageOf(error)}`);
      }
    }
  };
  await Promise.all(Array.from({ length: listsAtOnce }, work));
  signal.throwIfAborted();
  result.nodes = tree(byOwner, uid ?? '');
  return result;
}

// tree links at most mostNodes nodes below the owner. An object with several owners below it appears once.
function tree(byOwner: Map<string, Node[]>, owner: string): Node[] {
  const seen = new Set<string>([owner]);
  const below = (uid: string): Node[] => {
    const found = (byOwner.get(uid) ?? []).filter((n) => {
      const isNew = n.metadata.uid !== undefined && !seen.has(n.metadata.uid) && seen.size <= mostNodes;
      if (isNew) {
        seen.add(n.metadata.uid as string);
      }
      return isNew;
    });
    found.sort((a, b) => compare(a.resource.kind, b.resource.kind) || compare(a.metadata.name, b.metadata.name));
    return found;
  };
  const roots = below(owner);
  for (let level = roots; level.length > 0;) {
    level.forEach((node) => {
      node.children = below(node.metadata.uid as string);
    });
    level = level.flatMap((node) => node.children);
  }
  return roots;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

export interface Owner {
  reference: OwnerReference;
  depth: number; // 0 for an owner of the object itself
  error?: unknown;
}

// ownersOf returns the owners of an object, and theirs, each once.
export async function ownersOf(base: Base, object: KubeObject, signal: AbortSignal): Promise<Owner[]> {
  const owners: Owner[] = [];
  const queue = (object.metadata.ownerReferences ?? []).map((reference) => ({ reference, depth: 0 }));
  const seen = new Set([object.metadata.uid]);
  for (let next = queue.shift(); next && owners.length < mostOwners; next = queue.shift()) {
    const { reference, depth } = next;
    if (seen.has(reference.uid)) {
      continue;
    }
    seen.add(reference.uid);
    const owner: Owner = { reference, depth };
    owners.push(owner);
    try {
      const { group, version } = splitAPIVersion(reference.apiVersion);
      const resource = await findKind(base, group, version, reference.kind);
      if (resource) {
        const { metadata } = await request<Item>(resourcePath({
          base, ...resource, namespace: resource.namespaced ? object.metadata.namespace : undefined, name: reference.name,
        }), { accept: metadataType, signal });
        if (metadata.uid !== reference.uid) {
          owner.error = new Error('it was deleted, and another object has its name');
        }
        queue.push(...(metadata.ownerReferences ?? []).map((r) => ({ reference: r, depth: depth + 1 })));
      }
    } catch (error) {
      signal.throwIfAborted();
      owner.error = error;
    }
  }
  return owners;
}

// podsOf returns the pods of a tree, at most count.
export function podsOf(nodes: Node[], count: number): Node[] {
  const pods: Node[] = [];
  for (const node of nodes) {
    if (pods.length >= count) {
      break;
    }
    if (node.resource.group === '' && node.resource.resource === 'pods') {
      pods.push(node);
    }
    pods.push(...podsOf(node.children, count - pods.length));
  }
  return pods;
}
