// A terminal in a container. The URL has what it opens (target.ts).
import { useEffect, useRef, useState } from 'preact/hooks';
import { isAborted, request } from '../../api/client.ts';
import { renew } from '../../api/session.ts';
import { navigate, type ViewProps, Link } from '../../router.tsx';
import { adopt } from '../../ui/sheet.ts';
import { AsKubectl } from '../../ui/AsKubectl.tsx';
import { Notice } from '../../ui/Notice.tsx';
import { urls } from '../../urls.ts';
import { podPath, type Pod } from '../logs/follower.ts';
import { createDebugContainer, debugName, endOfContainer, waitForContainer } from './debug.ts';
import { Form } from './Form.tsx';
import { Screen, type Size } from './screen.ts';
import { Session, type SessionState } from './session.ts';
import { commandOf, readTarget, sessionPath, streamsOf, targetQuery, type Target } from './target.ts';
import css from './terminal.css' with { type: 'text' };

adopt(css);

type State = SessionState | { phase: 'none' } | { phase: 'preparing'; text: string };

const timeOf = (date: Date) => date.toLocaleTimeString([], { hour12: false });

// shortEnd is the line in the terminal about the end of a session.
function shortEnd(state: SessionState, isAttach: boolean): string | undefined {
  switch (state.phase) {
    case 'ended':
      return state.code === null ? `ended: ${printableLine(state.message)}`
        : isAttach ? 'the session ended' : `exit status ${state.code}`;
    case 'lost':
      return `connection lost at ${timeOf(state.at)}`;
    case 'refused':
      return 'refused';
    default:
      return undefined;
  }
}

// printableLine removes control characters from a message of a member, which the terminal would obey.
function printableLine(text: string): string {
  return [...text].filter((c) => c >= ' ' && !(c >= '\u007f' && c <= '\u009f')).join('').slice(0, 300);
}

export default function TerminalView(props: ViewProps) {
  const target = readTarget(props);
  const { cluster, namespace, pod: name } = target;
  const [pod, setPod] = useState<Pod>();
  const [podError, setPodError] = useState<unknown>();
  const [state, setState] = useState<State>({ phase: 'none' });
  const [size, setSize] = useState<Size>();
  const [clipboardError, setClipboardError] = useState<unknown>();
  const box = useRef<HTMLDivElement>(null);
  const screen = useRef<Screen | undefined>(undefined);
  const session = useRef<Session | undefined>(undefined);
  const preparing = useRef<AbortController | undefined>(undefined);
  const leave = useRef<HTMLButtonElement>(null);

  useEffect(() => {
    const ending = new AbortController();
    setPodError(undefined);
    request<Pod>(podPath(target), { signal: ending.signal })
      .then(setPod, (error: unknown) => isAborted(error) || setPodError(error));
    const made = new Screen(box.current as HTMLDivElement, {
      onInput: (input) => session.current?.send(input),
      onResize: (changed) => {
        setSize(changed);
        session.current?.resize(changed);
      },
      onLeave: () => leave.current?.focus(),
    });
    screen.current = made;
    setSize(made.size);
    setState({ phase: 'none' });
    return () => {
      ending.abort();
      preparing.current?.abort();
      session.current?.close();
      session.current = undefined;
      made.dispose();
    };
  }, [cluster, namespace, name]);

  const isBusy = state.phase === 'open' || state.phase === 'connecting' || state.phase === 'preparing';
  useEffect(() => {
    if (!isBusy) {
      return undefined;
    }
    const ask = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener('beforeunload', ask);
    return () => removeEventListener('beforeunload', ask);
  }, [isBusy]);

  const show = (next: Target) => navigate(
    `${urls.terminal({ cluster, namespace, pod: name })}?${targetQuery(next)}`, { replace: true });

  const connect = (to: Target, streams: { hasTTY: boolean; hasInput: boolean }) => {
    const shown = screen.current;
    if (!shown) {
      return;
    }
    shown.begin(streams.hasTTY);
    const opened = new Session(sessionPath(to, streams), shown.size, { onOutput: (bytes) => shown.write(bytes) });
    session.current = opened;
    const unsubscribe = opened.state.subscribe((now) => {
      if (session.current !== opened) {
        return;
      }
      setState(now);
      const end = shortEnd(now, to.mode === 'attach');
      if (end !== undefined) {
        shown.end(end);
        queueMicrotask(() => unsubscribe());
      }
    });
  };

  const start = async () => {
    preparing.current?.abort();
    session.current?.close();
    session.current = undefined;
    const ending = new AbortController();
    preparing.current = ending;
    try {
      if (target.mode === 'exec') {
        await renew();
        ending.signal.throwIfAborted();
        connect(target, { hasTTY: target.hasTTY, hasInput: target.hasTTY });
        return;
      }
      const prepare = (text: string) => {
        ending.signal.throwIfAborted();
        setState({ phase: 'preparing', text: `${text}…` });
      };
      let to = target;
      prepare('Reading the pod');
      if (target.mode === 'debug') {
        const created = debugName();
        prepare(`Creating the container ${created}`);
        await createDebugContainer(target, created, { ...target, target: target.container });
        ending.signal.throwIfAborted(); // the user may have left this view
        to = { ...target, mode: 'attach', container: created };
        show(to); // a reload attaches to this container, and creates no other
        await waitForContainer(to, to.container, prepare, ending.signal);
      }
      const current = await request<Pod>(podPath(to), { signal: ending.signal });
      ending.signal.throwIfAborted();
      setPod(current);
      connect(to, streamsOf(current, to.container));
    } catch (error) {
      if (!ending.signal.aborted) {
        setState({ phase: 'refused', error });
      }
    }
  };

  const stop = () => {
    preparing.current?.abort();
    session.current?.close();
    session.current = undefined;
    screen.current?.end(`you ended the session at ${timeOf(new Date())}`);
    setState({ phase: 'none' });
  };
  const tryClipboard = (run: (() => Promise<void>) | undefined) =>
    run?.().then(() => setClipboardError(undefined), setClipboardError);

  return (
    <>
      <h1>Terminal: {cluster} / {namespace} / {name}</h1>
      {podError !== undefined && <Notice error={podError} title="The pod cannot be read." />}
      <Form target={target} pod={pod} isDisabled={isBusy} onChange={show} onStart={start} />
      <div class="terminal-state">
        <StateText state={state} target={target} size={size} onStart={start} />
        {isBusy && <button type="button" ref={leave} onClick={stop}>End the session</button>}
        <button type="button" onClick={() => tryClipboard(() => screen.current?.copy() ?? Promise.resolve())}
          title="Ctrl+Shift+C">Copy</button>
        <button type="button" disabled={state.phase !== 'open'} title="Ctrl+Shift+V"
          onClick={() => tryClipboard(() => screen.current?.paste() ?? Promise.resolve())}>Paste</button>
        <AsKubectl command={commandOf(target)} />
      </div>
      {clipboardError !== undefined && <Notice error={clipboardError} title="The browser refuses the clipboard." />}
      <div class="terminal-box" ref={box} />
      <p class="muted">Ctrl+F6 leaves the terminal. Ctrl+Shift+C copies, and Ctrl+Shift+V pastes.</p>
    </>
  );
}

// StateText describes the session, and offers a new one when it was lost.
function StateText(props: { state: State; target: Target; size: Size | undefined; onStart: () => void }) {
  const { state, target, size, onStart } = props;
  switch (state.phase) {
    case 'none':
      return <p role="status">No session.</p>;
    case 'preparing':
      return <p role="status">{state.text}</p>;
    case 'connecting':
      return <p role="status">Connecting…</p>;
    case 'open':
      return (
        <p role="status" class="good">
          Connected{size && `, ${size.columns} × ${size.rows}`}.
          {target.mode === 'attach' && ' If there is no prompt, press Enter.'}
        </p>
      );
    case 'ended':
      if (target.mode === 'attach' && state.code === 0) {
        return <AttachEnd target={target} />; // attach has no exit status
      }
      return (
        <p role="status" class={state.code === 0 ? '' : 'warn'}>
          {state.code === null ? `The session ended: ${state.message}`
            : `The command ended with exit status ${state.code}.`}
        </p>
      );
    case 'refused':
      return <Notice error={state.error} title="The session was refused." onRetry={onStart} />;
    case 'lost':
      return <Lost state={state} target={target} onStart={onStart} />;
  }
}

function AttachEnd({ target }: { target: Target }) {
  const [text, setText] = useState('The session ended.');
  useEffect(() => {
    const ending = new AbortController();
    endOfContainer(target, target.container, ending.signal).then(
      (end) => setText(end ? `The container ended: ${end}` : 'The session ended. The container runs on.'),
      () => undefined, // the pod may be gone
    );
    return () => ending.abort();
  }, []);
  return <p role="status">{text}</p>;
}

type LostState = Extract<SessionState, { phase: 'lost' }>;

function Lost({ state, target, onStart }: { state: LostState; target: Target; onStart: () => void }) {
  const logs = urls.logs([target]);
  return (
    <div class="notice" role="alert">
      <strong>The connection was lost at {timeOf(state.at)}{state.reason && `: ${state.reason}`}.</strong>
      {target.mode === 'attach' ? (
        <p>The container continues. What it printed since then is only in <Link href={logs}>its log</Link>.</p>
      ) : (
        <p>
          The session cannot continue. {target.hasTTY
            ? 'Its terminal hangs up, which ends the shell and what runs in it, and their state is lost.'
            : 'The command may still run, and its further output is lost.'}
        </p>
      )}
      {state.unanswered > 0 && (
        <p>
          {state.unanswered === 1 ? 'The last byte' : `The last ${state.unanswered} bytes`} that you typed had no answer,
          and may not have arrived.
        </p>
      )}
      <button type="button" class="primary" onClick={onStart}>
        {target.mode === 'attach' ? 'Attach again' : 'Start a new session'}
      </button>
    </div>
  );
}
