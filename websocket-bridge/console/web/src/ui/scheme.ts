// The colours of the page: those of the system, unless the user switches.
import { effect, signal } from '@preact/signals';

export type Scheme = 'system' | 'light' | 'dark';

const key = 'clusterpass-colours';
const stored = localStorage.getItem(key);

export const scheme = signal<Scheme>(stored === 'light' || stored === 'dark' ? stored : 'system');

effect(() => {
  if (scheme.value === 'system') {
    delete document.documentElement.dataset['scheme'];
    localStorage.removeItem(key);
  } else {
    document.documentElement.dataset['scheme'] = scheme.value;
    localStorage.setItem(key, scheme.value);
  }
});

export function switchScheme(): void {
  scheme.value = scheme.value === 'system' ? 'light' : scheme.value === 'light' ? 'dark' : 'system';
}
