// Form chooses what the terminal opens. Nothing runs before the user starts it, so that a link cannot run a command.
import { useEffect, useState } from 'preact/hooks';
import { messageOf } from '../../ui/Notice.tsx';
import type { Pod } from '../logs/follower.ts';
import { joinCommand, splitCommand } from './command.ts';
import { defaultCommand, type Mode, type Target } from './target.ts';

interface Props {
  target: Target;
  pod: Pod | undefined; // undefined until it is loaded
  isDisabled: boolean;
  onChange: (target: Target) => void;
  onStart: () => void;
}

const startOf: Record<Mode, string> = { exec: 'Start', attach: 'Attach', debug: 'Create and attach' };

function namesOf(pod: Pod | undefined, mode: Mode): string[] {
  const { containers = [], initContainers = [], ephemeralContainers = [] } = pod?.spec ?? {};
  const all = mode === 'debug' ? containers : [...containers, ...ephemeralContainers, ...initContainers];
  return all.map((c) => c.name);
}

export function Form({ target, pod, isDisabled, onChange, onStart }: Props) {
  const [text, setText] = useState(joinCommand(target.command));
  const [fault, setFault] = useState('');
  const written = joinCommand(target.command);
  useEffect(() => {
    if (fault === '') {
      setText((now) => (joinCommand(splitCommand(now)) === written ? now : written));
    }
  }, [written]);

  const setMode = (mode: Mode) => {
    setFault('');
    onChange({ ...target, mode, container: '', command: mode === 'exec' ? defaultCommand : [] });
  };
  const setCommand = (typed: string) => {
    setText(typed);
    try {
      const command = splitCommand(typed);
      const isMissing = command.length === 0 && target.mode === 'exec';
      setFault(isMissing ? 'a command is missing' : '');
      if (!isMissing) {
        onChange({ ...target, command });
      }
    } catch (error) {
      setFault(messageOf(error));
    }
  };
  const names = namesOf(pod, target.mode);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (fault === '' && !isDisabled) {
      onStart();
    }
  };
  return (
    <form class="terminal-form" onSubmit={submit}>
      <label>Session
        <select value={target.mode} disabled={isDisabled} onChange={(e) => setMode(e.currentTarget.value as Mode)}>
          <option value="exec">Run a command</option>
          <option value="attach">Attach to a container</option>
          <option value="debug">New debug container</option>
        </select>
      </label>
      <label>{target.mode === 'debug' ? 'Processes of' : 'Container'}
        <select value={target.container} disabled={isDisabled}
          onChange={(e) => onChange({ ...target, container: e.currentTarget.value })}>
          <option value="">{target.mode === 'debug' ? 'no container' : 'the first'}</option>
          {names.map((name) => <option key={name} value={name}>{name}</option>)}
          {target.container && !names.includes(target.container) && (
            <option value={target.container}>{target.container}</option>
          )}
        </select>
      </label>
      {target.mode === 'debug' && (
        <label>Image
          <input required value={target.image} disabled={isDisabled}
            onInput={(e) => onChange({ ...target, image: e.currentTarget.value })} />
        </label>
      )}
      {target.mode !== 'attach' && (
        <label>Command
          <input class="terminal-command" value={text} disabled={isDisabled} aria-invalid={fault !== ''}
            placeholder={target.mode === 'debug' ? 'that of the image' : ''}
            onInput={(e) => setCommand(e.currentTarget.value)} />
        </label>
      )}
      {target.mode === 'exec' && (
        <label class="terminal-check">
          <input type="checkbox" checked={target.hasTTY} disabled={isDisabled}
            onChange={(e) => onChange({ ...target, hasTTY: e.currentTarget.checked })} /> Terminal
        </label>
      )}
      <button type="submit" class="primary" disabled={isDisabled || fault !== ''}>{startOf[target.mode]}</button>
      {fault && <span class="bad" role="alert">{fault}</span>}
    </form>
  );
}
