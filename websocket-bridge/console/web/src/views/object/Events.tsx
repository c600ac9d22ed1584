// Events are the Events of an object, the latest first.
import { useEffect, useState } from 'preact/hooks';
import { follow, isAborted } from '../../api/client.ts';
import { resourcePath } from '../../api/paths.ts';
import type { KubeObject, List } from '../../api/types.ts';
import { Notice } from '../../ui/Notice.tsx';
import { visible } from '../../ui/text.ts';
import { age } from '../fleet/age.ts';
import { fieldValue } from './fields.ts';
import type { TabProps } from './Object.tsx';

interface Event extends KubeObject {
  type?: string;
  reason?: string;
  message?: string;
  count?: number;
  firstTimestamp?: string;
  lastTimestamp?: string;
  eventTime?: string;
  reportingComponent?: string;
  source?: { component?: string };
  series?: { count?: number; lastObservedTime?: string };
  involvedObject?: { uid?: string };
}

const mostEvents = 500;

function lastSeen(event: Event): number {
  const { series, lastTimestamp, eventTime, metadata } = event;
  const time = series?.lastObservedTime ?? lastTimestamp ?? eventTime ?? metadata.creationTimestamp;
  return Date.parse(time ?? '');
}

// latest returns the latest events, up to mostEvents.
function latest(events: Event[]): Event[] {
  return events.sort((a, b) => (lastSeen(b) || 0) - (lastSeen(a) || 0)).slice(0, mostEvents);
}

export function Events({ at, base, object }: TabProps) {
  const [events, setEvents] = useState<Event[]>();
  const [error, setError] = useState<unknown>();
  const { uid } = object.metadata;
  useEffect(() => {
    const abort = new AbortController();
    // The events of a node have its name as uid.
    const isOfObject = (event: Event) => ['', uid, at.name].includes(event.involvedObject?.uid ?? '');
    const fieldSelector = `involvedObject.name=${fieldValue(at.name)},involvedObject.kind=${fieldValue(object.kind)}`;
    const path = resourcePath({ base, group: '', version: 'v1', resource: 'events', namespace: at.namespace });
    follow<List<Event>, Event>(path, {
      params: { fieldSelector, limit: mostEvents },
      signal: abort.signal,
      onList: (list) => {
        setError(undefined);
        setEvents(latest((list.items ?? []).filter(isOfObject)));
      },
      onEvent: ({ type, object: event }) => {
        if (type === 'BOOKMARK' || !isOfObject(event)) {
          return;
        }
        setEvents((old = []) => {
          const others = old.filter((e) => e.metadata.uid !== event.metadata.uid);
          return latest(type === 'DELETED' ? others : [...others, event]);
        });
      },
      onState: (state, failed) => setError(state === 'lost' ? failed : undefined),
    }).catch((failed: unknown) => !isAborted(failed) && setError(failed));
    return () => abort.abort();
  }, [base, at.namespace, at.name, object.kind, uid]);

  if (at.cluster === undefined) {
    return <p class="muted">The gateway has no Events.</p>;
  }
  return (
    <>
      {error !== undefined && <Notice error={error} title="The events cannot be listed" />}
      {!events && error === undefined && <p class="loading" role="status">Loading…</p>}
      {events?.length === 0 && <p class="muted">No events. A cluster keeps events for an hour by default.</p>}
      {events && events.length > 0 && (
        <table aria-label="Events">
          <thead><tr><th>Last seen</th><th>Type</th><th>Reason</th><th>Times</th><th>From</th><th>Message</th></tr></thead>
          <tbody>
            {events.map((e) => (
              <tr key={e.metadata.uid}>
                <td>{age(lastSeen(e))}</td>
                <td class={e.type === 'Warning' ? 'warn' : ''}>{String(e.type ?? '')}</td>
                <td>{String(e.reason ?? '')}</td>
                <td>{String(e.series?.count ?? e.count ?? 1)}</td>
                <td>{String(e.source?.component || e.reportingComponent || '')}</td>
                <td class="long">{visible(String(e.message ?? ''))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}
