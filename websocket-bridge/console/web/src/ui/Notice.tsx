// Notice shows an error, and what the user can do.
import { NetworkError, StatusError } from '../api/client.ts';

function advice(error: unknown): string | undefined {
  if (error instanceof NetworkError) {
    return 'Check the connection of this machine to the gateway.';
  }
  if (!(error instanceof StatusError)) {
    return undefined;
  }
  switch (error.code) {
    case 401:
      return 'Sign in again.';
    case 403:
      return 'Ask an administrator for the right, or request access with kubectl clusterpass access request.';
    case 404:
      return 'It may have been deleted. Check the name and the cluster.';
    case 409:
      return 'Someone changed the object since you opened it. Load it again, and repeat the change.';
    case 429:
      return 'The gateway limits the requests of each caller. Wait a moment.';
    case 502:
    case 503:
    case 504:
      return 'The clusters view shows which clusters do not answer, and why.';
    default:
      return undefined;
  }
}

// messageOf returns the text of an error for a user.
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function Notice(props: { error: unknown; title?: string; onRetry?: (() => void) | undefined }) {
  const { error } = props;
  const todo = advice(error);
  return (
    <div class="notice" role="alert">
      {props.title && <strong>{props.title}</strong>}
      <p>{error instanceof StatusError && error.reason && <code>{error.reason}</code>} {messageOf(error)}</p>
      {todo && <p>{todo}</p>}
      {props.onRetry && <button type="button" onClick={props.onRetry}>Try again</button>}
    </div>
  );
}
