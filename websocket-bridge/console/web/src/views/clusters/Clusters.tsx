import type { ViewProps } from '../../router.tsx';

export default function ClustersView(_props: ViewProps) {
  return <h1>Clusters</h1>;
}
