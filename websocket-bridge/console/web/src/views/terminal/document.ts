// A document for xterm.js, whose renderer makes style elements and style attributes. The policy of the page refuses both,
// and allows the CSSOM, so that the same styles are set there.

function refit(element: HTMLElement): HTMLElement {
  const setAttribute = element.setAttribute.bind(element);
  element.setAttribute = (name, value) => {
    if (name === 'style') {
      element.style.cssText = value;
    } else {
      setAttribute(name, value);
    }
  };
  return element;
}

// sheetElement returns an element whose text becomes a constructed style sheet of the page, until it is removed.
function sheetElement(original: Document['createElement']): HTMLElement {
  const sheet = new CSSStyleSheet();
  const element = original('data');
  element.hidden = true;
  const withdraw = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
  };
  Object.defineProperty(element, 'textContent', {
    set: (css: string) => {
      sheet.replaceSync(css);
      if (!document.adoptedStyleSheets.includes(sheet)) {
        document.adoptedStyleSheets.push(sheet);
      }
    },
  });
  element.remove = () => {
    withdraw();
    HTMLElement.prototype.remove.call(element);
  };
  return element;
}

function creator(): Document['createElement'] {
  const original = Document.prototype.createElement.bind(document) as Document['createElement'];
  return ((name: string, options?: ElementCreationOptions) =>
    name === 'style' ? sheetElement(original) : refit(original(name, options))) as Document['createElement'];
}

// terminalDocument returns the page's document with another createElement. It is for the option documentOverride.
export function terminalDocument(): Document {
  const createElement = creator();
  return new Proxy(document, {
    get: (target, name) => {
      if (name === 'createElement') {
        return createElement;
      }
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value as (...args: unknown[]) => unknown).bind(target) : value;
    },
    set: (target, name, value) => Reflect.set(target, name, value, target),
  });
}

// withTerminalDocument replaces createElement of the page's document while run runs. Terminal.open makes one style
// element without regard to documentOverride.
export function withTerminalDocument(run: () => void): void {
  document.createElement = creator();
  try {
    run();
  } finally {
    delete (document as Partial<Pick<Document, 'createElement'>>).createElement;
  }
}
