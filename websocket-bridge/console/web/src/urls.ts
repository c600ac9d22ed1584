// URLs of the console. Every view reads all that it shows from its URL, so that the URL can be shared.
import { withParams, type Params } from './api/paths.ts';

export const root = '/console';
const enc = encodeURIComponent;
const orDash = (text: string | undefined) => (text ? enc(text) : '-');
const groupName = (group: string) => (group === '' ? 'core' : enc(group));

export interface ObjectRef {
  cluster?: string | undefined; // none for the gateway's own objects
  group: string;
  version: string;
  resource: string;
  namespace?: string | undefined;
  name: string;
}

export interface ContainerRef {
  cluster: string;
  namespace: string;
  pod: string;
  container?: string | undefined;
}

export const urls = {
  clusters: (params?: Params) => withParams(`${root}/clusters`, params),
  cluster: (name: string) => `${root}/clusters/${enc(name)}`,
  fleet: (params?: Params) => withParams(`${root}/fleet`, params),
  // Parameters of resources: cluster, namespace, labelSelector, fieldSelector, q.
  resources: (r: { group: string; version: string; resource: string }, params?: Params) =>
    withParams(`${root}/fleet/${groupName(r.group)}/${enc(r.version)}/${enc(r.resource)}`, params),
  object: (o: ObjectRef, params?: Params) => withParams(
    `${root}/objects/${orDash(o.cluster)}/${groupName(o.group)}/${enc(o.version)}/${enc(o.resource)}/` +
    `${orDash(o.namespace)}/${enc(o.name)}`, params),
  // Each parameter pod of the logs is cluster/namespace/pod[/container].
  logs: (pods: ContainerRef[], params?: Params) => {
    const query = new URLSearchParams();
    for (const p of pods) {
      query.append('pod', [p.cluster, p.namespace, p.pod, ...(p.container ? [p.container] : [])].join('/'));
    }
    return withParams(`${root}/logs?${query}`, params);
  },
  terminal: (p: ContainerRef, params?: Params) => withParams(
    `${root}/terminal/${enc(p.cluster)}/${enc(p.namespace)}/${enc(p.pod)}`, { container: p.container, ...params }),
  recording: () => `${root}/recording`,
  gateway: () => `${root}/gateway`,
};

// parseGroup returns the API group of a segment of a URL.
export function parseGroup(segment: string): string {
  return segment === 'core' ? '' : segment;
}

// parseOptional returns undefined for the dash that stands for nothing in a URL.
export function parseOptional(segment: string): string | undefined {
  return segment === '-' ? undefined : segment;
}
