// The clusters whose objects a view shows: all of the fleet, some of the fleet, or one cluster.
import { clusterBase, type Base } from '../../api/paths.ts';
import type { Resource } from '../../api/discovery.ts';
import { kubectl, quote } from '../../ui/AsKubectl.tsx';

export interface Scope {
  base: Base;
  clusters: string[]; // empty: all of the fleet
}

// scopeOf reads the parameter cluster: names, separated by commas. One cluster is called directly, so that its kinds
// need no ResourceRegistry.
export function scopeOf(parameter: string | null): Scope {
  const clusters = (parameter ?? '').split(',').map((name) => name.trim()).filter((name) => name !== '');
  const [first] = clusters;
  return { base: first !== undefined && clusters.length === 1 ? clusterBase(first) : '/fleet', clusters };
}

// onePerKind returns the resources that can be listed, in the preferred version of each group.
export function onePerKind(resources: Resource[]): Resource[] {
  const seen = new Set<string>();
  return resources.filter((r) => {
    const name = fullName(r);
    if (!r.verbs.includes('list') || seen.has(name)) {
      return false;
    }
    seen.add(name);
    return true;
  });
}

// fullName returns the name of a resource for kubectl, such as deployments.apps.
export function fullName(r: { resource: string; group: string }): string {
  return r.group === '' ? r.resource : `${r.resource}.${r.group}`;
}

export interface Shown {
  resource: Resource;
  isPreferred: boolean; // kubectl selects the version if none is named
  namespace?: string | undefined;
  labelSelector?: string | undefined;
  fieldSelector?: string | undefined;
  text?: string | undefined;
  isWide: boolean;
  sort?: string | undefined;
}

// listCommand returns the command that prints the objects of a scope.
export function listCommand(scope: Scope, shown: Shown): string {
  const { resource: r } = shown;
  const name = shown.isPreferred ? fullName(r) : `${r.resource}.${r.version}${r.group === '' ? '' : `.${r.group}`}`;
  const [only] = scope.clusters;
  const isOne = scope.base !== '/fleet';
  const labels = [
    shown.labelSelector,
    !isOne && only !== undefined && `clusterpass.io/cluster in (${scope.clusters.join(',')})`,
  ].filter(Boolean).join(',');
  const paths: Record<string, string> = { Name: '.metadata.name', Namespace: '.metadata.namespace' };
  const path = shown.sort === undefined ? undefined : paths[shown.sort];
  const command = kubectl(
    isOne ? only : 'fleet', 'get', [name],
    ...(!r.namespaced ? [] : shown.namespace ? ['-n', shown.namespace] : ['-A']),
    ...(labels === '' ? [] : ['-l', labels]),
    ...(shown.fieldSelector ? ['--field-selector', shown.fieldSelector] : []),
    ...(path === undefined ? [] : [`--sort-by=${path}`]),
    ...(shown.isWide ? ['-o', 'wide'] : []),
  );
  const words = (shown.text ?? '').split(/\s+/).filter((word) => word !== '');
  return command + words.map((word) => ` | grep -iF -e ${quote(word)}`).join('');
}
