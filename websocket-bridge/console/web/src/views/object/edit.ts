// An edit of an object: its text, the object it began with, and the patch that it makes.
import { request } from '../../api/client.ts';
import { userName } from '../../api/session.ts';
import type { KubeObject } from '../../api/types.ts';
import { applyPatch, hasInexactNumber, isEqual, mergePatch, overlap } from './patch.ts';
import { fromYAML, toYAML, withoutManagedFields } from './yaml.ts';

type Patch = Record<string, unknown>;

export interface Draft {
  base: KubeObject; // without managed fields
  text: string;
}

export const fieldManager = 'clusterpass-console';
const mostDrafts = 20;
const drafts = new Map<string, Draft>();
userName.subscribe(() => drafts.clear());

// draftOf returns the unfinished edit of an object. Drafts stay in memory until another user signs in.
export function draftOf(path: string): Draft | undefined {
  return drafts.get(path);
}

// keepDraft stores an unfinished edit. The oldest of many is dropped.
export function keepDraft(path: string, draft: Draft): void {
  drafts.delete(path);
  drafts.set(path, draft);
  for (const oldest of drafts.keys()) {
    if (drafts.size <= mostDrafts) {
      break;
    }
    drafts.delete(oldest);
  }
}

export function dropDraft(path: string): void {
  drafts.delete(path);
}

// The browser asks the user before it closes a page with drafts.
addEventListener('beforeunload', (event) => {
  if (drafts.size > 0) {
    event.preventDefault();
  }
});

// begin returns a draft of the object without a change.
export function begin(object: KubeObject): Draft {
  const base = withoutManagedFields(object);
  return { base, text: toYAML(base) };
}

// withoutVersion leaves out what each write changes.
export function withoutVersion(object: KubeObject): KubeObject {
  const { resourceVersion: _version, generation: _generation, ...metadata } =
    withoutManagedFields(object).metadata as KubeObject['metadata'] & { generation?: number };
  return { ...object, metadata };
}

// changeOf returns the patch of a draft, without a version, or undefined if nothing is changed. It throws an Error
// that explains why the text cannot be applied.
export function changeOf(draft: Draft): Patch | undefined {
  const edited = fromYAML(draft.text);
  for (const field of ['apiVersion', 'kind'] as const) {
    if (edited[field] !== draft.base[field]) {
      throw new Error(`the ${field} cannot change: create a new object by kubectl`);
    }
  }
  const { name, namespace } = edited.metadata ?? {};
  if (name !== draft.base.metadata.name || namespace !== draft.base.metadata.namespace) {
    throw new Error('the name and the namespace cannot change: create a new object by kubectl');
  }
  checkVersion(edited, draft.base);
  const change = mergePatch(withoutVersion(draft.base) as Patch, withoutVersion(edited) as Patch);
  if (change && hasInexactNumber(change)) {
    throw new Error('a changed field or list has an integer above 2^53, which a browser would change: use kubectl edit');
  }
  return change;
}

// checkVersion throws an Error unless the text still has the fields by which the server detects changes of others.
function checkVersion(edited: KubeObject, base: KubeObject): void {
  for (const field of ['uid', 'resourceVersion'] as const) {
    const want = base.metadata[field];
    if (!want) {
      throw new Error(`the edit is refused: the object has no metadata.${field}, so the server cannot detect ` +
        'the changes of others; use kubectl edit');
    }
    if (edited.metadata[field] !== want) {
      throw new Error(`the edit is refused: metadata.${field} is missing or changed, by which the server detects ` +
        `the changes of others; write ${field}: ${toYAML(want).trim()} below metadata`);
    }
  }
}

// versioned returns a patch that the server refuses with 409 if the object has changed.
//
// A newer version of the object whose status alone differs does not conflict: controllers write it all the time.
export function versioned(change: Patch, base: KubeObject, latest: KubeObject): Patch {
  const isSame = isEqual(withoutStatus(base), withoutStatus(latest)) && base.metadata.uid === latest.metadata.uid;
  const { uid, resourceVersion } = isSame ? latest.metadata : base.metadata;
  return applyPatch(change, { metadata: { uid, resourceVersion } }) as Patch;
}

function withoutStatus(object: KubeObject): unknown {
  const { status: _, ...rest } = withoutVersion(object);
  return rest;
}

// send applies a patch, or only validates it. It returns the object as it is then.
export function send(
  path: string, patch: Patch, isDryRun: boolean, onWarnings: (warnings: string[]) => void,
): Promise<KubeObject> {
  return request<KubeObject>(path, {
    method: 'PATCH', headers: { 'Content-Type': 'application/merge-patch+json' }, json: patch, onWarnings,
    params: { fieldManager, fieldValidation: 'Strict', dryRun: isDryRun ? 'All' : undefined },
  });
}

export interface Conflict {
  latest: KubeObject;
  fields: string[]; // that both changed
}

// conflictOf compares a change with what others changed meanwhile.
export function conflictOf(draft: Draft, change: Patch, latest: KubeObject): Conflict {
  const others = mergePatch(withoutVersion(draft.base) as Patch, withoutVersion(latest) as Patch);
  return { latest, fields: others ? overlap(change, others) : [] };
}

// rebase returns a draft with the same change of a newer version.
export function rebase(change: Patch, latest: KubeObject): Draft {
  const base = withoutManagedFields(latest);
  return { base, text: toYAML(applyPatch(base, change)) };
}
