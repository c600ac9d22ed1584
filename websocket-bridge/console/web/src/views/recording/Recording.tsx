import type { ViewProps } from '../../router.tsx';

export default function RecordingView(_props: ViewProps) {
  return <h1>Recording</h1>;
}
