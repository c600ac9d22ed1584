// xterm.js makes style elements and style attributes. The policy of the page refuses both, and allows the CSSOM. The
// same styles are set there.

let users = 0;

// adaptDocument replaces createElement of the page's document until the returned function is called. The renderer of
// xterm.js uses the global document also with its option documentOverride.
export function adaptDocument(): () => void {
  if (users++ === 0) {
    document.createElement = ((name: string, options?: ElementCreationOptions) => {
      switch (name) {
        case 'style':
          return sheetElement();
        case 'span':
          return styledElement(original(name, options));
        default:
          return original(name, options);
      }
    }) as Document['createElement'];
  }
  return () => {
    if (--users === 0) {
      delete (document as Partial<Pick<Document, 'createElement'>>).createElement;
    }
  };
}

function original(name: string, options?: ElementCreationOptions): HTMLElement {
  return Document.prototype.createElement.call(document, name, options);
}

// styledElement returns an element whose attribute style is set by the CSSOM.
function styledElement(element: HTMLElement): HTMLElement {
  element.setAttribute = (name, value) => {
    if (name === 'style') {
      element.style.cssText = value;
    } else {
      Element.prototype.setAttribute.call(element, name, value);
    }
  };
  return element;
}

// sheetElement returns an element whose text becomes a constructed style sheet of the page, until it is removed.
function sheetElement(): HTMLElement {
  const sheet = new CSSStyleSheet();
  const element = original('data');
  element.hidden = true;
  Object.defineProperty(element, 'textContent', {
    set: (css: string) => {
      sheet.replaceSync(css);
      if (!document.adoptedStyleSheets.includes(sheet)) {
        document.adoptedStyleSheets.push(sheet);
      }
    },
  });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}
