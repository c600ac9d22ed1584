// Files of asciicast v2, as clusterpass recording export writes them.

// longestFile bounds the memory for a file.
export const longestFile = 64 << 20;

// longestSide bounds the size of the terminal in characters. A recorded user chooses it, and the player fails at large
// ones. clusterpass recording export has the same limit.
const longestSide = 1000;

export interface Fact {
  name: string;
  value: string;
}

export interface Cast {
  text: string;
  id: string | undefined; // of a recording of Clusterpass
  facts: Fact[];
}

const labels: Record<string, string> = {
  id: 'Recording', user: 'User', groups: 'Groups', impersonator: 'Impersonated by', pass: 'Pass', requestID: 'Request',
  cluster: 'Cluster', namespace: 'Namespace', pod: 'Pod', container: 'Container', kind: 'Kind', command: 'Command',
  commandSHA256: 'SHA-256 of the command', tty: 'Terminal', hasInput: 'Input', recordsInput: 'Input is recorded',
  start: 'Start',
  unverifiedTokenSHA256: 'SHA-256 of the token', unverifiedIssuer: 'Issuer (not verified)',
  unverifiedSubject: 'Subject (not verified)', unverifiedTokenID: 'Token (not verified)',
};

// readCast reads the header of a file. It throws if the file is no recording.
export async function readCast(file: Blob): Promise<Cast> {
  if (file.size > longestFile) {
    throw new Error(`the file has ${Math.ceil(file.size / (1 << 20))} MiB, and the player reads up to ` +
      `${longestFile >> 20} MiB. Play it with clusterpass recording play.`);
  }
  const original = await file.text();
  const endOfHeader = end(original, 0);
  const header = parse(original.slice(0, endOfHeader));
  if (!isObject(header) || header['version'] !== 2 || !isCount(header['width']) || !isCount(header['height'])) {
    throw new Error('the file is no recording in asciicast v2. Write one with clusterpass recording export ID FILE.');
  }
  const width = Math.min(header['width'] || 80, longestSide);
  const height = Math.min(header['height'] || 24, longestSide);
  const text = JSON.stringify({ ...header, width, height }) + limitSizes(original.slice(endOfHeader));
  const own = isObject(header['clusterpass']) ? header['clusterpass'] : {};
  const facts = Object.entries(own).map(([name, value]) => ({ name: labels[name] ?? name, value: textOf(value) }));
  if (typeof header['timestamp'] === 'number' && own['start'] === undefined) {
    facts.push({ name: 'Start', value: new Date(header['timestamp'] * 1000).toISOString() });
  }
  facts.push({ name: 'Size', value: `${width} × ${height}` });
  const id = typeof own['id'] === 'string' ? own['id'] : undefined;
  return { text, id, facts: facts.filter((f) => f.value !== '') };
}

// limitSizes returns events in which each side of the terminal has 1 to longestSide characters. Other sizes are left
// out. It parses all lines but those of input and output, which are nearly all.
function limitSizes(events: string): string {
  return events.replace(/^(?!\[\s*[-+.\deE]+\s*,\s*"[io]")[^\n]+\n?/gm, (line) => {
    const event = parse(line);
    if (!Array.isArray(event) || event[1] !== 'r') {
      return line;
    }
    const sides = /^(\d+)x(\d+)$/.exec(String(event[2]))?.slice(1) ?? [];
    const [width, height] = sides.map((side) => Math.min(Number(side), longestSide));
    return width && height ? `${JSON.stringify([event[0], 'r', `${width}x${height}`])}\n` : '';
  });
}

function end(text: string, from: number): number {
  const at = text.indexOf('\n', from);
  return at < 0 ? text.length : at;
}

function parse(line: string): unknown {
  try {
    return JSON.parse(line) as unknown;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0;
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) {
    return value.map(textOf).join(' ');
  }
  if (typeof value === 'boolean') {
    return value ? 'yes' : 'no';
  }
  return typeof value === 'string' || typeof value === 'number' ? String(value).slice(0, 20_000) : '';
}
