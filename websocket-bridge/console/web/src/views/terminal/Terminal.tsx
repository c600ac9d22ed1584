import css from '@xterm/xterm/css/xterm.css' with { type: 'text' };
import type { ViewProps } from '../../router.tsx';
import { adopt } from '../../ui/sheet.ts';

adopt(css);

export default function TerminalView(_props: ViewProps) {
  return <h1>Terminal</h1>;
}
