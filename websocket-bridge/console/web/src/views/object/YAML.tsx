// YAML shows an object as YAML, and edits it.
import { useMemo, useState } from 'preact/hooks';
import type { KubeObject } from '../../api/types.ts';
import { setQuery } from '../../router.tsx';
import { visible } from '../../ui/text.ts';
import { draftOf } from './edit.ts';
import { Editor } from './Editor.tsx';
import type { TabProps } from './Object.tsx';
import { toYAML, withoutManagedFields } from './yaml.ts';

const lastApplied = 'kubectl.kubernetes.io/last-applied-configuration';

function isSecret(object: KubeObject): boolean {
  return object.apiVersion === 'v1' && object.kind === 'Secret';
}

// withoutValues returns a Secret with the sizes of its values in their place.
function withoutValues(object: KubeObject): KubeObject {
  const hidden = (values: unknown) => Object.fromEntries(Object.entries(values ?? {}).map(([key, value]) =>
    [key, `hidden, ${String(value).length} characters`]));
  const { annotations, ...metadata } = object.metadata;
  const copied = annotations && lastApplied in annotations ? { ...annotations, [lastApplied]: 'hidden' } : annotations;
  return {
    ...object, metadata: { ...metadata, ...(copied && { annotations: copied }) },
    ...('data' in object && { data: hidden(object['data']) }),
  };
}

export function YAML(props: TabProps) {
  const { object, path, query, loaded } = props;
  const [showsValues, setShowsValues] = useState(false);
  const isHidden = isSecret(object) && !showsValues;
  const text = useMemo(
    () => visible(toYAML(withoutManagedFields(isHidden ? withoutValues(object) : object))), [object, isHidden],
  );
  if (query.get('edit') === '1') {
    return <Editor {...props} onClose={() => setQuery({ edit: '' })} />;
  }
  const managed = object.metadata.managedFields ?? [];
  return (
    <>
      <div class="toolbar">
        <button type="button" class="primary" disabled={loaded.isDeleted} onClick={() => setQuery({ edit: '1' })}>
          {draftOf(path) ? 'Continue to edit' : 'Edit'}
        </button>
        {isSecret(object) && (
          <button type="button" aria-pressed={showsValues} onClick={() => setShowsValues(!showsValues)}>
            {showsValues ? 'Hide the values' : 'Show the values'}
          </button>
        )}
      </div>
      <pre class="yaml" tabIndex={0} aria-label="YAML of the object">{text}</pre>
      {managed.length > 0 && <ManagedFields fields={managed} />}
    </>
  );
}

function ManagedFields({ fields }: { fields: unknown[] }) {
  const [isOpen, setOpen] = useState(false);
  const managers = new Set(fields.map((f) => String((f as { manager?: unknown }).manager ?? '')));
  return (
    <details class="managed" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>metadata.managedFields: {fields.length} entries of {[...managers].join(', ')}</summary>
      {isOpen && <pre class="yaml" tabIndex={0} aria-label="Managed fields">{visible(toYAML(fields))}</pre>}
    </details>
  );
}
