// Ephemeral debug containers.
import { request, sleep } from '../../api/client.ts';
import type { ContainerRef } from '../../urls.ts';
import { endOf, podPath, statusOf, type Pod } from '../logs/follower.ts';

export interface DebugOptions {
  image: string;
  target: string; // container whose processes the debug container sees; empty for none
  command: string[]; // empty for the command of the image
}

// debugName returns a new name for a debug container, as kubectl makes it.
export function debugName(): string {
  const letters = 'bcdfghjklmnpqrstvwxz2456789';
  const random = crypto.getRandomValues(new Uint8Array(5));
  return `debugger-${[...random].map((n) => letters.charAt(n % letters.length)).join('')}`;
}

// createDebugContainer adds an ephemeral container to a pod.
export async function createDebugContainer(ref: ContainerRef, name: string, o: DebugOptions): Promise<void> {
  await request(podPath(ref, 'ephemeralcontainers'), {
    method: 'PATCH',
    headers: { 'Content-Type': 'application/strategic-merge-patch+json' },
    json: {
      spec: {
        ephemeralContainers: [{
          name, image: o.image, stdin: true, tty: true, terminationMessagePolicy: 'File',
          ...(o.command.length > 0 && { command: o.command }), ...(o.target && { targetContainerName: o.target }),
        }],
      },
    },
  });
}

const pollInterval = 1_000;

// waitForContainer returns when a container runs. It throws if the container has ended. onWait gets the reason to wait.
export async function waitForContainer(
  ref: ContainerRef, name: string, onWait: (reason: string) => void, signal: AbortSignal,
): Promise<void> {
  for (;;) {
    const state = statusOf(await request<Pod>(podPath(ref), { signal }), name)?.state;
    if (state?.running) {
      return;
    }
    if (state?.terminated) {
      throw new Error(`the container ${name} has ended: ${endOf(state)}`);
    }
    const { reason, message } = state?.waiting ?? {};
    onWait([reason ?? 'The container starts', message].filter((part) => part).join(': '));
    await sleep(pollInterval, signal);
    signal.throwIfAborted();
  }
}

const mostPolls = 10;

// endOfContainer returns how a container ended, or an empty text if it runs on. The status of a container may come later
// than the end of its session.
export async function endOfContainer(ref: ContainerRef, name: string, signal: AbortSignal): Promise<string> {
  for (let i = 0; i < mostPolls; i++) {
    const state = statusOf(await request<Pod>(podPath(ref), { signal }), name)?.state;
    if (state?.terminated) {
      return endOf(state);
    }
    await sleep(pollInterval, signal);
    signal.throwIfAborted();
  }
  return '';
}
