// Reads metrics in the text format of Prometheus.

export interface Series {
  labels: Record<string, string>;
  value: number;
}

export type Metrics = Map<string, Series[]>;

// metricsPath needs the right to read metrics.
export const metricsPath = '/bridge/metrics';

const mostSeries = 20_000;

// parse returns the series of each metric. Lines that it does not understand are dropped.
export function parse(text: string): Metrics {
  const all: Metrics = new Map();
  let count = 0;
  for (const line of text.split('\n')) {
    const [, name, labels, value] = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line) ?? [];
    if (name === undefined || value === undefined || ++count > mostSeries) {
      continue;
    }
    const series = { labels: parseLabels(labels ?? ''), value: value === '+Inf' ? Infinity : Number(value) };
    const known = all.get(name);
    if (known) {
      known.push(series);
    } else {
      all.set(name, [series]);
    }
  }
  return all;
}

function parseLabels(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  for (const [, name, value] of text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
    labels[name ?? ''] = (value ?? '').replaceAll(/\\(.)/g, (_, c: string) => (c === 'n' ? '\n' : c));
  }
  return labels;
}

// sum adds all series of a metric.
export function sum(metrics: Metrics, name: string): number {
  return (metrics.get(name) ?? []).reduce((total, s) => total + s.value, 0);
}

// sumBy adds the series of a metric for each value of a label, the largest sum first.
export function sumBy(metrics: Metrics, name: string, label: string): [string, number][] {
  const sums = new Map<string, number>();
  for (const s of metrics.get(name) ?? []) {
    const key = s.labels[label] ?? '';
    sums.set(key, (sums.get(key) ?? 0) + s.value);
  }
  return [...sums].filter(([, value]) => value > 0).sort(([, a], [, b]) => b - a);
}

// quantile estimates a quantile of a histogram as PromQL's histogram_quantile does. Series before are subtracted, so
// that the result covers only the time between.
export function quantile(
  q: number, now: Metrics, before: Metrics | undefined, name: string, target: string,
): number | undefined {
  const buckets = (metrics: Metrics | undefined) => new Map((metrics?.get(`${name}_bucket`) ?? [])
    .filter((s) => s.labels['target'] === target)
    .map((s) => [s.labels['le'] === '+Inf' ? Infinity : Number(s.labels['le']), s.value]));
  const old = buckets(before);
  const list = [...buckets(now)]
    .map(([le, value]) => [le, value - (old.get(le) ?? 0)] as const)
    .sort(([a], [b]) => a - b);
  const total = list[list.length - 1]?.[1] ?? 0;
  if (total <= 0) {
    return undefined;
  }
  let lower = 0;
  let below = 0;
  for (const [le, value] of list) {
    if (value >= q * total) {
      return le === Infinity ? lower : lower + ((le - lower) * (q * total - below)) / Math.max(1e-9, value - below);
    }
    [lower, below] = [le, value];
  }
  return lower;
}
