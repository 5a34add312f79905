// Changes a tree of elements into another one in place: equal parts stay, so the user's selection and scroll positions stay, and nothing flickers.

const alike = (a, b) => a.nodeName === b.nodeName && (a.nodeType !== Node.ELEMENT_NODE || a.getAttribute('class') === b.getAttribute('class'));

const setText = (node, text) => {
  // an addition keeps a selection inside of the text
  if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
  else node.data = text;
};

const setAttributes = (old, fresh) => {
  // the user changes these attributes, for example with the button that wraps lines
  if (old.hasAttribute('data-view')) return;
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    // the page's content security policy forbids style attributes, so the style is set as properties, as in formulas
    if (name === 'style') old.style.cssText = fresh.style.cssText;
    else if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
};

/** Changes the children of `old` into the children of `fresh`. */
export const morphChildren = (old, fresh) => {
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    if (!at) {
      old.append(wanted);
      continue;
    }
    const next = at.nextSibling;
    morph(at, wanted);
    at = next;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
};

/** Changes `old` into `fresh`. Returns the node that is now in the document: `old`, or `fresh` if their kinds differ. */
export const morph = (old, fresh) => {
  if (!alike(old, fresh)) {
    old.replaceWith(fresh);
    return fresh;
  }
  if (old.isEqualNode(fresh)) return old;
  if (old.nodeType === Node.TEXT_NODE) setText(old, fresh.data);
  else {
    setAttributes(old, fresh);
    morphChildren(old, fresh);
  }
  return old;
};
