// The credential of this page: a client certificate of the browser, or a bearer token in memory. No token is stored, so
// a page that is loaded again signs in again.
import { signal } from '@preact/signals';

export type Session = { method: 'certificate'; user: string } | ({ method: 'token'; user: string } & Token);

export interface Token {
  token: string;
  expires?: number | undefined; // in milliseconds since 1970
  refresh?: (() => Promise<Token>) | undefined; // returns the token that replaces this one
}

// session is undefined until the user has signed in.
export const session = signal<Session | undefined>(undefined);

// isExpired is set when the gateway refuses the credential.
export const isExpired = signal(false);

const refreshBefore = 60_000;
let refreshing: Promise<void> | undefined;

// authorize adds the token of the session to the headers of a request. A token that expires soon is refreshed before.
export async function authorize(headers: Headers): Promise<void> {
  const current = session.value;
  if (current?.method !== 'token') {
    return;
  }
  if (current.refresh && current.expires !== undefined && current.expires - Date.now() < refreshBefore) {
    refreshing ??= refresh(current.refresh).finally(() => {
      refreshing = undefined;
    });
    await refreshing;
  }
  if (session.value?.method === 'token') {
    headers.set('Authorization', `Bearer ${session.value.token}`);
  }
}

// refresh keeps the old token if the issuer refuses. The gateway then decides how long that is valid.
async function refresh(get: () => Promise<Token>): Promise<void> {
  const current = session.value;
  try {
    const next = await get();
    if (current?.method === 'token' && session.value === current) {
      session.value = { ...current, ...next };
    }
  } catch {
    if (current?.method === 'token' && session.value === current) {
      session.value = { ...current, refresh: undefined };
    }
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
