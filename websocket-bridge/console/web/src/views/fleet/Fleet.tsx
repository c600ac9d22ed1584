import type { ViewProps } from '../../router.tsx';

export default function FleetView(_props: ViewProps) {
  return <h1>Fleet</h1>;
}
