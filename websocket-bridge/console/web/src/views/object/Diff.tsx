// Diff shows the lines that differ between two texts.
import { structuredPatch } from 'diff';
import { visible } from '../../ui/text.ts';
import { useMemo } from 'preact/hooks';

const context = 3;
const longest = 1_000; // milliseconds of comparison
const mostLines = 2_000;

export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  const hunks = useMemo(
    () => structuredPatch('', '', before, after, '', '', { context, timeout: longest })?.hunks, [before, after],
  );
  if (!hunks) {
    return <p class="muted">The texts differ in too many lines to show them.</p>;
  }
  if (hunks.length === 0) {
    return <p class="muted">No difference.</p>;
  }
  const lines = hunks.flatMap((h) => [`@@ line ${h.oldStart} @@`, ...h.lines]);
  const kinds: Record<string, string> = { '+': 'added', '-': 'removed', '@': 'place' };
  return (
    <div class="diff" role="region" aria-label={label} tabIndex={0}>
      {lines.slice(0, mostLines).map((line, i) => <div key={i} class={kinds[line[0] ?? ''] ?? ''}>{visible(line)}</div>)}
      {lines.length > mostLines && <div class="place">{lines.length - mostLines} more lines</div>}
    </div>
  );
}
