// Paths of the Kubernetes API below the gateway.

// clusterAnnotation has the name of the member cluster, in each object of the fleet.
export const clusterAnnotation = 'resource.karmada.io/cached-from-cluster';

// Base is the prefix of an API: the gateway's own, the fleet's or that of a member cluster.
export type Base = '' | '/fleet' | `/clusters/${string}`;

export function clusterBase(name: string): Base {
  return `/clusters/${segment(name)}`;
}

// segment encodes a part of a path. It refuses what Kubernetes refuses in names: a browser or a server could read another
// path in it.
function segment(text: string): string {
  if (text === '' || text === '.' || text === '..' || /[/%]/.test(text)) {
    throw new Error(`the request was not sent: "${text}" cannot be a name in a path; correct the URL of this page`);
  }
  return encodeURIComponent(text);
}

export interface ResourcePath {
  base: Base;
  group: string; // '' for the core group
  version: string;
  resource: string; // plural, such as pods
  namespace?: string | undefined;
  name?: string | undefined;
  subresource?: string | undefined;
}

// groupPath returns the path of a group and version, such as /fleet/apis/apps/v1.
export function groupPath({ base, group, version }: Pick<ResourcePath, 'base' | 'group' | 'version'>): string {
  const encoded = segment(version);
  return group === '' ? `${base}/api/${encoded}` : `${base}/apis/${segment(group)}/${encoded}`;
}

// resourcePath returns the path of a list, an object or a subresource.
export function resourcePath(p: ResourcePath): string {
  const segments = [groupPath(p)];
  if (p.namespace) {
    segments.push('namespaces', segment(p.namespace));
  }
  segments.push(segment(p.resource));
  if (p.name !== undefined) {
    segments.push(segment(p.name));
  }
  if (p.subresource !== undefined) {
    segments.push(p.subresource);
  }
  return segments.join('/');
}

// splitAPIVersion splits apps/v1 into its group and version.
export function splitAPIVersion(apiVersion: string): { group: string; version: string } {
  const at = apiVersion.indexOf('/');
  return at < 0
    ? { group: '', version: apiVersion }
    : { group: apiVersion.slice(0, at), version: apiVersion.slice(at + 1) };
}

export type Params = Record<string, string | number | boolean | undefined>;

// withParams appends the parameters that are neither undefined nor empty.
export function withParams(path: string, params: Params = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== '') {
      query.append(name, String(value));
    }
  }
  const text = query.toString();
  return text === '' ? path : `${path}${path.includes('?') ? '&' : '?'}${text}`;
}
