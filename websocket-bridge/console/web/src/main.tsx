// The start of the console: the sign-in, and then the view of the URL.
import { signal } from '@preact/signals';
import { render } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { request, StatusError } from './api/client.ts';
import { isExpired, session, userName } from './api/session.ts';
import { navigate, Router, url } from './router.tsx';
import { listen } from './ui/keys.ts';
import { Layout } from './ui/Layout.tsx';
import { Notice } from './ui/Notice.tsx';
import { signInByCertificate, signInByToken } from './views/signin/identity.ts';
import type { OIDC } from './views/signin/oidc.ts';
import { SignIn } from './views/signin/SignIn.tsx';
import { root, urls } from './urls.ts';
import './ui/styles.css';

interface Config {
  oidc?: OIDC;
}

const config = signal<Config | undefined>(undefined);
const failure = signal<unknown>(undefined);

// start signs in by the answer of the issuer, or else by the certificate of the browser. Without one it gets 401.
async function start(): Promise<void> {
  failure.value = undefined;
  let found: Config | undefined;
  try {
    found = await request<Config>(`${root}/config.json`);
    if (found.oidc && url.value.searchParams.has('state')) {
      const oidc = await import('./views/signin/oidc.ts');
      if (oidc.isReturn(url.value)) {
        const { token, path } = await oidc.complete(found.oidc, url.value);
        navigate(path, { replace: true });
        await signInByToken(token);
        return;
      }
    }
    await signInByCertificate();
  } catch (error) {
    if (!(error instanceof StatusError && error.code === 401 && session.value === undefined)) {
      failure.value = error;
    }
  } finally {
    if (url.value.pathname === `${root}/`) {
      navigate(urls.clusters(), { replace: true });
    }
    config.value = found;
  }
}

// SignInDialog covers the view, which stays as it is. The dialog cannot be closed without a new credential: a browser
// closes it at a second Escape, whatever the page wants, so it opens again.
function SignInDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = () => dialog.current?.showModal();
  useEffect(open, []);
  return (
    <dialog ref={dialog} class="sign-in" aria-label="Sign in again" onClose={open}>
      <p role="status">The session has ended. Sign in again to continue.</p>
      <SignIn oidc={config.value?.oidc} />
    </dialog>
  );
}

function App() {
  if (session.value) {
    return (
      <>
        <Layout key={userName.value}><Router /></Layout>
        {isExpired.value && <SignInDialog />}
      </>
    );
  }
  if (config.value) {
    return <main class="sign-in"><SignIn oidc={config.value.oidc} error={failure.value} /></main>;
  }
  if (failure.value !== undefined) {
    return <main><h1>Clusterpass</h1><Notice error={failure.value} onRetry={start} /></main>;
  }
  return <p class="loading" role="status">Loading…</p>;
}

listen();
render(<App />, document.getElementById('app') as HTMLElement);
void start();
