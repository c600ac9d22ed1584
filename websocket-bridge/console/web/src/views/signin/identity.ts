// Signs in by a credential, and finds out whose it is.
import { whoAmI } from '../../api/client.ts';
import { signIn, type Token } from '../../api/session.ts';

// signInByCertificate throws a StatusError of code 401 if the browser has no certificate of the gateway.
export async function signInByCertificate(): Promise<void> {
  const user = await whoAmI({ withoutSession: true });
  signIn({ method: 'certificate', user });
}

// signInByToken throws a StatusError of code 401 if the gateway does not accept the token.
export async function signInByToken(token: Token): Promise<void> {
  const user = await whoAmI({ headers: { Authorization: `Bearer ${token.token}` } });
  signIn({ method: 'token', user, ...token });
}

// tokenOf returns the token in a pasted pass: the kubeconfig of the pass, or the token alone. A kubeconfig with several
// tokens has none, because another one is for another server.
export function tokenOf(pasted: string): string | undefined {
  const trimmed = pasted.trim();
  const found = trimmed.matchAll(/^\s*(?:-\s+)?["']?token["']?:\s*["']?([A-Za-z0-9._~+/=-]+)/gm);
  const [inKubeconfig, ...others] = new Set([...found].map(([, token]) => token));
  return others.length > 0 ? undefined : inKubeconfig ?? (/^[A-Za-z0-9._~+/=-]+$/.test(trimmed) ? trimmed : undefined);
}
