// Feed lists a resource in pages and then watches it. It lists again when the server has forgotten the version.
import { signal } from '@preact/signals';
import { isAborted, NetworkError, request, sleep, StatusError, tableType, watch } from '../../api/client.ts';
import type { Resource } from '../../api/discovery.ts';
import { resourcePath, type Base, type Params } from '../../api/paths.ts';
import type { Table } from '../../api/types.ts';
import { Columns, type Column } from './columns.ts';
import { RowSet, yieldToPage, type Change } from './rows.ts';

// Query selects the objects of a feed. The server evaluates it.
export interface Query {
  base: Base;
  cluster: string; // of all objects, or empty for the fleet
  resource: Resource;
  namespace?: string | undefined;
  clusters?: string | undefined; // comma-separated; of the fleet
  labelSelector?: string | undefined;
  fieldSelector?: string | undefined;
}

export type Phase =
  | 'listing' // pages arrive
  | 'live' // a watch is open
  | 'listed' // complete, but the resource cannot be watched
  | 'lost' // the connection, or the server: it is tried again
  | 'failed'; // for good

export interface State {
  phase: Phase;
  remaining: number | undefined; // objects that are not yet listed
  isTruncated: boolean; // the server has more than mostRows
  error: unknown;
  warnings: string[];
}

const firstPage = 100; // objects, so that the table appears at once
const pageSize = 500;
const mostPages = 5_000; // pages may be short, or even empty
// mostRows bounds the memory of the page.
export const mostRows = 200_000;
const flushPeriod = 100; // milliseconds in which events are collected
const mostPending = 2_000; // events that are collected at most
const firstPause = 1_000;
const longestPause = 15_000;
const longWatch = 60_000; // after which the pauses begin anew

export class Feed {
  readonly rows: RowSet;
  readonly columns = signal<Column[]>([]);
  // version grows with each change of rows.
  readonly version = signal(0);
  readonly state = signal<State>({
    phase: 'listing', remaining: undefined, isTruncated: false, error: undefined, warnings: [],
  });
  readonly #query: Query;
  readonly #path: string;
  readonly #params: Params;
  readonly #abort = new AbortController();
  readonly #columns: Columns;
  #generation = 0;
  #pending: Change[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(query: Query) {
    this.#query = query;
    const { base, resource: { group, version, resource }, namespace } = query;
    this.#path = resourcePath({ base, group, version, resource, namespace });
    this.#params = {
      clusters: query.clusters, labelSelector: query.labelSelector, fieldSelector: query.fieldSelector,
    };
    this.#columns = new Columns(query.cluster);
    this.rows = new RowSet(() => {
      this.version.value++;
    });
  }

  // start lists and watches until stop.
  start(): void {
    void this.#run();
  }

  stop(): void {
    this.#abort.abort();
    clearTimeout(this.#timer);
  }

  #set(change: Partial<State>): void {
    if (!this.#abort.signal.aborted) {
      this.state.value = { ...this.state.value, ...change };
    }
  }

  async #run(): Promise<void> {
    const { signal: aborted } = this.#abort;
    let pause = firstPause;
    let began = Infinity; // of the last watch
    while (!aborted.aborted) {
      try {
        const version = await this.#list();
        began = performance.now();
        if (!this.#query.resource.verbs.includes('watch') || version === '') {
          this.#set({ phase: 'listed', error: undefined });
          return;
        }
        await this.#watch(version);
      } catch (error) {
        if (aborted.aborted || isAborted(error)) {
          return;
        }
        if (!isTemporary(error)) {
          this.#set({ phase: 'failed', error });
          return;
        }
        this.#set(isGone(error) ? { phase: 'listing' } : { phase: 'lost', error });
        pause = performance.now() - began > longWatch ? firstPause : Math.min(2 * pause, longestPause);
        await sleep(pause, aborted);
      }
    }
  }

  // #list returns the version of the list. Rows of an earlier list are shown until the new one is complete.
  async #list(): Promise<string> {
    const generation = ++this.#generation;
    const found = new Set<string>();
    let [version, next, listed, pages] = ['', '', 0, 0];
    do {
      const page = await request<Table>(this.#path, {
        params: { ...this.#params, limit: next === '' ? firstPage : pageSize, continue: next },
        accept: tableType, signal: this.#abort.signal,
        onWarnings: (warnings) => warnings.forEach((w) => found.add(w)),
        onRefused: (error) => this.#set({ phase: 'lost', error }),
      });
      await yieldToPage(); // decoding a page is a task of its own
      version ||= page.metadata.resourceVersion ?? '';
      next = page.metadata.continue ?? '';
      const rows = this.#columns.rows(page, generation);
      listed += rows.length;
      this.#publishColumns();
      this.rows.apply(rows.map((row) => ({ row, isDeleted: false })));
      const isTruncated = next !== '' && (listed >= mostRows || ++pages >= mostPages);
      this.#set({
        phase: 'listing', remaining: page.metadata.remainingItemCount, isTruncated, error: undefined,
        warnings: [...found],
      });
      if (isTruncated) {
        next = '';
      }
    } while (next !== '');
    this.rows.keepGeneration(generation);
    this.#set({ remaining: undefined });
    return version;
  }

  async #watch(resourceVersion: string): Promise<void> {
    const generation = this.#generation;
    await watch<Table>(this.#path, {
      params: this.#params, resourceVersion, asTable: true, signal: this.#abort.signal,
      onState: (state, error) =>
        this.#set(state === 'open' ? { phase: 'live', error: undefined } : { phase: 'lost', error }),
      onEvent: (event) => {
        if (event.type === 'BOOKMARK') {
          return;
        }
        const isDeleted = event.type === 'DELETED';
        for (const row of this.#columns.rows(event.object, generation)) {
          if (!isDeleted && !this.rows.has(row.key) && this.rows.size + this.#pending.length >= mostRows) {
            this.#set({ isTruncated: true });
            break;
          }
          this.#pending.push({ row, isDeleted });
        }
        if (this.#pending.length >= mostPending) {
          this.#flush();
        } else {
          this.#timer ??= setTimeout(() => this.#flush(), flushPeriod);
        }
      },
    });
    this.#flush();
  }

  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const pending = this.#pending;
    this.#pending = [];
    this.#publishColumns();
    this.rows.apply(pending);
  }

  #publishColumns(): void {
    if (this.columns.value !== this.#columns.all) {
      this.columns.value = this.#columns.all;
    }
  }
}

// isGone reports that the server has forgotten the version of a page or a watch.
function isGone(error: unknown): boolean {
  return error instanceof StatusError && error.code === 410;
}

function isTemporary(error: unknown): boolean {
  return error instanceof NetworkError ||
    (error instanceof StatusError && (error.code >= 500 || error.code === 429)) || isGone(error) ||
    (error instanceof DOMException && error.name === 'TimeoutError') || error instanceof TypeError;
}
