// A log of one container that continues after lost connections and restarts.
import { signal } from '@preact/signals';
import { isAborted, NetworkError, request, sleep, StatusError, stream } from '../../api/client.ts';
import { clusterBase, resourcePath, type Params } from '../../api/paths.ts';
import type { ObjectMeta } from '../../api/types.ts';
import { messageOf } from '../../ui/Notice.tsx';
import { Position, Resumption, Splitter, type Line } from './line.ts';
import { printable } from './printable.ts';

export interface Container {
  cluster: string;
  namespace: string;
  pod: string;
  container: string;
}

export const containerKey = (c: Container) => [c.cluster, c.namespace, c.pod, c.container].join('/');

// Entry is a line of the log, or a note of the console about it.
export interface Entry {
  id: number;
  time: string;
  text: string;
  isNote: boolean;
  lower?: string; // of text, for the search
}

export type Phase = 'connecting' | 'following' | 'waiting' | 'ended' | 'failed';

export interface State {
  phase: Phase;
  text: string;
  error?: unknown;
}

export interface ReadOptions {
  follow: boolean;
  previous: boolean;
  tail: number;
}

interface ContainerState {
  running?: { startedAt?: string };
  waiting?: { reason?: string; message?: string };
  terminated?: { reason?: string; exitCode: number; signal?: number };
}

interface ContainerStatus {
  name: string;
  containerID?: string;
  restartCount: number;
  state?: ContainerState;
  lastState?: ContainerState;
}

export interface ContainerSpec {
  name: string;
  stdin?: boolean;
  tty?: boolean;
}

export interface Pod {
  metadata: ObjectMeta;
  spec: {
    containers: ContainerSpec[];
    initContainers?: ContainerSpec[];
    ephemeralContainers?: ContainerSpec[];
    restartPolicy?: string;
  };
  status?: {
    phase?: string;
    containerStatuses?: ContainerStatus[];
    initContainerStatuses?: ContainerStatus[];
    ephemeralContainerStatuses?: ContainerStatus[];
  };
}

// podPath returns the path of a pod, or of one of its subresources.
export const podPath = (c: Pick<Container, 'cluster' | 'namespace' | 'pod'>, subresource?: string) => resourcePath({
  base: clusterBase(c.cluster), group: '', version: 'v1', resource: 'pods', namespace: c.namespace, name: c.pod,
  subresource,
});

// statusOf returns the status of a container of any sort.
export function statusOf(pod: Pod, container: string): ContainerStatus | undefined {
  const s = pod.status;
  return [s?.containerStatuses, s?.initContainerStatuses, s?.ephemeralContainerStatuses]
    .flatMap((all) => all ?? []).find((one) => one.name === container);
}

// Run is one start of a container.
interface Run {
  pod: string; // uid
  id: string;
  restarts: number;
}

const firstPause = 1_000;
const longestPause = 30_000;
const mostLines = 5_000;
const mostCharacters = 8 << 20;
const renderPause = 100;

// endOf describes how a container ended, or returns an empty text.
export function endOf(state: ContainerState | undefined): string {
  const t = state?.terminated;
  if (!t) {
    return '';
  }
  return `${t.reason ?? 'ended'}, exit status ${t.exitCode}${t.signal ? `, signal ${t.signal}` : ''}`;
}

const timeOfDay = () => new Date().toLocaleTimeString([], { hour12: false });

export class Follower {
  readonly container: Container;
  readonly state = signal<State>({ phase: 'connecting', text: 'Connecting…' });
  // version changes when entries have changed, at most ten times a second.
  readonly version = signal(0);
  entries: Entry[] = [];
  dropped = 0; // lines that are no longer kept

  readonly #options: ReadOptions;
  readonly #ending = new AbortController();
  #position = new Position();
  #run: Run | undefined;
  #isLater = false; // #run began after the first lines were read
  #isComplete = false; // the log of #run was read to its end
  #characters = 0;
  #next = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #pause = firstPause;
  #lostAt: number | undefined;
  #wake = new AbortController();

  constructor(container: Container, options: ReadOptions) {
    this.container = container;
    this.#options = options;
  }

  start(): void {
    addEventListener('online', this.retry);
    void this.#follow();
  }

  stop(): void {
    removeEventListener('online', this.retry);
    this.#ending.abort();
    this.#wake.abort();
    clearTimeout(this.#timer);
  }

  // retry ends the pause before the next try.
  retry = (): void => {
    const { phase } = this.state.value;
    this.#pause = firstPause;
    if (phase === 'failed') {
      this.#say('connecting', 'Connecting…'); // a second call starts no second reader
      void this.#follow();
    } else {
      this.#wake.abort();
    }
  };

  async #follow(): Promise<void> {
    const { signal: ending } = this.#ending;
    while (!ending.aborted) {
      try {
        if (await this.#once()) {
          return;
        }
      } catch (error) {
        if (ending.aborted || isAborted(error)) {
          return;
        }
        if (this.#isFinal(error)) {
          return;
        }
      }
      this.#wake = new AbortController();
      await sleep(this.#pause, this.#wake.signal);
      this.#pause = Math.min(2 * this.#pause, longestPause);
    }
  }

  // isFinal shows an error, and reports whether a new try is of no use.
  #isFinal(error: unknown): boolean {
    const text = messageOf(error);
    const isRefused = error instanceof StatusError && error.code < 500 && ![408, 425, 429].includes(error.code);
    if (isRefused && error.code === 404 && this.#run) {
      this.#end('The pod was deleted.');
      return true;
    }
    const isStarting = isRefused && error.code === 400 && /waiting to start|PodInitializing/.test(text);
    if (isStarting && this.#options.follow) {
      this.#say('waiting', text);
      return false;
    }
    if (isRefused) {
      this.state.value = { phase: 'failed', text, error };
      return true;
    }
    if (this.#position.last && this.#lostAt === undefined) {
      this.#lostAt = Date.now();
      this.#note(`The connection was lost at ${timeOfDay()}.`);
    }
    this.#say('waiting', `${error instanceof NetworkError ? 'The gateway does not answer' : text}. Trying again…`);
    return false;
  }

  // once reads the log until it ends, and reports whether nothing more can come.
  async #once(): Promise<boolean> {
    const { follow, previous, tail } = this.#options;
    if (!follow) {
      await this.#read({ previous, tailLines: tail });
      this.#end(previous ? 'The log of the previous run.' : 'All lines at the time of the request.');
      return true;
    }
    let pod = await this.#pod();
    await this.#noteRun(pod);
    if (!this.#isComplete) {
      const first = { tailLines: this.#isLater ? mostLines : tail };
      await this.#read(this.#position.since ? { sinceTime: this.#position.since } : first);
      pod = await this.#pod();
    }
    const status = statusOf(pod, this.container.container);
    const isSameRun = status === undefined || status.containerID === undefined || status.containerID === this.#run?.id;
    const isOver = pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed';
    if (isSameRun && status?.state?.terminated && (isOver || pod.spec.restartPolicy === 'Never')) {
      this.#end(`The container ended: ${endOf(status.state)}.`);
      return true;
    }
    if (isSameRun && status?.state && !status.state.running) {
      this.#isComplete = true;
      const { waiting } = status.state;
      this.#say('waiting', waiting ? `${waiting.reason ?? 'Waiting'}: ${waiting.message ?? ''}` : endOf(status.state));
    } else {
      this.#say('connecting', 'The stream ended. Connecting again…');
    }
    return false;
  }

  #pod(): Promise<Pod> {
    return request<Pod>(podPath(this.container), { signal: this.#ending.signal, onRefused: this.#refused });
  }

  // noteRun notices that the container was started again, and reads what the run before printed last.
  async #noteRun(pod: Pod): Promise<void> {
    const status = statusOf(pod, this.container.container);
    const now: Run = {
      pod: pod.metadata.uid ?? '', id: status?.containerID ?? '', restarts: status?.restartCount ?? 0,
    };
    const before = this.#run;
    if (before === undefined || before.id === '' || now.id === '' || before.id === now.id) {
      this.#run = now.id === '' && before ? before : now;
      return;
    }
    if (before.pod !== now.pod) {
      this.#note('The pod was replaced by a new one of the same name. What the old one printed last may be missing.');
    } else {
      if (!this.#isComplete && this.#position.since && now.restarts === before.restarts + 1) {
        await this.#read({ previous: true, sinceTime: this.#position.since }).catch((error: unknown) => {
          if (!(error instanceof StatusError)) {
            throw error;
          }
          this.#note(`What the run before printed last is missing: ${error.message}`);
        });
      } else if (!this.#isComplete || now.restarts !== before.restarts + 1) {
        this.#note('Lines of the runs before may be missing.');
      }
      const end = endOf(status?.lastState) || 'the reason is unknown';
      this.#note(`The container was started again (restart ${now.restarts}). The run before: ${end}.`);
    }
    this.#run = now;
    this.#position = new Position();
    this.#isLater = true;
    this.#isComplete = false;
  }

  async #read(params: { previous?: boolean; sinceTime?: string; tailLines?: number }): Promise<void> {
    const splitter = new Splitter();
    const resumption = new Resumption(this.#position);
    const query: Params = {
      container: this.container.container, timestamps: true,
      follow: (this.#options.follow && !params.previous) || undefined, ...params, previous: params.previous || undefined,
    };
    const body = await stream(podPath(this.container, 'log'), {
      params: query, signal: this.#ending.signal, onRefused: this.#refused,
    });
    this.#say('following', this.#options.follow ? 'Following' : 'Reading');
    const reader = body.getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) {
          break;
        }
        splitter.push(value).forEach((line) => this.#add(line, resumption));
      }
    } finally {
      reader.cancel().catch(() => undefined);
    }
    const last = splitter.end();
    if (last) {
      this.#add(last, resumption);
    }
  }

  #add(line: Line, resumption: Resumption): void {
    const wasPast = resumption.isPast;
    const kind = resumption.classify(line);
    if (kind === 'gap') {
      this.#note(`Lines may be missing here: the cluster no longer has the line of ${this.#position.last?.time}.`);
      this.#lostAt = undefined;
    } else if (!wasPast && resumption.isPast && this.#lostAt !== undefined) {
      const seconds = Math.ceil((Date.now() - this.#lostAt) / 1000);
      this.#note(`Connected again after ${seconds} s. No line is missing.`);
      this.#lostAt = undefined;
    }
    if (kind === 'known') {
      return;
    }
    this.#pause = firstPause;
    this.#position.add(line);
    this.#push(line.time, printable(line.text), false);
  }

  #note(text: string): void {
    this.#push('', text, true);
  }

  #push(time: string, text: string, isNote: boolean): void {
    this.entries.push({ id: this.#next++, time, text, isNote });
    this.#characters += text.length;
    if (this.entries.length > 1.2 * mostLines || this.#characters > 1.2 * mostCharacters) {
      this.#trim();
    }
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.version.value++;
    }, renderPause);
  }

  #trim(): void {
    let from = Math.max(this.entries.length - mostLines, 0);
    for (let i = 0; i < from; i++) {
      this.#characters -= this.entries[i]?.text.length ?? 0;
    }
    while (this.#characters > mostCharacters && from < this.entries.length) {
      this.#characters -= this.entries[from]?.text.length ?? 0;
      from++;
    }
    this.entries = this.entries.slice(from);
    this.dropped += from;
  }

  #refused = (): void => this.#say('waiting', 'Waiting for a new sign-in');

  #say(phase: Phase, text: string): void {
    this.state.value = { phase, text };
  }

  #end(text: string): void {
    this.#say('ended', text);
  }
}
