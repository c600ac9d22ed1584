// A command as the user types it, split by the rules of a POSIX shell. Nothing is expanded.
import { quote } from '../../ui/AsKubectl.tsx';

// splitCommand returns the arguments of a command. It throws if a quote does not end.
export function splitCommand(text: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  let quoted = '';
  for (let i = 0; i < text.length; i++) {
    const c = text.charAt(i);
    if (quoted !== '') {
      if (c === quoted) {
        quoted = '';
      } else if (c === '\\' && quoted === '"' && '"\\$`'.includes(text.charAt(i + 1)) && i + 1 < text.length) {
        word += text.charAt(++i);
      } else {
        word += c;
      }
    } else if (c === "'" || c === '"') {
      quoted = c;
      word ??= '';
    } else if (c === '\\' && i + 1 < text.length) {
      word = (word ?? '') + text.charAt(++i);
    } else if (/\s/.test(c)) {
      if (word !== undefined) {
        words.push(word);
        word = undefined;
      }
    } else {
      word = (word ?? '') + c;
    }
  }
  if (quoted !== '') {
    throw new Error(`the quote ${quoted} does not end`);
  }
  return word === undefined ? words : [...words, word];
}

// joinCommand is the inverse of splitCommand.
export function joinCommand(words: string[]): string {
  return words.map(quote).join(' ');
}
