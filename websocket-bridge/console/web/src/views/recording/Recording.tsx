// Plays a file of asciicast v2 that the user opens. The file stays in the browser. Parameters of the URL:
//   speed, pause (longest pause in seconds), at (seconds from the start)
import { create, type Player } from 'asciinema-player';
import playerCSS from 'asciinema-player/dist/bundle/asciinema-player.css' with { type: 'text' };
import { useEffect, useRef, useState } from 'preact/hooks';
import { setQuery, type ViewProps } from '../../router.tsx';
import { AsKubectl, quote } from '../../ui/AsKubectl.tsx';
import { useShortcuts } from '../../ui/keys.ts';
import { Notice } from '../../ui/Notice.tsx';
import { adopt } from '../../ui/sheet.ts';
import { readCast, type Cast } from './cast.ts';
import css from './recording.css' with { type: 'text' };

adopt(playerCSS);
adopt(css);

const speeds = [0.5, 1, 2, 4, 8];

interface Settings {
  speed: number;
  pause: number | undefined;
  at: number;
}

function readSettings(query: URLSearchParams): Settings {
  const numberOf = (name: string) => {
    const value = Number(query.get(name) ?? NaN);
    return Number.isFinite(value) && value > 0 ? value : undefined;
  };
  return { speed: numberOf('speed') ?? 1, pause: numberOf('pause'), at: numberOf('at') ?? 0 };
}

// commandOf returns the command that plays the same recording from the gateway's store.
function commandOf(id: string, s: Settings): string {
  return ['clusterpass recording play', s.speed !== 1 && `--speed ${s.speed}`,
    s.pause !== undefined && `--max-pause ${s.pause}s`, s.at > 0 && `--from ${s.at}s`, '--', quote(id),
  ].filter((part) => part).join(' ');
}

export default function RecordingView({ query }: ViewProps) {
  const settings = readSettings(query);
  const [opened, setOpened] = useState<{ name: string; cast: Cast; count: number }>();
  const [error, setError] = useState<unknown>();
  const [isOver, setOver] = useState(false);
  const player = useRef<Player | undefined>(undefined);

  const open = async (file: File | undefined) => {
    if (!file) {
      return;
    }
    try {
      const cast = await readCast(file);
      setError(undefined);
      setOpened((before) => ({ name: file.name, cast, count: (before?.count ?? 0) + 1 }));
    } catch (failed) {
      setOpened(undefined);
      setError(failed);
    }
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    void open(event.dataTransfer?.files[0]);
  };
  const keep = () => {
    const at = Math.floor(player.current?.getCurrentTime() ?? 0);
    setQuery({ at: at > 0 ? String(at) : undefined });
  };
  return (
    <>
      <h1>Recording</h1>
      <div class={`recording-open${isOver ? ' is-over' : ''}`} onDrop={drop} onDragLeave={() => setOver(false)}
        onDragOver={(e) => { e.preventDefault(); setOver(true); }}>
        <label>
          Open or drop a file of <code>clusterpass recording export ID FILE</code>. It stays in this browser.
          <input type="file" accept=".cast,.json,.txt,application/x-asciicast"
            onChange={(e) => void open(e.currentTarget.files?.[0])} />
        </label>
      </div>
      {error !== undefined && <Notice error={error} title="The file cannot be played." />}
      <div class="toolbar">
        <label>Speed{' '}
          <select value={String(settings.speed)} onChange={(e) => setQuery({
            speed: e.currentTarget.value === '1' ? undefined : e.currentTarget.value,
          })}>
            {[...new Set([...speeds, settings.speed])].sort((a, b) => a - b)
              .map((s) => <option key={s} value={String(s)}>{s}×</option>)}
          </select>
        </label>
        <label>Longest pause in seconds{' '}
          <input class="recording-pause" type="number" min={0.1} step={0.1} value={settings.pause ?? ''}
            placeholder="none" onChange={(e) => setQuery({ pause: e.currentTarget.value || undefined })} />
        </label>
        {opened && <button type="button" onClick={keep}>Keep this position in the URL</button>}
        {opened?.cast.id && <AsKubectl command={commandOf(opened.cast.id, settings)} />}
      </div>
      {opened && (
        <>
          <Playing key={opened.count} cast={opened.cast} settings={settings}
            onPlayer={(made) => { player.current = made; }} />
          <h2>{opened.name}</h2>
          <p class="warn">
            The file has no signatures. To prove that a recording is complete, use{' '}
            <code>clusterpass recording verify</code>.
          </p>
          <dl class="recording-facts">
            {opened.cast.facts.flatMap((f) => [<dt key={`${f.name}:`}>{f.name}</dt>, <dd key={f.name}>{f.value}</dd>])}
          </dl>
        </>
      )}
    </>
  );
}

function Playing(props: { cast: Cast; settings: Settings; onPlayer: (player: Player | undefined) => void }) {
  const { cast, settings } = props;
  const { speed, pause } = settings;
  const box = useRef<HTMLDivElement>(null);
  const player = useRef<Player | undefined>(undefined);
  const reached = useRef(settings.at); // kept while the player is made again with another speed
  const [state, setState] = useState('');
  useEffect(() => {
    const made = create({ data: cast.text, parser: 'asciicast' }, box.current as HTMLDivElement, {
      speed, fit: 'width', startAt: reached.current, terminalFontFamily: "ui-monospace, 'DejaVu Sans Mono', monospace",
      preload: true, controls: true, cursorMode: 'steady', ...(pause !== undefined && { idleTimeLimit: pause }),
    });
    made.addEventListener('playing', () => setState('Playing.'));
    made.addEventListener('pause', () => setState('Paused.'));
    made.addEventListener('ended', () => setState('The end of the recording.'));
    player.current = made;
    props.onPlayer(made);
    setState('');
    return () => {
      reached.current = made.getCurrentTime();
      player.current = undefined;
      props.onPlayer(undefined);
      made.dispose();
    };
  }, [cast, speed, pause]);
  useShortcuts([{ keys: 'p', description: 'Play the recording', run: () => void player.current?.play() }]);
  return (
    <>
      <div class="recording-player" ref={box} />
      <p role="status" class="muted">{state}</p>
    </>
  );
}
