// The credential of this page: a client certificate of the browser, or a bearer token in memory. Nothing is stored.
import { signal } from '@preact/signals';

export type Session =
  | { method: 'certificate'; user: string }
  | { method: 'oidc' | 'pass'; user: string; token: string; expires?: number | undefined };

// session is undefined until the user has signed in.
export const session = signal<Session | undefined>(undefined);

// isExpired is set when the gateway refuses the credential.
export const isExpired = signal(false);

// authorize adds the token of the session to the headers of a request.
export async function authorize(headers: Headers): Promise<void> {
  const current = session.value;
  if (current && current.method !== 'certificate') {
    headers.set('Authorization', `Bearer ${current.token}`);
  }
}

// socketProtocols returns the subprotocol that has the token. Browsers cannot add headers to websockets.
export function socketProtocols(): string[] {
  const current = session.value;
  if (!current || current.method === 'certificate') {
    return [];
  }
  const bytes = new TextEncoder().encode(current.token);
  const base64 = btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
  return [`base64url.bearer.authorization.k8s.io.${base64}`];
}
