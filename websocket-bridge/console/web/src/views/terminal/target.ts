// The session that a terminal opens, as in the URL: exec of a command, attach to a container, or a new debug container.
import type { ViewProps } from '../../router.tsx';
import { kubectl } from '../../ui/AsKubectl.tsx';
import { podPath, type Pod } from '../logs/follower.ts';

export type Mode = 'exec' | 'attach' | 'debug';

export interface Target {
  cluster: string;
  namespace: string;
  pod: string;
  mode: Mode;
  container: string; // empty for the first; with debug, the container whose processes are seen
  command: string[];
  hasTTY: boolean;
  image: string; // with debug
}

export const defaultCommand = ['sh'];
export const defaultImage = 'busybox';

// readTarget reads the path and the parameters mode, container, command (repeated), tty and image.
export function readTarget({ params, query }: ViewProps): Target {
  const mode = query.get('mode');
  const command = query.getAll('command');
  return {
    cluster: params['cluster'] ?? '', namespace: params['namespace'] ?? '', pod: params['pod'] ?? '',
    mode: mode === 'attach' || mode === 'debug' ? mode : 'exec',
    container: query.get('container') ?? '',
    command: command.length > 0 || mode === 'debug' ? command : defaultCommand,
    hasTTY: query.get('tty') !== 'false',
    image: query.get('image') ?? defaultImage,
  };
}

// targetQuery is the inverse of readTarget, without what is usual.
export function targetQuery(t: Target): string {
  const query = new URLSearchParams();
  if (t.mode !== 'exec') {
    query.set('mode', t.mode);
  }
  if (t.container) {
    query.set('container', t.container);
  }
  const isUsual = t.mode === 'exec' && t.command.length === 1 && t.command[0] === defaultCommand[0];
  if (t.mode !== 'attach' && !isUsual) {
    t.command.forEach((word) => query.append('command', word));
  }
  if (t.mode === 'exec' && !t.hasTTY) {
    query.set('tty', 'false');
  }
  if (t.mode === 'debug' && t.image !== defaultImage) {
    query.set('image', t.image);
  }
  return query.toString();
}

// sessionPath returns the path of exec or attach.
export function sessionPath(t: Target, streams: { hasTTY: boolean; hasInput: boolean }): string {
  const query = new URLSearchParams();
  if (t.container) {
    query.set('container', t.container);
  }
  if (t.mode === 'exec') {
    t.command.forEach((word) => query.append('command', word));
  }
  query.set('stdin', String(streams.hasInput));
  query.set('stdout', 'true');
  query.set('stderr', String(!streams.hasTTY)); // a terminal has one output
  query.set('tty', String(streams.hasTTY));
  return `${podPath(t, t.mode === 'exec' ? 'exec' : 'attach')}?${query}`;
}

// streamsOf returns the streams of a container that a session attaches to.
export function streamsOf(pod: Pod, container: string): { hasTTY: boolean; hasInput: boolean } {
  const all = [...pod.spec.containers, ...(pod.spec.ephemeralContainers ?? []), ...(pod.spec.initContainers ?? [])];
  const found = all.find((c) => c.name === container) ?? pod.spec.containers[0];
  return { hasTTY: found?.tty ?? false, hasInput: found?.stdin ?? false };
}

// commandOf returns the same session in kubectl.
export function commandOf(t: Target): string {
  const inNamespace = ['-n', t.namespace];
  switch (t.mode) {
    case 'exec':
      return kubectl(t.cluster, 'exec', ...inNamespace, t.hasTTY ? '-it' : undefined, [t.pod],
        ...(t.container ? ['-c', t.container] : []), '--', ...t.command);
    case 'attach':
      return kubectl(t.cluster, 'attach', ...inNamespace, '-it', [t.pod], ...(t.container ? ['-c', t.container] : []));
    case 'debug':
      return kubectl(t.cluster, 'debug', ...inNamespace, '-it', [t.pod], `--image=${t.image}`,
        t.container && `--target=${t.container}`, ...(t.command.length > 0 ? ['--', ...t.command] : []));
  }
}
