// SignIn offers the methods to sign in. A browser with a client certificate of the gateway never shows it.
import { useState } from 'preact/hooks';

import { Notice } from '../../ui/Notice.tsx';
import { signInByCertificate, signInByToken, tokenOf } from './identity.ts';
import type { OIDC } from './oidc.ts';

export interface SignInProps {
  oidc?: OIDC | undefined;
  error?: unknown;
}

export function SignIn({ oidc, error: before }: SignInProps) {
  const [error, setError] = useState<unknown>(before);
  const [isBusy, setBusy] = useState(false);
  const [pasted, setPasted] = useState('');
  const attempt = async (signIn: () => Promise<void>) => {
    setBusy(true);
    setError(undefined);
    try {
      await signIn();
    } catch (failed) {
      setError(failed);
    } finally {
      setBusy(false);
    }
  };
  const usePass = () => attempt(async () => {
    const token = tokenOf(pasted);
    if (!token) {
      throw new Error('the text has no token, or several; paste the kubeconfig of a pass, or its token');
    }
    await signInByToken({ token });
  });
  return (
    <>
      <h1>Sign in to Clusterpass</h1>
      {error !== undefined && <Notice error={error} />}
      {oidc && (
        <section>
          <button type="button" class="primary" disabled={isBusy}
            onClick={() => attempt(async () => (await import('./oidc.ts')).begin(oidc))}>
            Sign in at {new URL(oidc.issuer).host}
          </button>
        </section>
      )}
      <section>
        <h2><label for="pass">Pass</label></h2>
        <form onSubmit={(event) => { event.preventDefault(); void usePass(); }}>
          <textarea id="pass" rows={4} autocomplete="off" spellcheck={false} value={pasted} aria-describedby="pass-help"
            onInput={(event) => setPasted(event.currentTarget.value)} />
          <p id="pass-help" class="muted">
            The output of <code>clusterpass pass create</code>, or the token in it. It stays in the memory of this page.
          </p>
          <button type="submit" disabled={isBusy || pasted.trim() === ''}>Use the pass</button>
        </form>
      </section>
      <section>
        <h2>Client certificate</h2>
        <p class="muted">
          Import a certificate of the gateway into your browser, and choose it when the browser asks. A browser that has
          asked before may need a restart.
        </p>
        <button type="button" disabled={isBusy} onClick={() => attempt(signInByCertificate)}>Use a certificate</button>
      </section>
    </>
  );
}

