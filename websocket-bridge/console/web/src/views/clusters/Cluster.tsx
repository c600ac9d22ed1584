import type { ViewProps } from '../../router.tsx';

export default function ClusterView(_props: ViewProps) {
  return <h1>Cluster</h1>;
}
