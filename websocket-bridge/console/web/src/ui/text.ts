// Texts of others, shown so that they look like what they are.

// Ranges of characters for regular expressions: those that reverse the direction of text or separate lines, and control
// characters from DEL.
export const reversing = '\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069';
export const highControls = '\\u007f-\\u009f';

// escapeOf returns a character as its number, such as \u202e.
export function escapeOf(c: string): string {
  return `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

const reversed = new RegExp(`[${reversing}]`, 'g');

// visible shows characters that reverse the direction of text as numbers, so that text looks like what it is.
export function visible(text: string): string {
  return text.replace(reversed, escapeOf);
}
