import type { ViewProps } from '../../router.tsx';

export default function ObjectView(_props: ViewProps) {
  return <h1>Object</h1>;
}
