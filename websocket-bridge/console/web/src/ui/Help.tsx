// Help lists the keyboard shortcuts in a dialog.
import { useEffect, useRef } from 'preact/hooks';
import { root } from '../urls.ts';
import { knownShortcuts } from './keys.ts';

export function Help({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={onClose} aria-labelledby="help">
      <h2 id="help">Keyboard</h2>
      <dl class="keys">
        {knownShortcuts().map((s) => (
          <div key={s.keys}>
            <dt>{s.keys.split(' ').map((k) => <kbd key={k}>{k}</kbd>)}</dt>
            <dd>{s.description}</dd>
          </div>
        ))}
      </dl>
      <p><a href={`${root}/licenses.txt`} target="_blank" rel="noreferrer">Licenses of the console's packages</a></p>
      <button type="button" onClick={() => dialog.current?.close()}>Close</button>
    </dialog>
  );
}
