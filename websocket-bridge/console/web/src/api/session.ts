// The credential of this page: a client certificate of the browser, or a bearer token in memory. No token is stored, so
// a page that is loaded again signs in again.
import { computed, signal } from '@preact/signals';

export type Session = { method: 'certificate'; user: string } | ({ method: 'token'; user: string } & Token);

export interface Token {
  token: string;
  renewAt?: number | undefined; // when refresh is called, in milliseconds since 1970
  // refresh returns the token that replaces this one, or undefined if the issuer refuses. It throws an error that may
  // pass, such as that of a lost connection.
  refresh?: (() => Promise<Token | undefined>) | undefined;
}

// session is undefined until the user has signed in.
export const session = signal<Session | undefined>(undefined);

// isExpired is set when the gateway refuses the credential.
export const isExpired = signal(false);

// userName changes when another user signs in. The next user must not see the data of the last one.
export const userName = computed(() => session.value?.user);

const waiting = new Set<() => void>(); // for signIn

// signIn replaces the session. Callers that wait for signedIn continue.
export function signIn(next: Session): void {
  session.value = next;
  isExpired.value = false;
  [...waiting].forEach((end) => end());
}

// signedIn resolves while the gateway accepts the credential. It rejects with an AbortError when aborted.
export function signedIn(aborted?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      waiting.delete(end);
      aborted?.removeEventListener('abort', end);
      if (aborted?.aborted) {
        reject(new DOMException('the request was aborted', 'AbortError'));
      } else {
        resolve();
      }
    };
    if (!isExpired.value || aborted?.aborted) {
      end();
      return;
    }
    waiting.add(end);
    aborted?.addEventListener('abort', end);
  });
}

const pauseAfterFailure = 10_000;
let renewing: Promise<void> | undefined;

// renew replaces a token that expires soon, if the issuer offers that.
export async function renew(): Promise<void> {
  const current = session.value;
  if (current?.method !== 'token' || !current.refresh || Date.now() < (current.renewAt ?? Infinity)) {
    return;
  }
  renewing ??= refresh(current, current.refresh).finally(() => {
    renewing = undefined;
  });
  await renewing;
}

// authorize adds the token of the session to the headers of a request.
export async function authorize(headers: Headers): Promise<void> {
  await renew();
  if (session.value?.method === 'token') {
    headers.set('Authorization', `Bearer ${session.value.token}`);
  }
}

// refresh keeps the old token if it gets none. The gateway then decides how long that is valid.
async function refresh(current: Session & Token, get: () => Promise<Token | undefined>): Promise<void> {
  let next: Partial<Token>;
  try {
    next = await get() ?? { refresh: undefined };
  } catch {
    next = { renewAt: Date.now() + pauseAfterFailure };
  }
  if (session.value === current) {
    session.value = { ...current, ...next };
  }
}

// socketProtocols returns the subprotocol that has the token. Browsers cannot add headers to websockets.
export function socketProtocols(): string[] {
  const current = session.value;
  if (current?.method !== 'token') {
    return [];
  }
  const base64 = btoa(current.token).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
  return [`base64url.bearer.authorization.k8s.io.${base64}`];
}
