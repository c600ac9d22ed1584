// A session of exec or attach over the websocket protocol v5.channel.k8s.io. The first byte of a message is a channel.
import { signal } from '@preact/signals';
import { request, socket, StatusError } from '../../api/client.ts';
import type { Status } from '../../api/types.ts';

const protocol = 'v5.channel.k8s.io';
const stdin = 0;
const stdout = 1;
const stderr = 2;
const errors = 3;
const resize = 4;

// longestInput is the length of a message. Some API servers read each websocket frame as a message.
const longestInput = 16_384;

export type SessionState =
  | { phase: 'connecting' }
  | { phase: 'open' }
  // code is null if the command did not run or its exit status is unknown.
  | { phase: 'ended'; code: number | null; message: string }
  | { phase: 'refused'; error: unknown }
  // lost means that the connection ended before the command did.
  | { phase: 'lost'; at: Date; reason: string; unanswered: number };

export interface SessionHandler {
  onOutput: (bytes: Uint8Array) => void;
}

const encoder = new TextEncoder();

export class Session {
  readonly state = signal<SessionState>({ phase: 'connecting' });
  readonly #path: string;
  readonly #socket: WebSocket;
  readonly #handler: SessionHandler;
  #size: { columns: number; rows: number };
  #unanswered = 0; // bytes of input since the last output
  #isOurs = false; // close was called

  // path is that of the subresource exec or attach, with its query.
  constructor(path: string, size: { columns: number; rows: number }, handler: SessionHandler) {
    this.#path = path;
    this.#size = size;
    this.#handler = handler;
    this.#socket = socket(path, [protocol]);
    this.#socket.addEventListener('open', () => {
      this.state.value = { phase: 'open' };
      this.resize(this.#size);
    });
    this.#socket.addEventListener('message', (event: MessageEvent<ArrayBuffer>) => {
      this.#receive(new Uint8Array(event.data));
    });
    this.#socket.addEventListener('close', (event) => this.#closed(event));
  }

  #receive(message: Uint8Array): void {
    const content = message.subarray(1);
    switch (message[0]) {
      case stdout:
      case stderr:
        if (content.length > 0) {
          this.#unanswered = 0;
          this.#handler.onOutput(content);
        }
        break;
      case errors:
        this.state.value = { phase: 'ended', ...exitOf(new TextDecoder().decode(content)) };
        break;
    }
  }

  #closed(event: CloseEvent): void {
    const { phase } = this.state.value;
    if (this.#isOurs || phase === 'ended') {
      return;
    }
    if (phase === 'connecting') {
      void this.#explain();
      return;
    }
    this.state.value = {
      phase: 'lost', at: new Date(), reason: event.reason || (event.code === 1006 ? '' : `close code ${event.code}`),
      unanswered: this.#unanswered,
    };
  }

  // explain asks for the reason of a refused handshake, since browsers do not show it. Without an upgrade, no command
  // runs.
  async #explain(): Promise<void> {
    let error: unknown = new Error('the websocket was refused; start the session again. If that fails, a proxy ' +
      'before the gateway may not support websockets');
    try {
      await request(this.#path);
    } catch (failed) {
      if (!(failed instanceof StatusError && failed.code === 400)) {
        error = failed;
      }
    }
    this.state.value = { phase: 'refused', error };
  }

  send(input: string | Uint8Array): void {
    const bytes = typeof input === 'string' ? encoder.encode(input) : input;
    if (this.state.value.phase !== 'open') {
      return;
    }
    this.#unanswered += bytes.length;
    for (let at = 0; at < bytes.length; at += longestInput) {
      this.#write(stdin, bytes.subarray(at, at + longestInput));
    }
  }

  resize(size: { columns: number; rows: number }): void {
    this.#size = size;
    if (this.state.value.phase === 'open') {
      this.#write(resize, encoder.encode(JSON.stringify({ Width: size.columns, Height: size.rows })));
    }
  }

  #write(channel: number, content: Uint8Array): void {
    const message = new Uint8Array(content.length + 1);
    message[0] = channel;
    message.set(content, 1);
    this.#socket.send(message);
  }

  close(): void {
    this.#isOurs = true;
    this.#socket.close(1000);
  }
}

// exitOf reads the Status that ends a session.
function exitOf(text: string): { code: number | null; message: string } {
  try {
    const status = JSON.parse(text) as Status & { status?: string };
    if (status.status === 'Success') {
      return { code: 0, message: '' };
    }
    const exit = status.details?.causes?.find((cause) => cause.reason === 'ExitCode')?.message;
    const code = exit !== undefined && /^\d+$/.test(exit) ? Number(exit) : null;
    return { code, message: status.message ?? '' };
  } catch {
    return { code: null, message: text.slice(0, 500) };
  }
}
