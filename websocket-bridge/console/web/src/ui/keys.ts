// Keyboard shortcuts: one key, or two keys one after the other such as "g c".
import { useLayoutEffect } from 'preact/hooks';

export interface Shortcut {
  keys: string;
  description: string;
  run: () => void;
}

const shortcuts = new Set<Shortcut>();
const pauseBetweenKeys = 1_000;
let first = '';
let firstAt = 0;

// knownShortcuts returns the shortcuts of the view that is shown, and those of the console.
export function knownShortcuts(): Shortcut[] {
  return [...shortcuts];
}

// useShortcuts adds shortcuts while the component is shown. A later shortcut for the same keys replaces an earlier one.
export function useShortcuts(list: Shortcut[], dependencies: unknown[] = []): void {
  useLayoutEffect(() => { // before the view is seen, so that no key is lost
    list.forEach((s) => shortcuts.add(s));
    return () => list.forEach((s) => shortcuts.delete(s));
  }, dependencies);
}

const withoutText = ['button', 'checkbox', 'radio', 'range', 'file', 'submit'];

// isField reports whether the user types text into the target.
function isField(target: EventTarget | null): boolean {
  if (target instanceof HTMLInputElement) {
    return !withoutText.includes(target.type);
  }
  return target instanceof HTMLElement && (target.isContentEditable || ['TEXTAREA', 'SELECT'].includes(target.tagName));
}

// listen handles the keys of the page, except while a dialog covers it. Call it once.
export function listen(): void {
  addEventListener('keydown', (event) => {
    const isCovered = document.querySelector('dialog:modal') !== null;
    const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
    if (isCovered || hasModifier || event.defaultPrevented || isField(event.target)) {
      first = '';
      return;
    }
    const sequence = event.timeStamp - firstAt < pauseBetweenKeys && first ? `${first} ${event.key}` : event.key;
    const find = (keys: string) => [...shortcuts].reverse().find((s) => s.keys === keys);
    const found = find(sequence) ?? find(event.key);
    first = found ? '' : event.key;
    firstAt = event.timeStamp;
    if (found) {
      event.preventDefault();
      found.run();
    }
  });
}
