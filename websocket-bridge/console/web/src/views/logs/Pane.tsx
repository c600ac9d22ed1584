// Pane shows the log of one container. Only the rows that are visible exist in the page.
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { download } from '../../api/client.ts';
import { Notice } from '../../ui/Notice.tsx';
import { save } from '../../ui/save.ts';
import { podPath, type Entry, type Follower, type Phase } from './follower.ts';

const rowHeight = 18; // as in logs.css
const extraRows = 10;
const longestDownload = 256 << 20;
const slack = 1 << 20; // bytes that a cluster may send beyond limitBytes

// Jump asks each pane for its next line that matches.
export interface Jump {
  count: number;
  isBack: boolean;
}

interface Props {
  follower: Follower;
  query: string;
  onlyMatches: boolean;
  showTimes: boolean;
  previous: boolean;
  jump: Jump;
  onClose: () => void;
}

const classOf: Record<Phase, string> = {
  connecting: 'muted', following: 'good', waiting: 'warn', ended: 'muted', failed: 'bad',
};

// matches reports whether an entry contains the query, which is in lower case.
export function matches(entry: Entry, query: string): boolean {
  entry.lower ??= entry.text.toLowerCase();
  return entry.lower.includes(query);
}

export function Pane({ follower, query, onlyMatches, showTimes, previous, jump, onClose }: Props) {
  const { container } = follower;
  const version = follower.version.value;
  const state = follower.state.value;
  const found = query === '' ? undefined : follower.entries.filter((e) => !e.isNote && matches(e, query));
  const rows = found && onlyMatches ? found : follower.entries;
  const title = `${container.cluster} / ${container.namespace} / ${container.pod} / ${container.container}`;
  return (
    <section class="log-pane" aria-label={`Log of ${title}`}>
      <header>
        <h2 title={title}>
          <span class="log-cluster">{container.cluster}</span> {container.namespace}/{container.pod}{' '}
          <span class="muted">{container.container}</span>
        </h2>
        <Download follower={follower} previous={previous} showTimes={showTimes} />
        <button type="button" onClick={onClose} aria-label={`Close the log of ${title}`} title="Close">×</button>
      </header>
      <p class="log-state" role="status">
        <span class={classOf[state.phase]}>{state.text}</span>
        {state.phase === 'waiting' && <button type="button" onClick={follower.retry}>Try now</button>}
        {found && <span class="log-count">{found.length} of {follower.entries.length} lines match</span>}
        {follower.dropped > 0 && <span class="muted">{follower.dropped} older lines are no longer shown</span>}
      </p>
      {state.phase === 'failed' && <Notice error={state.error} onRetry={follower.retry} />}
      <Rows rows={rows} version={version} dropped={follower.dropped} query={query} showTimes={showTimes} jump={jump}
        label={title} />
    </section>
  );
}

function Download({ follower, previous, showTimes }: { follower: Follower; previous: boolean; showTimes: boolean }) {
  const [state, setState] = useState<'ready' | 'busy' | { error: unknown }>('ready');
  const ending = useRef(new AbortController());
  useEffect(() => () => ending.current.abort(), []);
  const run = async () => {
    const { container } = follower;
    setState('busy');
    try {
      const params = {
        container: container.container, previous: previous || undefined, timestamps: showTimes || undefined,
        limitBytes: longestDownload,
      };
      const log = await download(podPath(container, 'log'), {
        params, signal: ending.current.signal, most: longestDownload + slack,
      });
      const name = [container.cluster, container.namespace, container.pod, container.container].join('_');
      save(`${name}.log`, log);
      setState('ready');
    } catch (error) {
      setState({ error });
    }
  };
  return (
    <>
      {typeof state === 'object' && <Notice error={state.error} />}
      <button type="button" onClick={run} disabled={state === 'busy'}
        title="Download the whole log, up to 256 MiB">
        {state === 'busy' ? 'Downloading…' : 'Download'}
      </button>
    </>
  );
}

interface RowsProps {
  rows: Entry[];
  version: number; // changes when the content of rows does
  dropped: number;
  query: string;
  showTimes: boolean;
  jump: Jump;
  label: string;
}

function Rows({ rows, version, dropped, query, showTimes, jump, label }: RowsProps) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  const [isAtEnd, setAtEnd] = useState(true);
  const [current, setCurrent] = useState<number>(); // id of the line that a jump has reached
  const wasDropped = useRef(dropped);

  useEffect(() => {
    const element = box.current as HTMLDivElement;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    const element = box.current as HTMLDivElement;
    if (isAtEnd) {
      element.scrollTop = element.scrollHeight;
    } else if (dropped > wasDropped.current) {
      element.scrollTop -= (dropped - wasDropped.current) * rowHeight; // so that the same lines stay in view
    }
    wasDropped.current = dropped;
    setTop(element.scrollTop);
  }, [rows, version, isAtEnd, height]);
  useEffect(() => {
    if (jump.count > 0 && query !== '') {
      const from = rows.findIndex((e) => e.id === current);
      const next = nextMatch(rows, query, from, jump.isBack);
      if (next >= 0) {
        setCurrent(rows[next]?.id);
        setAtEnd(false);
        (box.current as HTMLDivElement).scrollTop = Math.max(next * rowHeight - height / 2, 0);
      }
    }
  }, [jump]);

  const onScroll = () => {
    const element = box.current as HTMLDivElement;
    setTop(element.scrollTop);
    setAtEnd(element.scrollTop + element.clientHeight >= element.scrollHeight - rowHeight);
  };
  const first = Math.max(Math.floor(top / rowHeight) - extraRows, 0);
  const last = Math.min(Math.ceil((top + height) / rowHeight) + extraRows, rows.length);
  return (
    <div class="log-frame">
      <div class="log-rows" ref={box} onScroll={onScroll} tabIndex={0} role="log" aria-live="off" aria-label={label}>
        <div class="log-all" style={{ height: `${rows.length * rowHeight}px` }}>
          <div class="log-visible" style={{ transform: `translateY(${first * rowHeight}px)` }}>
            {rows.slice(first, last).map((e) => (
              <div key={e.id} class={`log-row${e.isNote ? ' log-note' : ''}${e.id === current ? ' log-current' : ''}`}>
                {showTimes && e.time && <time title={e.time}>{e.time.slice(0, 23).replace('T', ' ')} </time>}
                {query === '' || e.isNote ? e.text : <Marked text={e.text} entry={e} query={query} />}
              </div>
            ))}
          </div>
        </div>
      </div>
      {!isAtEnd && (
        <button type="button" class="log-end" onClick={() => setAtEnd(true)}>↓ Newest lines</button>
      )}
    </div>
  );
}

// nextMatch returns the index of the next line after from that matches. It begins again at the other end.
function nextMatch(rows: Entry[], query: string, from: number, isBack: boolean): number {
  const start = from < 0 && isBack ? 0 : from;
  for (let step = 1; step <= rows.length; step++) {
    const i = (start + (isBack ? -step : step) + rows.length) % rows.length;
    const row = rows[i];
    if (row && !row.isNote && matches(row, query)) {
      return i;
    }
  }
  return -1;
}

const mostMarks = 100;

function Marked({ text, entry, query }: { text: string; entry: Entry; query: string }) {
  const lower = entry.lower ?? text.toLowerCase();
  if (lower.length !== text.length) {
    return <>{matches(entry, query) ? <mark>{text}</mark> : text}</>; // lower case changes the length of a few letters
  }
  const parts: ComponentChildren[] = [];
  let at = 0;
  for (let next = lower.indexOf(query); next >= 0 && parts.length < 2 * mostMarks; next = lower.indexOf(query, at)) {
    parts.push(text.slice(at, next), <mark key={next}>{text.slice(next, next + query.length)}</mark>);
    at = next + query.length;
  }
  return <>{parts}{text.slice(at)}</>;
}
