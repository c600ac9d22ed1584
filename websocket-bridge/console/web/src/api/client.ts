// Requests to the gateway, with the credential of the session.
import { signal } from '@preact/signals';
import { authorize, isExpired, session, signedIn, socketProtocols, type Session } from './session.ts';
import { withParams, type Params } from './paths.ts';
import type { Status, Table, WatchEvent } from './types.ts';

// StatusError is a response of the gateway or of a member cluster that reports a failure.
export class StatusError extends Error {
  readonly code: number;
  readonly reason: string;
  readonly status: Status | undefined;

  constructor(code: number, reason: string, message: string, status?: Status) {
    super(message);
    this.name = 'StatusError';
    this.code = code;
    this.reason = reason;
    this.status = status;
  }
}

// NetworkError means that no response arrived.
export class NetworkError extends Error {
  constructor(cause: unknown) {
    super('the gateway does not answer', { cause });
    this.name = 'NetworkError';
  }
}

// isConnected is false after a request without a response, until a response arrives.
export const isConnected = signal(true);

const requestTimeout = 60_000;
// tableType is the Accept header for the columns of the server.
export const tableType = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';

export interface RequestOptions extends Omit<RequestInit, 'signal'> {
  params?: Params | undefined;
  signal?: AbortSignal | undefined;
  accept?: string | undefined;
  // onWarnings gets the warnings of the response, such as the clusters of the fleet that do not answer.
  onWarnings?: ((warnings: string[]) => void) | undefined;
  // withoutSession sends no token of the session.
  withoutSession?: boolean | undefined;
  most?: number | undefined; // the maximum size of the response's body in bytes
  // onRefused is called when the gateway has refused the credential, and the call waits for a new sign-in.
  onRefused?: ((error: unknown) => void) | undefined;
  // json is the body, as JSON. Its content type is application/json unless headers name another.
  json?: unknown;
}

// isAborted reports whether an error comes from an AbortSignal.
export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}

// send returns a response with a code below 300. It throws StatusError, NetworkError or, if the caller aborts, an
// AbortError.
async function send(path: string, options: RequestOptions = {}): Promise<Response> {
  const { params, json, accept, signal: aborted, headers, onWarnings, withoutSession, ...init } = options;
  const all = new Headers(headers);
  all.set('Accept', accept ?? 'application/json');
  if (json !== undefined) {
    init.body = JSON.stringify(json);
    init.method ??= 'POST';
    if (!all.has('Content-Type')) {
      all.set('Content-Type', 'application/json');
    }
  }
  if (!withoutSession && !all.has('Authorization')) {
    await authorize(all);
  }
  let response: Response;
  try {
    response = await fetch(withParams(path, params), {
      cache: 'no-store', credentials: 'same-origin', ...init, headers: all, ...(aborted && { signal: aborted }),
    });
  } catch (error) {
    if (aborted?.aborted) {
      throw new DOMException('the request was aborted', 'AbortError');
    }
    isConnected.value = false;
    throw new NetworkError(error);
  }
  isConnected.value = true;
  onWarnings?.(warningsOf(response.headers.get('Warning') ?? ''));
  if (!response.ok) {
    throw await failure(response);
  }
  return response;
}

const reviewPath = '/apis/authentication.k8s.io/v1/selfsubjectreviews';

// whoAmI returns the name of the caller, by the session unless options name another credential. It throws a StatusError
// of code 401 if the gateway refuses the credential.
export async function whoAmI(options: Pick<RequestOptions, 'headers' | 'withoutSession'> = {}): Promise<string> {
  const review = await request<{ status: { userInfo: { username: string } } }>(reviewPath, {
    json: { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' },
    ...options,
  });
  return review.status.userInfo.username;
}

// renewed makes a call, and again after a new sign-in if the gateway has refused the credential of the session. A call
// that writes fails instead, so that the user decides whether to repeat it.
async function renewed<T>(path: string, options: RequestOptions, call: () => Promise<T>): Promise<T> {
  const isRead = options.json === undefined && options.body === undefined && (options.method ?? 'GET') === 'GET';
  for (;;) {
    const before = session.value;
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof StatusError && error.code === 401) || path === reviewPath || before === undefined) {
        throw error;
      }
      if (session.value === before && !isExpired.value) {
        await checkSession(before);
      }
      if (!isRead || (session.value === before && !isExpired.value)) {
        throw error;
      }
      if (isExpired.value) {
        options.onRefused?.(error);
      }
      await signedIn(options.signal);
      if (session.value?.user !== before.user) {
        throw error; // the answer would be for another user
      }
    }
  }
}

let checking: Promise<void> | undefined;

// checkSession finds out whether the gateway has refused the credential. A member cluster may answer 401, too.
function checkSession(checked: Session): Promise<void> {
  checking ??= whoAmI().then(
    () => undefined,
    (error: unknown) => {
      isExpired.value ||= session.value === checked && error instanceof StatusError && error.code === 401;
    },
  ).finally(() => {
    checking = undefined;
  });
  return checking;
}

const mostWarnings = 100;

// warningsOf returns the texts of a Warning header, such as: 299 - "text".
function warningsOf(header: string): string[] {
  const texts = [...header.matchAll(/\d{3} \S+ "((?:[^"\\]|\\.)*)"/g)]
    .map(([, text]) => (text ?? '').replaceAll(/\\(.)/g, '$1'));
  return [...new Set(texts)].slice(0, mostWarnings);
}

// The maximum sizes of bodies in bytes. A member may send a body that does not end.
const mostOfError = 64 << 10;
const mostOfBody = 128 << 20;

// bodyOf returns the body as text, or the first most bytes of it.
async function bodyOf(response: Response, most: number): Promise<{ text: string; isCut: boolean }> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let text = '';
  for (let bytes = 0; reader;) {
    const { done, value } = await reader.read();
    if (done) {
      break;
    }
    bytes += value.length;
    text += decoder.decode(value, { stream: true });
    if (bytes >= most) {
      reader.cancel().catch(() => undefined);
      return { text, isCut: true };
    }
  }
  return { text: text + decoder.decode(), isCut: false };
}

async function wholeBody(response: Response, most = mostOfBody): Promise<string> {
  const { text, isCut } = await bodyOf(response, most);
  if (isCut) {
    throw tooLarge(most);
  }
  return text;
}

function tooLarge(most: number): Error {
  return new Error(`the response has more than ${most} bytes; use kubectl`);
}

async function failure(response: Response): Promise<StatusError> {
  const { text } = await bodyOf(response, mostOfError).catch(() => ({ text: '' }));
  try {
    const status = JSON.parse(text) as Status;
    if (status.kind === 'Status') {
      return statusError(status, response.status);
    }
  } catch {
    // not JSON: an application or a proxy sent it
  }
  return new StatusError(response.status, '', text.slice(0, 500) || response.statusText || `HTTP ${response.status}`);
}

function statusError(status: Status, code = 500): StatusError {
  return new StatusError(status.code ?? code, status.reason ?? '', status.message ?? '', status);
}

function limited(aborted?: AbortSignal): AbortSignal {
  const timeout = AbortSignal.timeout(requestTimeout);
  return aborted ? AbortSignal.any([aborted, timeout]) : timeout;
}

// text returns the body of a response. It ends after a minute, unless it waits for a new sign-in.
export function text(path: string, options: RequestOptions = {}): Promise<string> {
  return renewed(path, options, async () => {
    const response = await send(path, { accept: '*/*', ...options, signal: limited(options.signal) });
    return wholeBody(response, options.most);
  });
}

// request returns the JSON of a response. It ends as text does.
export async function request<T>(path: string, options: RequestOptions = {}): Promise<T> {
  return JSON.parse(await text(path, { ...options, accept: options.accept ?? 'application/json' })) as T;
}

// stream returns the body of a response as it arrives, such as a log. It has no deadline: abort signal to end it.
export async function stream(
  path: string, options: RequestOptions & { signal: AbortSignal },
): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
  const response = await renewed(path, options, () => send(path, { accept: '*/*', ...options }));
  return response.body ?? new ReadableStream({ start: (c) => c.close() });
}

// download returns the body of a response, as a file. It has no deadline: abort signal to end it.
export async function download(path: string, options: RequestOptions & { signal: AbortSignal }): Promise<Blob> {
  const { most = mostOfBody } = options;
  const reader = (await stream(path, options)).getReader();
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return new Blob(parts, { type: 'text/plain' });
    }
    parts.push(value);
    bytes += value.length;
    if (bytes > most) {
      reader.cancel().catch(() => undefined);
      throw tooLarge(most);
    }
  }
}

// socket opens a websocket below the gateway. The token of the session, if there is one, is a subprotocol.
export function socket(path: string, protocols: string[]): WebSocket {
  const url = new URL(path, location.href);
  url.protocol = url.protocol === 'http:' ? 'ws:' : 'wss:';
  const opened = new WebSocket(url, [...protocols, ...socketProtocols()]);
  opened.binaryType = 'arraybuffer';
  return opened;
}

export interface WatchOptions<T> {
  params?: Params | undefined;
  resourceVersion: string;
  asTable?: boolean | undefined;
  signal: AbortSignal;
  onEvent: (event: WatchEvent<T>) => void;
  // onState reports that the watch is open. Or it was lost and is resumed, after a new sign-in if the error is a 401.
  onState?: ((state: 'open' | 'lost', error?: unknown) => void) | undefined;
}

const firstPause = 500;
const longestPause = 15_000;

// watch delivers events until signal aborts, and then returns. It resumes after a lost connection. It throws a
// StatusError with the code 410 when the caller must list again, and other StatusErrors that a retry does not change.
export async function watch<T>(path: string, options: WatchOptions<T>): Promise<void> {
  const onRefused = (error: unknown) => options.onState?.('lost', error);
  let version = options.resourceVersion;
  let pause = firstPause;
  while (!options.signal.aborted) {
    try {
      const resumed = version;
      const body = await renewed(path, { signal: options.signal, onRefused }, () => send(path, {
        params: { ...options.params, watch: 'true', allowWatchBookmarks: 'true', resourceVersion: resumed },
        signal: options.signal, accept: options.asTable ? tableType : 'application/json',
      }));
      options.onState?.('open');
      for await (const line of lines(body.body)) {
        const event = JSON.parse(line) as WatchEvent<T> | { type: 'ERROR'; object: Status };
        if (event.type === 'ERROR') {
          throw statusError(event.object);
        }
        pause = firstPause;
        version = versionOf(event.object) ?? version;
        options.onEvent(event);
      }
    } catch (error) {
      if (options.signal.aborted) {
        return;
      }
      if (error instanceof StatusError && error.code < 500 && error.code !== 429) {
        throw error;
      }
      options.onState?.('lost', error);
    }
    await sleep(pause, options.signal);
    pause = Math.min(2 * pause, longestPause);
  }
}

function versionOf(object: unknown): string | undefined {
  const { metadata, rows } = object as Partial<Table>;
  return metadata?.resourceVersion || rows?.[0]?.object.metadata.resourceVersion;
}

// sleep resolves after ms, or at once when signal aborts.
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
      return;
    }
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done);
  });
}

const longestLine = 64 << 20;

// lines splits a body of UTF-8 at line feeds. A last line without line feed is dropped: the stream broke off there.
export async function* lines(body: ReadableStream<Uint8Array<ArrayBuffer>> | null): AsyncGenerator<string> {
  if (!body) {
    return;
  }
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest: string[] = [];
  let length = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        return;
      }
      const parts = value.split('\n');
      for (const part of parts.slice(0, -1)) {
        rest.push(part);
        const line = rest.join('');
        rest = [];
        length = 0;
        if (line !== '') {
          yield line;
        }
      }
      const last = parts[parts.length - 1] ?? '';
      rest.push(last);
      length += last.length;
      if (length > longestLine) {
        throw new Error('a line of the stream is longer than 64 MiB');
      }
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

export interface FollowOptions<L, E> {
  params?: Params | undefined;
  asTable?: boolean | undefined;
  signal: AbortSignal;
  // onList replaces everything that was shown.
  onList: (list: L) => void;
  onEvent: (event: WatchEvent<E>) => void;
  onState?: ((state: 'open' | 'lost', error?: unknown) => void) | undefined;
}

// follow lists and watches until signal aborts, and then returns. It lists again when the server has forgotten the
// version of the watch. It throws StatusErrors that a retry does not change.
export async function follow<L extends { metadata: { resourceVersion?: string } }, E>(
  path: string, options: FollowOptions<L, E>,
): Promise<void> {
  let pause = firstPause;
  while (!options.signal.aborted) {
    try {
      const list = await request<L>(path, {
        params: options.params, signal: options.signal, accept: options.asTable ? tableType : undefined,
        onRefused: (error) => options.onState?.('lost', error),
      });
      options.onList(list);
      pause = firstPause;
      const { limit: _limit, ...params } = options.params ?? {};
      await watch<E>(path, { ...options, params, resourceVersion: list.metadata.resourceVersion ?? '' });
    } catch (error) {
      if (options.signal.aborted) {
        return;
      }
      if (error instanceof StatusError && error.code < 500 && error.code !== 410 && error.code !== 429) {
        throw error;
      }
      options.onState?.('lost', error);
      await sleep(pause, options.signal);
      pause = Math.min(2 * pause, longestPause);
    }
  }
}
