// Editor changes an object: edit, check by a dry run on the server, compare, apply. A conflict loses nothing.
import { useRef, useState } from 'preact/hooks';
import { request, StatusError } from '../../api/client.ts';
import type { KubeObject } from '../../api/types.ts';
import { AsKubectl, kubectl } from '../../ui/AsKubectl.tsx';
import { Notice } from '../../ui/Notice.tsx';
import { save } from '../../ui/save.ts';
import { fullName } from '../fleet/scope.ts';
import { ConflictPanel } from './Conflict.tsx';
import { Diff } from './Diff.tsx';
import {
  begin, changeOf, conflictOf, draftOf, dropDraft, keepDraft, rebase, send, versioned, withoutVersion,
  type Conflict, type Draft,
} from './edit.ts';
import type { TabProps } from './Object.tsx';
import { isFaithful, toYAML } from './yaml.ts';

type Patch = Record<string, unknown>;

// Step is where the edit stands. Each change of the text leads back to typing.
type Step =
  | { name: 'typing'; error?: unknown; note?: string }
  | { name: 'sending'; what: string }
  | { name: 'checked'; patch: Patch; before: KubeObject; result: KubeObject; warnings: string[]; error?: unknown }
  | { name: 'conflict'; change: Patch; conflict: Conflict };

function isConflict(error: unknown): boolean {
  return error instanceof StatusError && error.code === 409;
}

export function Editor(props: TabProps & { onClose: () => void }) {
  const { at, path, object, loaded, onClose } = props;
  const [draft, setDraft] = useState<Draft>(() => draftOf(path) ?? begin(object));
  const [step, setStep] = useState<Step>({ name: 'typing' });
  const newest = useRef(object);
  newest.current = object;

  const change = (next: Draft, note?: string) => {
    setDraft(next);
    setStep({ name: 'typing', ...(note !== undefined && { note }) });
    keepDraft(path, next);
  };
  const readConflict = async (patch: Patch) => {
    try {
      const latest = await request<KubeObject>(path);
      setStep({ name: 'conflict', change: patch, conflict: conflictOf(draft, patch, latest) });
    } catch (error) {
      setStep({ name: 'typing', error });
    }
  };
  const check = async () => {
    let changed: Patch | undefined;
    try {
      changed = changeOf(draft);
    } catch (error) {
      setStep({ name: 'typing', error });
      return;
    }
    if (!changed) {
      setStep({ name: 'typing', note: 'Nothing is changed.' });
      return;
    }
    setStep({ name: 'sending', what: 'The server checks the change…' });
    const before = newest.current;
    const patch = versioned(changed, draft.base, before);
    let warnings: string[] = [];
    try {
      const result = await send(path, patch, true, (texts) => { warnings = texts; });
      setStep({ name: 'checked', patch, before, result, warnings });
    } catch (error) {
      await (isConflict(error) ? readConflict(changed) : setStep({ name: 'typing', error }));
    }
  };
  const apply = async (checked: Step & { name: 'checked' }) => {
    setStep({ name: 'sending', what: 'The change is applied…' });
    try {
      await send(path, checked.patch, false, () => undefined);
      dropDraft(path);
      onClose();
    } catch (error) {
      const changed = changeOf(draft);
      await (isConflict(error) && changed ? readConflict(changed) : setStep({ ...checked, error }));
    }
  };
  const discard = () => {
    dropDraft(path);
    onClose();
  };

  if (!isFaithful(draft.base)) {
    return (
      <div class="notice" role="alert">
        <p>This object cannot be edited here without a change of other fields. Use kubectl edit.</p>
        <button type="button" onClick={discard}>Close</button>
      </div>
    );
  }
  const isOld = loaded.object !== undefined && step.name === 'typing' && isOther(draft.base, object);
  return (
    <>
      <div class="toolbar">
        <button type="button" class="primary" disabled={step.name === 'sending' || loaded.isDeleted} onClick={check}>
          Check on the server
        </button>
        <button type="button" onClick={() => save(`${at.name}.yaml`, new Blob([draft.text], { type: 'text/yaml' }))}>
          Download the text
        </button>
        <button type="button" onClick={onClose}>Close, and keep the text</button>
        <button type="button" onClick={discard}>Discard</button>
      </div>
      {loaded.isDeleted && (
        <p class="notice" role="alert">
          The object was deleted. Your text is kept: download it, and create the object by kubectl.
        </p>
      )}
      {isOld && (
        <p class="warnings" role="status">
          The object has changed since you began. The check on the server shows whether your change still applies.
        </p>
      )}
      {step.name === 'typing' && step.error !== undefined && <Notice error={step.error} title="Nothing was written" />}
      {step.name === 'typing' && step.note !== undefined && <p class="warnings" role="status">{step.note}</p>}
      {step.name === 'sending' && <p role="status">{step.what}</p>}
      {step.name === 'checked' && <Checked at={at} step={step} onApply={() => apply(step)} />}
      {step.name === 'conflict' && (
        <ConflictPanel
          base={draft.base} conflict={step.conflict}
          onRebase={() => change(rebase(step.change, step.conflict.latest),
            'Your change is now a change of the newest version. Read the text, and check it on the server.')}
          onDiscard={() => change(begin(step.conflict.latest), 'This is the newest version, without your change.')}
        />
      )}
      <textarea
        class="editor" aria-label="YAML of the object" spellcheck={false} autocomplete="off" wrap="off"
        disabled={step.name === 'sending'} value={draft.text}
        onInput={(event) => change({ ...draft, text: event.currentTarget.value })}
      />
    </>
  );
}

function isOther(base: KubeObject, object: KubeObject): boolean {
  const { uid, resourceVersion } = versioned({}, base, object)['metadata'] as KubeObject['metadata'];
  return uid !== object.metadata.uid || resourceVersion !== object.metadata.resourceVersion;
}

interface CheckedProps {
  at: TabProps['at'];
  step: Step & { name: 'checked' };
  onApply: () => void;
}

function Checked({ at, step, onApply }: CheckedProps) {
  const old = toYAML(withoutVersion(step.before));
  const next = toYAML(withoutVersion(step.result));
  const command = kubectl(at.cluster ?? 'clusterpass', 'patch', [fullName(at), at.name],
    ...(at.namespace === undefined ? [] : ['-n', at.namespace]), '--type', 'merge', '-p', JSON.stringify(step.patch));
  return (
    <section class="checked" aria-labelledby="checked">
      <h2 id="checked">{old === next ? 'The server would change nothing' : 'The server accepts this change'}</h2>
      {step.error !== undefined && <Notice error={step.error} title="The change may not be applied" />}
      {step.warnings.length > 0 && <ul class="warnings">{step.warnings.map((w) => <li key={w}>{w}</li>)}</ul>}
      <Diff before={old} after={next} label="What would change" />
      <div class="toolbar">
        <button type="button" class="primary" disabled={old === next} onClick={onApply}>Apply</button>
        <AsKubectl command={command} />
      </div>
    </section>
  );
}
