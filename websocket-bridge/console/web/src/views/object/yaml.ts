// Objects as YAML, in the form that kubectl reads and prints.
import { parseDocument, stringify, type ParseOptions, type DocumentOptions, type SchemaOptions, type Tags } from 'yaml';
import type { KubeObject } from '../../api/types.ts';
import { isEqual } from './patch.ts';

// kubectl reads 0644 and yes as YAML 1.1 does, but neither dates nor times.
const dropped = new Set(
  ['timestamp', 'binary', 'omap', 'pairs', 'set', 'merge'].map((name) => `tag:yaml.org,2002:${name}`),
);
const options: ParseOptions & DocumentOptions & SchemaOptions = {
  version: '1.1', merge: false,
  customTags: (tags: Tags) => tags.filter((t) =>
    typeof t === 'string' ? t !== 'merge' : !dropped.has(t.tag) && !('format' in t && t.format === 'TIME')),
};

// toYAML returns the YAML of a value, with sorted keys.
export function toYAML(value: unknown): string {
  return stringify(value, { ...options, lineWidth: 0, aliasDuplicateObjects: false, sortMapEntries: true });
}

// fromYAML returns the object of a YAML document. It throws an Error that names the line.
export function fromYAML(text: string): KubeObject {
  const document = parseDocument(text, options);
  const problem = document.errors[0] ?? document.warnings[0];
  if (problem) {
    throw new Error(`the YAML cannot be read: ${problem.message.split('\n')[0]}`);
  }
  const value: unknown = document.toJS({ maxAliasCount: 100 });
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Error('the YAML cannot be read: it is not an object; write fields such as metadata and spec');
  }
  return value as KubeObject;
}

// isFaithful reports whether an object is the same after it was edited as YAML without a change.
export function isFaithful(object: KubeObject): boolean {
  try {
    return isEqual(fromYAML(toYAML(object)), object);
  } catch {
    return false;
  }
}

// withoutManagedFields returns an object without metadata.managedFields, which only servers write.
export function withoutManagedFields(object: KubeObject): KubeObject {
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...object, metadata };
}
