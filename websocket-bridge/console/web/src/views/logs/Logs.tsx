// Logs of many pods of many clusters, side by side. Parameters of the URL:
//   pod        cluster/namespace/pod[/container], repeated
//   namespace, labelSelector, cluster (repeated): all pods that match
//   hide       cluster/namespace/pod/container that the user has closed, repeated
//   tail, follow=false, previous=true, times=true, q, only=true
import { useEffect, useRef, useState } from 'preact/hooks';
import { navigate, setQuery, url, type ViewProps } from '../../router.tsx';
import { adopt } from '../../ui/sheet.ts';
import { AsKubectl, kubectl } from '../../ui/AsKubectl.tsx';
import { useShortcuts } from '../../ui/keys.ts';
import { Notice } from '../../ui/Notice.tsx';
import { save } from '../../ui/save.ts';
import { compare, instant } from './line.ts';
import { containerKey, Follower, type Container, type ReadOptions } from './follower.ts';
import css from './logs.css' with { type: 'text' };
import { Pane, type Jump } from './Pane.tsx';
import { hasSelector, mostContainers, parsePod, select, type Selection } from './source.ts';

adopt(css);

const defaultTail = 200;
const mostTail = 5_000;

function readSelection(query: URLSearchParams): Selection {
  return {
    pods: query.getAll('pod'),
    clusters: query.getAll('cluster').filter((c) => c !== ''),
    namespace: query.get('namespace') ?? '',
    selector: query.get('labelSelector') ?? '',
  };
}

function readOptions(query: URLSearchParams): ReadOptions {
  const tail = Number(query.get('tail') ?? defaultTail);
  const previous = query.get('previous') === 'true';
  return {
    follow: !previous && query.get('follow') !== 'false', previous,
    tail: Number.isInteger(tail) && tail >= 0 ? Math.min(tail, mostTail) : defaultTail,
  };
}

// useContainers returns the containers of a selection, and errors of clusters and pods.
function useContainers(selection: Selection): { containers: Container[]; errors: unknown[] } {
  const [containers, setContainers] = useState<Container[]>([]);
  const [errors, setErrors] = useState<unknown[]>([]);
  useEffect(() => {
    const ending = new AbortController();
    setErrors([]);
    select(selection, {
      onChange: setContainers, onError: (error) => setErrors((all) => [...all, error]),
    }, ending.signal);
    return () => ending.abort();
  }, [JSON.stringify(selection)]);
  return { containers, errors };
}

// useFollowers keeps a Follower for each container, and stops those that are no longer shown.
function useFollowers(containers: Container[], options: ReadOptions): Follower[] {
  const running = useRef(new Map<string, Follower>());
  const [followers, setFollowers] = useState<Follower[]>([]);
  const mode = JSON.stringify(options);
  const lastMode = useRef(mode);
  useEffect(() => {
    const known = running.current;
    const wanted = new Set(containers.map(containerKey));
    for (const [key, follower] of known) {
      if (!wanted.has(key) || lastMode.current !== mode) {
        follower.stop();
        known.delete(key);
      }
    }
    lastMode.current = mode;
    setFollowers(containers.map((c) => {
      const key = containerKey(c);
      let follower = known.get(key);
      if (!follower) {
        follower = new Follower(c, options);
        known.set(key, follower);
        follower.start();
      }
      return follower;
    }));
  }, [containers.map(containerKey).join(' '), mode]);
  useEffect(() => () => running.current.forEach((follower) => follower.stop()), []);
  return followers;
}

// commandOf returns one line of kubectl for each log, or one for all pods of a selector.
function commandOf(s: Selection, options: ReadOptions, times: boolean): string {
  const flags = [
    options.follow && '--follow', options.previous && '--previous', `--tail=${options.tail}`, times && '--timestamps',
  ];
  const commands = s.pods.flatMap((text) => {
    const ref = parsePod(text);
    return ref ? [kubectl(ref.cluster, 'logs', '-n', ref.namespace, [ref.pod],
      ...(ref.container ? ['-c', ref.container] : ['--all-containers']), ...flags)] : [];
  });
  if (hasSelector(s)) {
    const [only, ...more] = s.clusters;
    const inClusters = more.length > 0 ? `clusterpass.io/cluster in (${s.clusters.join(',')})` : '';
    const selector = [s.selector, inClusters].filter((part) => part !== '').join(',');
    const context = only && more.length === 0 ? only : 'fleet@';
    commands.push(kubectl(context, 'logs', '-n', s.namespace, `--selector=${selector}`, '--all-containers',
      '--prefix', `--max-log-requests=${mostContainers}`, ...flags));
  }
  return commands.join('\n');
}

// textOf returns the lines of all logs in the order of their times.
function textOf(followers: Follower[]): string {
  const all = followers.flatMap((f) => f.entries.filter((e) => !e.isNote).map((e) => ({
    at: e.time ? instant(e.time) : ([0, 0] as const), line: `${e.time} ${containerKey(f.container)} ${e.text}\n`,
  })));
  return all.sort((a, b) => compare(a.at, b.at)).map((e) => e.line).join('');
}

export default function LogsView({ query }: ViewProps) {
  const selection = readSelection(query);
  const options = readOptions(query);
  const { containers, errors } = useContainers(selection);
  const hidden = new Set(query.getAll('hide'));
  const wanted = containers.filter((c) => !hidden.has(containerKey(c)));
  const followers = useFollowers(wanted.slice(0, mostContainers), options);
  const [jump, setJump] = useState<Jump>({ count: 0, isBack: false });
  const search = useRef<HTMLInputElement>(null);
  const showTimes = query.get('times') === 'true';
  const command = commandOf(selection, options, showTimes);
  const q = query.get('q') ?? '';

  useShortcuts([{ keys: '/', description: 'Search the logs', run: () => search.current?.focus() }]);
  const toggle = (name: string, isOn: boolean, unusual: boolean) =>
    setQuery({ [name]: isOn === unusual ? String(unusual) : undefined });
  const close = (key: string) => {
    const next = new URL(url.value);
    next.searchParams.append('hide', key);
    navigate(next.href);
  };
  return (
    <>
      <h1>Logs</h1>
      <SelectionForm key={JSON.stringify(selection)} selection={selection} />
      <div class="toolbar">
        <input ref={search} type="search" value={q} placeholder="Search (/)" aria-label="Search the logs"
          onInput={(e) => setQuery({ q: e.currentTarget.value })}
          onKeyDown={(e) => e.key === 'Enter' && setJump({ count: jump.count + 1, isBack: e.shiftKey })} />
        <Check label="Only matches" isOn={query.get('only') === 'true'} onChange={(on) => toggle('only', on, true)} />
        <Check label="Timestamps" isOn={showTimes} onChange={(on) => toggle('times', on, true)} />
        <Check label="Follow" isOn={options.follow} onChange={(on) => setQuery({
          follow: on ? undefined : 'false', previous: on ? undefined : query.get('previous') ?? undefined,
        })} />
        <Check label="Previous run" isOn={options.previous} onChange={(on) => toggle('previous', on, true)} />
        <label>Lines <input class="log-tail" type="number" min={0} max={mostTail} value={options.tail}
          onChange={(e) => setQuery({ tail: e.currentTarget.value })} /></label>
        <button type="button" disabled={followers.length === 0}
          onClick={() => save('logs.txt', new Blob([textOf(followers)], { type: 'text/plain' }))}>
          Save shown lines
        </button>
        {command !== '' && <AsKubectl command={command} />}
      </div>
      {errors.map((error, i) => <Notice key={i} error={error} />)}
      {wanted.length > mostContainers && (
        <p class="warn" role="status">
          {wanted.length} containers match, and {mostContainers} are shown. Close some, or narrow the selector.
        </p>
      )}
      {hidden.size > 0 && (
        <p>
          <button type="button" onClick={() => setQuery({ hide: undefined })}>Show closed logs ({hidden.size})</button>
        </p>
      )}
      <div class={`log-grid${followers.length > 2 ? ' is-many' : ''}`}>
        {followers.map((f) => (
          <Pane key={containerKey(f.container)} follower={f} query={q.toLowerCase()} jump={jump} showTimes={showTimes}
            onlyMatches={query.get('only') === 'true'} previous={options.previous}
            onClose={() => close(containerKey(f.container))} />
        ))}
      </div>
    </>
  );
}

function Check(props: { label: string; isOn: boolean; onChange: (isOn: boolean) => void }) {
  return (
    <label>
      <input type="checkbox" checked={props.isOn} onChange={(e) => props.onChange(e.currentTarget.checked)} />{' '}
      {props.label}
    </label>
  );
}

// SelectionForm chooses the pods by namespace, selector and clusters.
function SelectionForm({ selection }: { selection: Selection }) {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const valueOf = (name: string) => String(form.get(name) ?? '').trim();
    const next = new URL(url.value);
    for (const name of ['namespace', 'labelSelector', 'cluster', 'hide']) {
      next.searchParams.delete(name);
    }
    for (const name of ['namespace', 'labelSelector']) {
      if (valueOf(name)) {
        next.searchParams.set(name, valueOf(name));
      }
    }
    for (const cluster of valueOf('clusters').split(/[\s,]+/).filter((c) => c !== '')) {
      next.searchParams.append('cluster', cluster);
    }
    navigate(next.href);
  };
  return (
    <details open={selection.pods.length === 0}>
      <summary>Choose pods by a selector</summary>
      <form class="log-form" onSubmit={submit}>
        <label>Namespace<input name="namespace" required value={selection.namespace} /></label>
        <label>Label selector<input name="labelSelector" value={selection.selector} placeholder="app=web" /></label>
        <label>Clusters<input name="clusters" value={selection.clusters.join(', ')} placeholder="all" /></label>
        <button type="submit" class="primary">Show</button>
      </form>
    </details>
  );
}
