// Lines of a log that was requested with timestamps=true, and how a log continues after a lost connection.

export interface Line {
  time: string; // RFC 3339, or empty if the line has no timestamp
  text: string;
}

// longestText is the length from which a line is cut, in UTF-16 units.
const longestText = 16_384;
const stamp = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) /;

function parse(raw: string, dropped: number): Line {
  const text = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
  const time = stamp.exec(text)?.[1] ?? '';
  const rest = time ? text.slice(time.length + 1) : text;
  return { time, text: dropped > 0 ? `${rest} … ${dropped} more characters` : rest };
}

// Splitter splits a body, which arrives in pieces, into lines. Its memory is bounded, also without a line feed.
export class Splitter {
  readonly #decoder = new TextDecoder();
  #rest = '';
  #dropped = 0;

  // push returns the lines that a piece completes.
  push(piece: Uint8Array): Line[] {
    const parts = this.#decoder.decode(piece, { stream: true }).split('\n');
    const complete: Line[] = [];
    parts.forEach((part, i) => {
      const room = longestText - this.#rest.length;
      this.#rest += part.slice(0, room);
      this.#dropped += Math.max(part.length - room, 0);
      if (i < parts.length - 1) {
        complete.push(this.#take());
      }
    });
    return complete;
  }

  // end returns the last line of a body that ended without a line feed.
  end(): Line | undefined {
    return this.#rest === '' ? undefined : this.#take();
  }

  #take(): Line {
    const line = parse(this.#rest, this.#dropped);
    this.#rest = '';
    this.#dropped = 0;
    return line;
  }
}

// Instant is a time in seconds since 1970 and nanoseconds. A number is too small for both.
export type Instant = readonly [seconds: number, nanoseconds: number];

export function instant(time: string): Instant {
  const fraction = /\.(\d+)/.exec(time)?.[1] ?? '';
  return [Date.parse(time.replace(/\.\d+/, '')) / 1000, Number(fraction.padEnd(9, '0'))];
}

export function compare(a: Instant, b: Instant): number {
  return a[0] - b[0] || a[1] - b[1];
}

const keyOf = (line: Line) => `${line.time} ${line.text}`;

// Position is how far a log was read.
export class Position {
  #last: Line | undefined;
  #repeats = 0; // how often the last line came, one after the other
  #latest: Instant = [0, 0]; // of all lines: those of standard output and error may be out of order

  get last(): Line | undefined {
    return this.#last;
  }

  get repeats(): number {
    return this.#repeats;
  }

  get latest(): Instant {
    return this.#latest;
  }

  // since is the value of sinceTime to continue with. Kubelets know whole seconds only.
  get since(): string | undefined {
    return this.#last && `${new Date(instant(this.#last.time)[0] * 1000).toISOString().slice(0, 19)}Z`;
  }

  add(line: Line): void {
    if (line.time === '') {
      return;
    }
    this.#repeats = this.#last && keyOf(this.#last) === keyOf(line) ? this.#repeats + 1 : 1;
    this.#last = line;
    const at = instant(line.time);
    if (compare(at, this.#latest) > 0) {
      this.#latest = at;
    }
  }
}

// Resumption omits the lines of a log that were read before it was requested again. It looks for the last line that was
// read, so that no line is shown twice and a gap is noticed.
export class Resumption {
  readonly #key: string;
  readonly #latest: Instant;
  #remaining: number;
  #isPast = false;

  constructor(position: Position) {
    this.#key = position.last ? keyOf(position.last) : '';
    this.#latest = position.latest;
    this.#remaining = position.repeats;
    this.#isPast = position.last === undefined;
  }

  // isPast reports whether the last line that was read has come again.
  get isPast(): boolean {
    return this.#isPast;
  }

  // classify returns known for a line that was read before, and gap for the first line after lines that are missing.
  classify(line: Line): 'known' | 'new' | 'gap' {
    if (this.#isPast || line.time === '') {
      return 'new';
    }
    if (keyOf(line) === this.#key) {
      this.#remaining--;
      this.#isPast = this.#remaining === 0;
      return 'known';
    }
    if (compare(instant(line.time), this.#latest) > 0) {
      this.#isPast = true;
      return 'gap';
    }
    return 'known';
  }
}
