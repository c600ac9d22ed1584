// With the attribute type "text", the style sheet is a string for adopt of ui/sheet.ts.
declare module '*.css' {
  const css: string;
  export default css;
}
