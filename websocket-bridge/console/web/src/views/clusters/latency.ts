// Latency of requests from this page to each cluster: its version, every few seconds. Samples are kept until another
// user signs in.
import { signal, type Signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { request } from '../../api/client.ts';
import { clusterBase } from '../../api/paths.ts';
import { isExpired, userName } from '../../api/session.ts';

export interface Sample {
  time: number;
  ms: number | undefined; // undefined if the request failed
}

export const interval = 5_000;
const timeout = 10_000;
const most = 120;
const atOnce = 6;
const mostClusters = 200;

const samples = new Map<string, Signal<Sample[]>>();
userName.subscribe(() => samples.clear());

export function samplesOf(cluster: string): Signal<Sample[]> {
  let found = samples.get(cluster);
  if (!found) {
    found = signal<Sample[]>([]);
    samples.set(cluster, found);
  }
  return found;
}

async function measure(cluster: string, signal: AbortSignal): Promise<void> {
  const began = performance.now();
  let ms: number | undefined;
  try {
    await request(`${clusterBase(cluster)}/version`, {
      signal: AbortSignal.any([signal, AbortSignal.timeout(timeout)]), most: 64 << 10,
    });
    ms = performance.now() - began;
  } catch {
    if (signal.aborted || isExpired.value) {
      return;
    }
  }
  const all = samplesOf(cluster);
  all.value = [...all.value.slice(1 - most), { time: Date.now(), ms }];
}

async function measureAll(clusters: string[], signal: AbortSignal): Promise<void> {
  const queue = clusters.slice(0, mostClusters);
  const worker = async () => {
    for (let next = queue.shift(); next !== undefined && !signal.aborted; next = queue.shift()) {
      await measure(next, signal);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

// useLatency measures the clusters while the component is shown, the page is visible and the user is signed in.
export function useLatency(clusters: string[]): void {
  useEffect(() => {
    const ended = new AbortController();
    let isRunning = false;
    const run = async () => {
      if (isRunning || document.hidden || isExpired.value) {
        return;
      }
      isRunning = true;
      await measureAll(clusters, ended.signal);
      isRunning = false;
    };
    void run();
    const timer = setInterval(run, interval);
    return () => {
      clearInterval(timer);
      ended.abort();
    };
  }, [clusters.join('\n')]);
}

// percentile returns the value below which a share of the successful samples lies.
export function percentile(list: Sample[], share: number): number | undefined {
  const sorted = list.flatMap((s) => (s.ms === undefined ? [] : [s.ms])).sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}
