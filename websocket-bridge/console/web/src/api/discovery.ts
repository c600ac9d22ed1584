// The resources of an API, by aggregated discovery. Results are kept until another user signs in.
import { request } from './client.ts';
import type { Base } from './paths.ts';
import { userName } from './session.ts';

export interface Resource {
  group: string;
  version: string;
  resource: string;
  kind: string;
  namespaced: boolean;
  verbs: string[];
  shortNames: string[];
  categories: string[];
  subresources: string[];
}

interface Aggregated {
  items?: {
    metadata: { name?: string };
    versions?: {
      version: string;
      resources?: {
        resource: string;
        responseKind?: { kind?: string };
        scope: 'Namespaced' | 'Cluster';
        verbs?: string[];
        shortNames?: string[];
        categories?: string[];
        subresources?: { subresource: string }[];
      }[];
    }[];
  }[];
}

const accept = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';
const known = new Map<Base, Promise<Resource[]>>();
userName.subscribe(() => known.clear());

// discover returns the resources of every version, the preferred version of each group first.
export function discover(base: Base): Promise<Resource[]> {
  let found = known.get(base);
  if (!found) {
    found = load(base);
    known.set(base, found);
    found.catch(() => known.delete(base));
  }
  return found;
}

// forgetDiscovery makes the next discover ask the server.
export function forgetDiscovery(base: Base): void {
  known.delete(base);
}

async function load(base: Base): Promise<Resource[]> {
  const lists = await Promise.all(['/api', '/apis'].map((path) => request<Aggregated>(base + path, { accept })));
  return lists.flatMap((list) => list.items ?? []).flatMap((group) => (group.versions ?? []).flatMap((version) =>
    (version.resources ?? []).map((r) => ({
      group: group.metadata.name ?? '',
      version: version.version,
      resource: r.resource,
      kind: r.responseKind?.kind ?? r.resource,
      namespaced: r.scope === 'Namespaced',
      verbs: r.verbs ?? [],
      shortNames: r.shortNames ?? [],
      categories: r.categories ?? [],
      subresources: (r.subresources ?? []).map((s) => s.subresource),
    }))));
}

// findKind returns the resource of a kind, such as that of an owner reference.
export async function findKind(
  base: Base, group: string, version: string, kind: string,
): Promise<Resource | undefined> {
  return (await discover(base)).find((r) => r.group === group && r.version === version && r.kind === kind);
}
