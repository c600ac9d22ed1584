// ConflictPanel explains a conflict: others changed the object, and nothing was written.
import type { KubeObject } from '../../api/types.ts';
import { Diff } from './Diff.tsx';
import { withoutVersion, type Conflict } from './edit.ts';
import { toYAML } from './yaml.ts';

interface ManagedFields {
  manager?: string;
  time?: string;
}

// lastManager returns who changed an object last, as its managed fields record it.
function lastManager(object: KubeObject): ManagedFields | undefined {
  const all = (object.metadata.managedFields ?? []) as ManagedFields[];
  return all.reduce<ManagedFields | undefined>((last, m) => ((m.time ?? '') > (last?.time ?? '') ? m : last), undefined);
}

interface ConflictProps {
  base: KubeObject;
  conflict: Conflict;
  onRebase: () => void;
  onDiscard: () => void;
}

export function ConflictPanel({ base, conflict, onRebase, onDiscard }: ConflictProps) {
  const { latest, fields } = conflict;
  const manager = lastManager(latest);
  const isNew = base.metadata.uid !== latest.metadata.uid;
  return (
    <section class="notice conflict" role="alert" aria-labelledby="conflict">
      <h2 id="conflict">Conflict: the object changed after you opened it</h2>
      <p>
        {isNew
          ? 'The object was deleted, and another was created by its name. '
          : `Version ${base.metadata.resourceVersion} is now ${latest.metadata.resourceVersion}. `}
        {manager?.manager !== undefined && `The last change is by ${manager.manager} at ${manager.time ?? 'an unknown time'}. `}
        Nothing was written, and your text below is kept.
      </p>
      {fields.length > 0
        ? (
          <p>
            You and others changed the same fields, where your values would replace theirs:{' '}
            {fields.map((f) => <code key={f}>{f} </code>)}
          </p>
        )
        : <p>Others changed other fields than you. Both changes can be kept.</p>}
      <h3>What others changed</h3>
      <Diff before={toYAML(withoutVersion(base))} after={toYAML(withoutVersion(latest))} label="What others changed" />
      <div class="toolbar">
        <button type="button" class="primary" onClick={onRebase}>Put my change on the newest version</button>
        <button type="button" onClick={onDiscard}>Discard my change</button>
      </div>
    </section>
  );
}
