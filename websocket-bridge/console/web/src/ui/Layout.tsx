// Layout is the frame of every view: navigation, the state of the connection, and help for the keyboard.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { isConnected } from '../api/client.ts';
import { session } from '../api/session.ts';
import { Link, navigate } from '../router.tsx';
import { urls } from '../urls.ts';
import { Help } from './Help.tsx';
import { useShortcuts } from './keys.ts';
import { scheme, switchScheme } from './scheme.ts';

export function Layout({ children }: { children: ComponentChildren }) {
  const [isHelpOpen, setHelpOpen] = useState(false);
  useShortcuts([
    { keys: 'g c', description: 'Show the clusters', run: () => navigate(urls.clusters()) },
    { keys: 'g f', description: 'Show the fleet', run: () => navigate(urls.fleet()) },
    { keys: 'g g', description: 'Show the gateway', run: () => navigate(urls.gateway()) },
    { keys: 'g r', description: 'Play a recording', run: () => navigate(urls.recording()) },
    { keys: '?', description: 'Show this help', run: () => setHelpOpen(true) },
  ]);
  return (
    <>
      <a class="skip" href="#main">Skip to the content</a>
      <header class="bar">
        <span class="brand">Clusterpass</span>
        <nav aria-label="Views">
          <Link href={urls.clusters()}>Clusters</Link>
          <Link href={urls.fleet()}>Fleet</Link>
          <Link href={urls.gateway()}>Gateway</Link>
          <Link href={urls.recording()}>Recording</Link>
        </nav>
        <span class="spacer" />
        <span class="user">{session.value?.user}</span>
        <button type="button" onClick={switchScheme} aria-label={`Colours: ${scheme.value}`} title="Colours">
          {scheme.value === 'dark' ? '☾' : scheme.value === 'light' ? '☀' : '◐'}
        </button>
        <button type="button" onClick={() => setHelpOpen(true)} aria-label="Help" title="Help (?)">?</button>
      </header>
      {!isConnected.value && (
        <p class="banner" role="alert">The connection to the gateway is lost. What is shown may be old.</p>
      )}
      <main id="main" tabIndex={-1}>{children}</main>
      {isHelpOpen && <Help onClose={() => setHelpOpen(false)} />}
    </>
  );
}
