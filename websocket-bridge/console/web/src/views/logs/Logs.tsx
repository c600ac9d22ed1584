import type { ViewProps } from '../../router.tsx';

export default function LogsView(_props: ViewProps) {
  return <h1>Logs</h1>;
}
