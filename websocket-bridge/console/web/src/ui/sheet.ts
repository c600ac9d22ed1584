// Style sheets of views that are loaded late. The page's policy allows no style elements, but constructed sheets.

const adopted = new Set<string>();

// adopt adds the text of a style sheet to the page once:
//   import css from './view.css' with { type: 'text' };
export function adopt(css: string): void {
  if (adopted.has(css)) {
    return;
  }
  adopted.add(css);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  document.adoptedStyleSheets.push(sheet);
}
