// The terminal emulator.
import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import xtermCSS from '@xterm/xterm/css/xterm.css' with { type: 'text' };
import { adopt } from '../../ui/sheet.ts';
import { adaptDocument } from './document.ts';

adopt(xtermCSS);

const scrollback = 10_000;
// mostWaiting is the number of bytes that wait to be shown. Browsers cannot slow down the sender of a websocket, and
// xterm.js throws an error when 50 MB wait.
const mostWaiting = 16 << 20;

// modesOff ends what a session may have left on: the alternate screen, mouse reports, bracketed paste, a hidden cursor.
const modesOff = ['?47l', '?1000l', '?1002l', '?1003l', '?1006l', '?2004l', '!p', '?25h', '0m']
  .map((mode) => `\u001b[${mode}`).join('');

export interface Size {
  columns: number;
  rows: number;
}

export interface ScreenHandler {
  onInput: (input: string | Uint8Array) => void;
  onResize: (size: Size) => void;
  onLeave: () => void; // the user wants to leave the terminal by the keyboard
}

export class Screen {
  readonly #terminal: Terminal;
  readonly #fit = new FitAddon();
  readonly #observer: ResizeObserver;
  readonly #restoreDocument = adaptDocument();
  #waiting = 0; // bytes that are not yet shown
  #missing = 0; // bytes that were dropped since the last note

  constructor(box: HTMLElement, handler: ScreenHandler) {
    this.#terminal = new Terminal({
      scrollback, disableStdin: true, cursorBlink: false, minimumContrastRatio: 4.5,
      fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace", fontSize: 13,
      theme: { background: '#12171e', foreground: '#e3e8ef' },
      linkHandler: { activate: () => undefined }, // a command must not lead the user to a page of its choice
    });
    this.#terminal.loadAddon(this.#fit);
    this.#terminal.open(box);
    this.#terminal.onData(handler.onInput);
    this.#terminal.onBinary((data) => handler.onInput(Uint8Array.from(data, (c) => c.charCodeAt(0))));
    this.#terminal.onResize(({ cols, rows }) => handler.onResize({ columns: cols, rows }));
    this.#terminal.attachCustomKeyEventHandler((event) => this.#onKey(event, handler));
    this.#observer = new ResizeObserver(() => this.#fit.fit());
    this.#observer.observe(box);
    this.#fit.fit();
  }

  // onKey returns false for keys that the browser or the console handles.
  #onKey(event: KeyboardEvent, handler: ScreenHandler): boolean {
    const isControlShift = event.ctrlKey && event.shiftKey && !event.altKey;
    if (isControlShift && event.code === 'KeyC') {
      if (event.type === 'keydown') {
        event.preventDefault();
        void this.copy();
      }
      return false;
    }
    if (isControlShift && event.code === 'KeyV') {
      return false; // the browser pastes
    }
    if (event.ctrlKey && event.key === 'F6') {
      if (event.type === 'keydown') {
        handler.onLeave();
      }
      return false;
    }
    return true;
  }

  get size(): Size {
    return { columns: this.#terminal.cols, rows: this.#terminal.rows };
  }

  // begin prepares the terminal for a session. Earlier output stays above.
  begin(hasTTY: boolean): void {
    this.#terminal.write(modesOff);
    this.#terminal.options.convertEol = !hasTTY;
    this.#terminal.options.disableStdin = !hasTTY;
    this.#terminal.focus();
  }

  // end refuses input, and writes a line about the end of the session.
  end(text: string): void {
    this.#terminal.options.disableStdin = true;
    this.#noteMissing();
    this.#terminal.write(`${modesOff}\r\n\u001b[2m── ${text} ──\u001b[0m\r\n`);
  }

  // write shows output. When too much waits, it drops output until half of that is shown, and writes a line about it.
  write(bytes: Uint8Array): void {
    if (this.#missing > 0 || this.#waiting + bytes.length > mostWaiting) {
      this.#missing += bytes.length;
      return;
    }
    this.#waiting += bytes.length;
    this.#terminal.write(bytes, () => {
      this.#waiting -= bytes.length;
      if (this.#waiting <= mostWaiting / 2) {
        this.#noteMissing();
      }
    });
  }

  #noteMissing(): void {
    if (this.#missing > 0) {
      const text = `${this.#missing} bytes are missing here: they came faster than this page shows them`;
      this.#terminal.write(`\r\n\u001b[0;2m── ${text} ──\u001b[0m\r\n`);
      this.#missing = 0;
    }
  }

  async copy(): Promise<void> {
    const text = this.#terminal.getSelection();
    if (text !== '') {
      await navigator.clipboard.writeText(text);
    }
  }

  async paste(): Promise<void> {
    this.#terminal.paste(await navigator.clipboard.readText());
    this.#terminal.focus();
  }

  dispose(): void {
    this.#observer.disconnect();
    this.#terminal.dispose();
    this.#restoreDocument();
  }
}
