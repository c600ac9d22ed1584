import type { ViewProps } from '../../router.tsx';

export default function GatewayView(_props: ViewProps) {
  return <h1>Gateway</h1>;
}
