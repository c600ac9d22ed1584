// Output of a container as text that cannot change how other text looks.
import { escapeOf, highControls, reversing } from '../../ui/text.ts';

// Sequences that set colours, titles and the like.
const sequences = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]{0,4096}(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
// Control characters but tab, and the characters that reverse the direction of text.
const controls = new RegExp(`[\\u0000-\\u0008\\u000a-\\u001f${highControls}${reversing}]`, 'g');

// printable removes sequences for terminals, and shows other control characters as symbols or as numbers.
export function printable(text: string): string {
  return text.replace(sequences, '').replace(controls, (c) => {
    const code = c.charCodeAt(0);
    if (code < 0x20) {
      return String.fromCharCode(0x2400 + code);
    }
    return code === 0x7f ? '\u2421' : escapeOf(c);
  });
}
