// Filters are the fields above the table. Each is a parameter of the URL.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Resource } from '../../api/discovery.ts';
import { navigate, setQuery } from '../../router.tsx';
import { useShortcuts } from '../../ui/keys.ts';
import { urls } from '../../urls.ts';
import { fullName, type Scope } from './scope.ts';

export interface FilterValues {
  namespace: string;
  labelSelector: string;
  fieldSelector: string;
  text: string;
}

// filtersOf reads the filters of a URL.
export function filtersOf(query: URLSearchParams): FilterValues {
  return {
    namespace: query.get('namespace') ?? '', labelSelector: query.get('labelSelector') ?? '',
    fieldSelector: query.get('fieldSelector') ?? '', text: query.get('q') ?? '',
  };
}

const typingPause = 150; // milliseconds after the last key, before the text filters

interface FiltersProps {
  scope: Scope;
  resource: Resource;
  kinds: Resource[];
  query: URLSearchParams;
}

export function Filters({ scope, resource, kinds, query }: FiltersProps) {
  const search = useRef<HTMLInputElement>(null);
  const values = filtersOf(query);
  useShortcuts([{ keys: '/', description: 'Search the table', run: () => search.current?.focus() }]);
  return (
    <form class="toolbar filters" onSubmit={(event) => event.preventDefault()}>
      <KindField resource={resource} kinds={kinds} query={query} />
      {resource.namespaced && <Selector name="namespace" label="Namespace" value={values.namespace} example="all" />}
      <Selector name="cluster" label="Clusters" value={scope.clusters.join(',')} example="all, or a,b" />
      <Selector name="labelSelector" label="Labels" value={values.labelSelector} example="app=web,env!=dev" />
      <Selector name="fieldSelector" label="Fields" value={values.fieldSelector} example="metadata.name=web" />
      <Text field={search} value={values.text} />
    </form>
  );
}

// KindField is a field with the names of all kinds. Another kind keeps the clusters and the namespace.
function KindField({ resource, kinds, query }: { resource: Resource; kinds: Resource[]; query: URLSearchParams }) {
  const choose = (name: string) => {
    const wanted = name.trim().toLowerCase();
    const found = kinds.find((r) => fullName(r) === wanted) ??
      kinds.find((r) => [r.resource, r.kind.toLowerCase(), ...r.shortNames].includes(wanted));
    if (found) {
      navigate(urls.resources(found, {
        cluster: query.get('cluster') ?? '', namespace: found.namespaced ? query.get('namespace') ?? '' : '',
      }));
    }
    return found !== undefined;
  };
  return (
    <label>
      Kind
      <input
        key={fullName(resource)} list="kinds" defaultValue={fullName(resource)} size={24} spellcheck={false}
        onFocus={(event) => event.currentTarget.select()}
        onChange={(event) => {
          if (!choose(event.currentTarget.value)) {
            event.currentTarget.value = fullName(resource);
          }
        }}
      />
      <datalist id="kinds">{kinds.map((r) => <option key={fullName(r)} value={fullName(r)}>{r.kind}</option>)}</datalist>
    </label>
  );
}

// Selector is a field that the server evaluates. It applies when the user leaves it or presses Enter.
function Selector(props: { name: string; label: string; value: string; example: string }) {
  return (
    <label>
      {props.label}
      <input
        key={props.value} name={props.name} defaultValue={props.value} placeholder={props.example} size={16}
        spellcheck={false}
        onChange={(event) => setQuery({ [props.name]: event.currentTarget.value.trim() }, { replace: false })}
      />
    </label>
  );
}

function Text({ field, value }: { field: { current: HTMLInputElement | null }; value: string }) {
  const [text, setText] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => setText(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const change = (next: string) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ q: next }), typingPause);
  };
  return (
    <label>
      Text
      <input
        ref={field} type="search" name="q" value={text} placeholder="press / to search" spellcheck={false}
        onInput={(event) => change(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Escape') {
            change('');
            event.currentTarget.blur();
          }
        }}
      />
    </label>
  );
}
