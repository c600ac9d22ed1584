// The start of the console: the sign-in, and then the view of the URL.
import { render } from 'preact';
import { listen } from './ui/keys.ts';
import { Layout } from './ui/Layout.tsx';
import { Router } from './router.tsx';
import './ui/styles.css';

function App() {
  return <Layout><Router /></Layout>;
}

listen();
render(<App />, document.getElementById('app') as HTMLElement);
