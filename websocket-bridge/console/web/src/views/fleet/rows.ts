// The rows of a table in the order and with the filter of the user. Long work runs in slices, so that the page stays
// responsive with 100,000 rows.

export type Cell = string | number | boolean | null;

export interface Row {
  key: string; // unique among the objects of one kind
  cluster: string;
  namespace: string;
  name: string;
  created: number; // milliseconds, or NaN
  isDeleting: boolean;
  cells: Cell[];
  generation: number; // of the listing or watch that delivered the row last
  sortNumber: number;
  sortText: string;
}

export interface Change {
  row: Row;
  isDeleted: boolean;
}

// SortKey returns the value by which a row is sorted.
export type SortKey = (row: Row) => Cell;

const slice = 8; // milliseconds of work before other tasks of the page run
const manyChanges = 64;
const run = 2_000;

const channel = new MessageChannel();
const waiting: (() => void)[] = [];
channel.port1.onmessage = () => waiting.shift()?.();

// yieldToPage resolves after other tasks of the page, such as input, have run.
export function yieldToPage(): Promise<void> {
  return new Promise((resolve) => {
    waiting.push(resolve);
    channel.port2.postMessage(null);
  });
}

class Superseded extends Error {}

// RowSet is a set of rows. It calls onChange whenever shown has changed.
export class RowSet {
  shown: Row[] = [];
  readonly #all = new Map<string, Row>();
  readonly #onChange: () => void;
  #sortKey: SortKey | undefined;
  #isDescending = false;
  #words: string[] = [];
  #job = 0;
  #isBuilding = false;
  #queue: Change[] = [];

  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  get size(): number {
    return this.#all.size;
  }

  has(key: string): boolean {
    return this.#all.has(key);
  }

  // isBuilding reports whether shown still has the former order or filter.
  get isBuilding(): boolean {
    return this.#isBuilding;
  }

  // arrange sets the order and the text that each shown row contains.
  arrange(sortKey: SortKey | undefined, isDescending: boolean, text: string): Promise<void> {
    this.#sortKey = sortKey;
    this.#isDescending = isDescending;
    this.#words = text.toLowerCase().split(/\s+/).filter((word) => word !== '');
    return this.#rebuild();
  }

  // apply adds, replaces and removes rows.
  apply(changes: Change[]): void {
    if (changes.length === 0) {
      return;
    }
    if (this.#isBuilding) {
      for (const change of changes) {
        this.#queue.push(change);
      }
      return;
    }
    if (changes.length < manyChanges) {
      changes.forEach((change) => this.#applyOne(change));
    } else {
      this.#applyMany(changes);
    }
    this.#onChange();
  }

  // keepGeneration removes the rows of other generations.
  keepGeneration(generation: number): void {
    const queued = new Map(this.#queue.map((change) => [change.row.key, change]));
    const changes: Change[] = [];
    for (const row of this.#all.values()) {
      if (row.generation !== generation && !queued.has(row.key)) {
        changes.push({ row, isDeleted: true });
      }
    }
    this.apply(changes);
  }

  #applyOne({ row, isDeleted }: Change): void {
    const old = this.#all.get(row.key);
    if (old) {
      const at = this.#find(old);
      if (this.shown[at] === old) {
        this.shown.splice(at, 1);
      }
      this.#all.delete(row.key);
    }
    if (isDeleted) {
      return;
    }
    this.#all.set(row.key, row);
    if (this.#prepare(row)) {
      this.shown.splice(this.#find(row), 0, row);
    }
  }

  #applyMany(changes: Change[]): void {
    const last = new Map(changes.map((change) => [change.row.key, change]));
    const removed = new Set<Row>();
    const added: Row[] = [];
    for (const { row, isDeleted } of last.values()) {
      const old = this.#all.get(row.key);
      if (old) {
        removed.add(old);
        this.#all.delete(row.key);
      }
      if (!isDeleted) {
        this.#all.set(row.key, row);
        if (this.#prepare(row)) {
          added.push(row);
        }
      }
    }
    const kept = removed.size > 0 ? this.shown.filter((row) => !removed.has(row)) : this.shown;
    added.sort(this.#compare);
    const end = kept.at(-1);
    if (added[0] && end && this.#compare(end, added[0]) > 0) {
      this.shown = merge(kept, added, this.#compare);
    } else {
      for (const row of added) {
        kept.push(row);
      }
      this.shown = kept;
    }
  }

  // #prepare sets the sort key of a row, and reports whether the row is shown.
  #prepare(row: Row): boolean {
    const key = this.#sortKey?.(row) ?? '';
    row.sortNumber = leadingNumber(key);
    row.sortText = typeof key === 'string' ? key : String(key);
    if (this.#words.length === 0) {
      return true;
    }
    const text = [row.namespace, row.name, row.cluster, ...row.cells].join('\n').toLowerCase();
    return this.#words.every((word) => text.includes(word));
  }

  #compare = (a: Row, b: Row): number => {
    const order = compareKeys(a, b);
    if (order !== 0) {
      return this.#isDescending ? -order : order;
    }
    return compareText(a.cluster, b.cluster) || compareText(a.namespace, b.namespace) || compareText(a.name, b.name);
  };

  // #find returns the position of a row in shown, or the position to insert it.
  #find(row: Row): number {
    let low = 0;
    let high = this.shown.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#compare(this.shown[middle] as Row, row) < 0) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  async #rebuild(): Promise<void> {
    const job = ++this.#job;
    this.#isBuilding = true;
    let until = performance.now() + slice;
    const pause = async () => {
      if (performance.now() < until) {
        return;
      }
      await yieldToPage();
      if (job !== this.#job) {
        throw new Superseded();
      }
      until = performance.now() + slice;
    };
    try {
      this.shown = await this.#arranged(pause);
    } catch (error) {
      if (error instanceof Superseded) {
        return;
      }
      throw error;
    }
    this.#isBuilding = false;
    const queue = this.#queue;
    this.#queue = [];
    this.apply(queue);
    this.#onChange();
  }

  async #arranged(pause: () => Promise<void>): Promise<Row[]> {
    let runs: Row[][] = [[]];
    let seen = 0;
    for (const row of this.#all.values()) {
      if (this.#prepare(row)) {
        const last = runs.at(-1) as Row[];
        last.push(row);
        if (last.length === run) {
          runs.push([]);
        }
      }
      if (++seen % 256 === 0) {
        await pause();
      }
    }
    for (const rows of runs) {
      rows.sort(this.#compare);
      await pause();
    }
    while (runs.length > 1) {
      const next: Row[][] = [];
      for (let i = 0; i < runs.length; i += 2) {
        const [a, b] = [runs[i] as Row[], runs[i + 1]];
        next.push(b ? await mergeInSlices(a, b, this.#compare, pause) : a);
      }
      runs = next;
    }
    return runs[0] as Row[];
  }
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

// compareKeys puts numbers before other texts.
function compareKeys(a: Row, b: Row): number {
  const [x, y] = [a.sortNumber, b.sortNumber];
  if (x !== y && !(Number.isNaN(x) && Number.isNaN(y))) {
    return Number.isNaN(x) ? 1 : Number.isNaN(y) ? -1 : x - y;
  }
  return compareText(a.sortText, b.sortText);
}

const units: Record<string, number> = { y: 31_536_000, d: 86_400, h: 3_600, m: 60, s: 1 };

// leadingNumber returns the number at the beginning of a cell, the seconds of a duration such as 3d4h, or NaN.
export function leadingNumber(cell: Cell): number {
  if (typeof cell === 'number') {
    return cell;
  }
  if (typeof cell !== 'string') {
    return NaN;
  }
  if (/^(\d+[ydhms])+$/.test(cell)) {
    let seconds = 0;
    for (const [, count, unit] of cell.matchAll(/(\d+)([ydhms])/g)) {
      seconds += Number(count) * (units[unit as string] ?? 0);
    }
    return seconds;
  }
  const found = /^-?\d+(\.\d+)?/.exec(cell);
  return found ? Number(found[0]) : NaN;
}

function* merging(a: Row[], b: Row[], compare: (a: Row, b: Row) => number, out: Row[]): Generator<void> {
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const [x, y] = [a[i], b[j]];
    if (x && (!y || compare(x, y) <= 0)) {
      out.push(x);
      i++;
    } else {
      out.push(y as Row);
      j++;
    }
    if ((i + j) % 1_024 === 0) {
      yield;
    }
  }
}

function merge(a: Row[], b: Row[], compare: (a: Row, b: Row) => number): Row[] {
  const out: Row[] = [];
  for (const _ of merging(a, b, compare, out)) {
    // a small batch is merged at once
  }
  return out;
}

async function mergeInSlices(
  a: Row[], b: Row[], compare: (a: Row, b: Row) => number, pause: () => Promise<void>,
): Promise<Row[]> {
  const out: Row[] = [];
  for (const _ of merging(a, b, compare, out)) {
    await pause();
  }
  return out;
}
