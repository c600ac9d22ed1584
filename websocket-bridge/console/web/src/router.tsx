// The router: one view for each path below /console/.
import { computed, signal } from '@preact/signals';
import type { ComponentChildren, ComponentType } from 'preact';
import { useEffect, useErrorBoundary, useRef, useState } from 'preact/hooks';
import { Notice } from './ui/Notice.tsx';
import { root, urls } from './urls.ts';

// ViewProps are the segments of the path that its pattern names, and the parameters of the query.
export interface ViewProps {
  params: Record<string, string>;
  query: URLSearchParams;
}

interface Route {
  pattern: string;
  title: string;
  load: () => Promise<{ default: ComponentType<ViewProps> }>;
}

const routes: Route[] = [
  { pattern: 'clusters', title: 'Clusters', load: () => import('./views/clusters/Clusters.tsx') },
  { pattern: 'clusters/:name', title: 'Cluster', load: () => import('./views/clusters/Cluster.tsx') },
  { pattern: 'fleet', title: 'Fleet', load: () => import('./views/fleet/Fleet.tsx') },
  { pattern: 'fleet/:group/:version/:resource', title: 'Fleet', load: () => import('./views/fleet/Fleet.tsx') },
  {
    pattern: 'objects/:cluster/:group/:version/:resource/:namespace/:name', title: 'Object',
    load: () => import('./views/object/Object.tsx'),
  },
  { pattern: 'logs', title: 'Logs', load: () => import('./views/logs/Logs.tsx') },
  {
    pattern: 'terminal/:cluster/:namespace/:pod', title: 'Terminal',
    load: () => import('./views/terminal/Terminal.tsx'),
  },
  { pattern: 'recording', title: 'Recording', load: () => import('./views/recording/Recording.tsx') },
  { pattern: 'gateway', title: 'Gateway', load: () => import('./views/gateway/Gateway.tsx') },
];

// url is the URL that is shown.
export const url = signal(new URL(location.href));

const matched = computed(() => match(url.value.pathname));

function match(path: string): { route: Route; params: Record<string, string> } | undefined {
  const segments = path.slice(root.length).split('/').filter((s) => s !== '');
  for (const route of routes) {
    const pattern = route.pattern.split('/').filter((s) => s !== '');
    const params: Record<string, string> = {};
    const isMatch = pattern.length === segments.length && pattern.every((p, i) => {
      const segment = segments[i] ?? '';
      if (!p.startsWith(':')) {
        return p === segment;
      }
      try {
        params[p.slice(1)] = decodeURIComponent(segment);
        return true;
      } catch {
        return false;
      }
    });
    if (isMatch) {
      return { route, params };
    }
  }
  return undefined;
}

// navigate shows another URL of the console. replace overwrites the entry of the browser's history.
export function navigate(to: string, options: { replace?: boolean } = {}): void {
  const next = new URL(to, location.href);
  if (next.href === location.href) {
    return;
  }
  if (options.replace) {
    history.replaceState(null, '', next);
  } else {
    history.pushState(null, '', next);
  }
  const isOtherView = next.pathname !== url.value.pathname;
  url.value = next;
  if (isOtherView) {
    scrollTo(0, 0);
  }
}

// setQuery replaces parameters of the URL. Values that are undefined or empty are removed.
export function setQuery(
  changes: Record<string, string | undefined>, options: { replace?: boolean } = { replace: true },
): void {
  const next = new URL(url.value);
  for (const [name, value] of Object.entries(changes)) {
    if (value) {
      next.searchParams.set(name, value);
    } else {
      next.searchParams.delete(name);
    }
  }
  navigate(next.href, options);
}

addEventListener('popstate', () => {
  url.value = new URL(location.href);
});

// Link is a link to another view. The browser opens it in a new tab as usual.
export function Link(props: { href: string; children: ComponentChildren; class?: string; title?: string }) {
  const onClick = (event: MouseEvent) => {
    if (event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      navigate(props.href);
    }
  };
  const [path] = props.href.split('?', 1); // links are paths; a URL would be slow for tables of links
  const isCurrent = path === url.value.pathname;
  return <a {...props} onClick={onClick} {...(isCurrent && { 'aria-current': 'page' as const })}>{props.children}</a>;
}

// Guard shows the error of a view, such as that of a URL without a meaning, until the URL changes.
function Guard({ children }: { children: ComponentChildren }) {
  const [error, reset] = useErrorBoundary();
  const failedAt = useRef('');
  const { href } = url.value;
  if (error !== undefined && failedAt.current === '') {
    failedAt.current = href;
  }
  useEffect(() => {
    if (failedAt.current !== '' && failedAt.current !== href) {
      failedAt.current = '';
      reset();
    }
  }, [href]);
  return error === undefined ? <>{children}</> : <Notice error={error} />;
}

// Router shows the view of the URL.
export function Router() {
  const found = matched.value;
  const [view, setView] = useState<{ route: Route; View: ComponentType<ViewProps> }>();
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    let isCurrent = true;
    setError(undefined);
    found?.route.load().then(
      (module) => isCurrent && setView({ route: found.route, View: module.default }),
      (failed: unknown) => isCurrent && setError(failed),
    );
    return () => {
      isCurrent = false;
    };
  }, [found?.route]);
  useEffect(() => {
    const { name, pod, resource } = found?.params ?? {};
    document.title = [name ?? pod ?? resource, found?.route.title, 'Clusterpass'].filter(Boolean).join(' · ');
  }, [found]);
  if (!found) {
    return <p>The console has no such page. <Link href={urls.clusters()}>Show the clusters.</Link></p>;
  }
  if (error !== undefined) {
    return <Notice error={error} onRetry={() => location.reload()} />;
  }
  if (!view || view.route !== found.route) {
    return <p class="loading" role="status">Loading…</p>;
  }
  // The key makes a new view for another path, so that it shows nothing of the path before.
  const { pathname, searchParams } = url.value;
  return <Guard><view.View key={pathname} params={found.params} query={searchParams} /></Guard>;
}
