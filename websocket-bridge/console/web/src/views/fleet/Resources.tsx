// Resources is a live table of the objects of one kind. Its URL has the filters and the order.
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Resource } from '../../api/discovery.ts';
import { Link, navigate, setQuery } from '../../router.tsx';
import { AsKubectl } from '../../ui/AsKubectl.tsx';
import { messageOf, Notice } from '../../ui/Notice.tsx';
import { VirtualTable, type Sort } from '../../ui/VirtualTable.tsx';
import { urls } from '../../urls.ts';
import { namespaceIndex, shownColumns, textOf, valueOf, type Column } from './columns.ts';
import { Feed, mostRows, type State } from './feed.ts';
import { Filters, filtersOf, type FilterValues } from './Filters.tsx';
import type { Row } from './rows.ts';
import { listCommand, onePerKind, scopeOf, type Scope } from './scope.ts';
import { useDiscovery } from './useDiscovery.ts';

const agePeriod = 10_000; // milliseconds between renderings of ages
const mostLogs = 20; // pods whose logs are opened at once

interface ResourcesProps {
  group: string;
  version: string;
  resource: string;
  query: URLSearchParams;
}

export function Resources({ group, version, resource, query }: ResourcesProps) {
  const scope = scopeOf(query.get('cluster'));
  const { resources, error, retry } = useDiscovery(scope.base);
  const found = resources?.find((r) => r.group === group && r.version === version && r.resource === resource);
  if (error !== undefined) {
    return <Notice error={error} title="The kinds cannot be listed" onRetry={retry} />;
  }
  if (!resources) {
    return <p class="loading" role="status">Loading…</p>;
  }
  if (!found) {
    return (
      <div class="notice" role="alert">
        <p>Discovery of {scope.clusters.join(', ') || 'the fleet'} shows no {resource} of {group || 'core'}/{version}.</p>
        <p>
          A ResourceRegistry selects the kinds of the fleet. One cluster shows all of its kinds: name it in the URL
          by <code>?cluster=NAME</code>.
        </p>
        <button type="button" onClick={retry}>Try again</button> <Link href={urls.fleet()}>Show the kinds</Link>
      </div>
    );
  }
  const preferred = onePerKind(resources);
  return <Live key={scope.base} scope={scope} resource={found} kinds={preferred} query={query} />;
}

interface LiveProps {
  scope: Scope;
  resource: Resource;
  kinds: Resource[];
  query: URLSearchParams;
}

// sortOf reads the parameter sort: the name of a column, after a dash if it is descending.
function sortOf(parameter: string | null): Sort | undefined {
  return !parameter
    ? undefined
    : parameter.startsWith('-')
      ? { column: parameter.slice(1), isDescending: true }
      : { column: parameter, isDescending: false };
}

function useFeed(scope: Scope, resource: Resource, filters: FilterValues): Feed {
  const { namespace, labelSelector, fieldSelector } = filters;
  const clusters = scope.base === '/fleet' ? scope.clusters.join(',') : '';
  const feed = useMemo(() => new Feed({
    base: scope.base, cluster: scope.base === '/fleet' ? '' : scope.clusters[0] ?? '', resource,
    namespace: resource.namespaced ? namespace : undefined, clusters, labelSelector, fieldSelector,
  }), [scope.base, resource, clusters, namespace, labelSelector, fieldSelector]);
  useEffect(() => {
    feed.start();
    return () => feed.stop();
  }, [feed]);
  return feed;
}

// useNow renders a component again from time to time.
function useNow(period: number): void {
  const [, setNow] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), period);
    return () => clearInterval(timer);
  }, []);
}

function Live({ scope, resource, kinds, query }: LiveProps) {
  const filters = filtersOf(query);
  const isWide = query.get('wide') === '1';
  const sortText = query.get('sort');
  const sort = sortOf(sortText);
  const feed = useFeed(scope, resource, filters);
  useNow(agePeriod);
  const columns = shownColumns(feed.columns.value, resource.namespaced && !filters.namespace, isWide);
  const sorted = sort && columns.find((c) => c.name === sort.column);
  useEffect(() => {
    void feed.rows.arrange(sorted && ((row) => valueOf(row, sorted)), sort?.isDescending ?? false, filters.text);
  }, [feed, sorted?.index, sort?.isDescending, filters.text]);

  const onSort = (column: string) => {
    const next = sort?.column !== column ? column : sort.isDescending ? '' : `-${column}`;
    setQuery({ sort: next });
  };
  const command = listCommand(scope, {
    resource, isPreferred: kinds.includes(resource), ...filters, isWide,
    sort: sort?.isDescending ? undefined : sort?.column,
  });
  return (
    <>
      <h1>{resource.kind} <span class="muted">{resource.group || 'core'}/{resource.version}</span></h1>
      <Filters scope={scope} resource={resource} kinds={kinds} query={query} />
      <div class="toolbar">
        <Progress feed={feed} />
        <label>
          <input type="checkbox" checked={isWide} onChange={() => setQuery({ wide: isWide ? '' : '1' })} /> Wide
        </label>
        {resource.group === '' && resource.resource === 'pods' && <LogsLink feed={feed} />}
        <AsKubectl command={command} />
      </div>
      <Problems state={feed.state.value} hasRows={feed.rows.size > 0} />
      <Table feed={feed} columns={columns} resource={resource} sort={sort} onSort={onSort} />
    </>
  );
}

const phases: Record<State['phase'], string> = {
  listing: 'Loading', live: 'Live', listed: 'Not live: this kind cannot be watched', lost: 'Not connected',
  failed: 'Stopped',
};

function Progress({ feed }: { feed: Feed }) {
  void feed.version.value;
  const { phase, remaining } = feed.state.value;
  const { size, shown, isBuilding } = feed.rows;
  const total = remaining === undefined ? undefined : size + remaining;
  return (
    <>
      <span class={`phase ${phase}`} role="status">
        {phases[phase]}{isBuilding && ', sorting'}
      </span>
      <span class="count">
        {shown.length === size ? '' : `${shown.length.toLocaleString('en')} of `}{size.toLocaleString('en')} objects
        {phase === 'listing' && total !== undefined && total > size && ` of ${total.toLocaleString('en')}`}
      </span>
      {phase === 'listing' && total !== undefined && total > 0 && (
        <progress value={size} max={total} aria-label="Loaded objects" />
      )}
    </>
  );
}

function Problems({ state, hasRows }: { state: State; hasRows: boolean }) {
  return (
    <>
      {state.error !== undefined && (state.phase === 'failed' || !hasRows) && <Notice error={state.error} />}
      {state.error !== undefined && state.phase === 'lost' && hasRows && (
        <p class="warnings" role="status">What is shown may be old: {messageOf(state.error)}</p>
      )}
      {state.isTruncated && (
        <p class="warnings" role="status">
          Only the first {mostRows.toLocaleString('en')} objects are loaded. Choose a namespace, a cluster or a selector.
        </p>
      )}
      {state.warnings.length > 0 && (
        <details class="warnings" open={state.warnings.length < 4}>
          <summary>{state.warnings.length === 1 ? 'A warning' : `${state.warnings.length} warnings`}</summary>
          <ul>{state.warnings.map((w) => <li key={w}>{w}</li>)}</ul>
        </details>
      )}
    </>
  );
}

interface TableProps {
  feed: Feed;
  columns: Column[];
  resource: Resource;
  sort: Sort | undefined;
  onSort: (column: string) => void;
}

function objectURL(row: Row, resource: Resource): string {
  return urls.object({
    cluster: row.cluster, group: resource.group, version: resource.version, resource: resource.resource,
    namespace: row.namespace, name: row.name,
  });
}

function Table({ feed, columns, resource, sort, onSort }: TableProps) {
  void feed.version.value;
  const { shown } = feed.rows;
  const cell = (at: number, index: number) => {
    const [row, column] = [shown[at], columns[index]];
    if (!row || !column) {
      return '';
    }
    const text = textOf(row, column);
    if (column.name === 'Name' && row.cluster !== '') {
      return <Link href={objectURL(row, resource)}>{text || row.name}</Link>;
    }
    if (column.name === 'Cluster' && text === row.cluster) {
      return <Link href={urls.cluster(row.cluster)}>{text}</Link>;
    }
    return text;
  };
  const title = (at: number, index: number) => {
    const [row, column] = [shown[at], columns[index]];
    const text = row && column && column.index !== namespaceIndex ? textOf(row, column) : '';
    return text.length > 20 ? text : undefined;
  };
  return (
    <VirtualTable
      label={resource.kind} rowCount={shown.length} sort={sort} onSort={onSort} cell={cell} title={title}
      columns={columns.map((c) => ({ name: c.name, title: c.description || undefined, width: c.longest }))}
      rowClass={(at) => (shown[at]?.isDeleting ? 'deleting' : undefined)}
      onOpen={(at) => {
        const row = shown[at];
        if (row && row.cluster !== '') {
          navigate(objectURL(row, resource));
        }
      }}
    />
  );
}

function LogsLink({ feed }: { feed: Feed }) {
  void feed.version.value;
  const pods = feed.rows.shown.slice(0, mostLogs).filter((row) => row.cluster !== '');
  if (pods.length === 0) {
    return null;
  }
  const text = pods.length < feed.rows.shown.length ? `Logs of the first ${pods.length}` : `Logs of all ${pods.length}`;
  return (
    <Link href={urls.logs(pods.map((row) => ({ cluster: row.cluster, namespace: row.namespace, pod: row.name })))}>
      {text}
    </Link>
  );
}
