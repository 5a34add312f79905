// Makes elements. Text becomes text nodes only: no function of this page parses HTML.

const make = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value') element.value = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};

/** Makes an HTML element. Attributes named `on…` are listeners; `false` and `null` leave an attribute or a child out. */
export const el = (tag, attributes = {}, ...children) => make(document.createElement(tag), attributes, children);

/** Makes an SVG element, with the rules of `el`. */
export const svg = (tag, attributes = {}, ...children) =>
  make(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

/** Makes an icon from the symbol `i-NAME` of index.html. */
export const icon = (name) => svg('svg', { class: 'icon', 'aria-hidden': 'true' }, svg('use', { href: `#i-${name}` }));

/** Makes a button with an icon. The text is the tooltip, and the label for screen readers. */
export const iconButton = (name, label, onclick, attributes = {}) =>
  el('button', { class: 'quiet', type: 'button', 'aria-label': label, title: label, onclick, ...attributes }, icon(name));

/** Returns the element with this id. */
export const byId = (id) => document.getElementById(id);

/** Saves a text or a blob as a file of the user. */
export const download = (name, content, type = 'application/json') => {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = el('a', { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
};

/**
 * Copies a text. Browsers offer `navigator.clipboard` only to pages with HTTPS or from localhost; on other pages, copies the text of a selected
 * field.
 */
export const copyText = async (text) => {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const focused = document.activeElement;
  const field = el('textarea', { class: 'hidden', value: text });
  document.body.append(field);
  field.select();
  document.execCommand('copy');
  field.remove();
  focused?.focus();
};

/** Returns a function that calls `f` at most once per frame, and always after its last call. A slow `f` gets at most half of the time. */
export const perFrame = (f) => {
  let asked = false;
  let rest = 0;
  return () => {
    if (asked) return;
    asked = true;
    const run = () => {
      asked = false;
      const began = performance.now();
      f();
      const end = performance.now();
      rest = end + (end - began);
    };
    const wait = rest - performance.now();
    // a hidden tab paints no frames
    if (document.hidden || wait > 16) setTimeout(run, document.hidden ? 100 : wait);
    else requestAnimationFrame(run);
  };
};
