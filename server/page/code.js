// Makes a block of code: its language, a button that copies it, and the highlighted code.

import { copyText, el } from './dom.js';
import { watch, wrapButton } from './wide.js';

// above this size, highlighting would delay each new token
const MOST = 60_000;

// Makes elements of the tree of highlight.js, in which each span has a scope. Strings become text nodes, so code is never parsed as HTML.
const spans = (node) => (typeof node === 'string' ? node : el('span', { class: node.scope && `hl-${node.scope.split(/[.:]/)[0]}` }, ...node.children.map(spans)));

const keyOf = (node) => (typeof node === 'string' ? node : `<${node.scope ?? ''}>${node.children.map(keyOf).join('|')}`);

/** Returns nodes of highlight.js, or the plain text if it is long, its language is unknown, or the library still loads. */
const nodesOf = (text, language, need) => {
  const highlight = language && text.length < MOST ? need('code') : null;
  if (!highlight?.getLanguage(language)) return [text];
  return highlight.highlight(text, { language, ignoreIllegals: true })._emitter?.rootNode?.children ?? [text];
};

// maps the element of a block to `{language, keys}`, with one key per node of its code
const shown = new WeakMap();

/** Shows a text in a block. Equal nodes at the beginning stay, so only the end of a growing program is made again. */
const fill = (element, text, language, need) => {
  const code = element.querySelector('code');
  const old = shown.get(element)?.keys ?? [];
  const nodes = nodesOf(text, language, need);
  const keys = nodes.map(keyOf);
  let same = 0;
  while (same < keys.length && keys[same] === old[same]) same += 1;
  while (code.childNodes.length > same) code.lastChild.remove();
  code.append(...nodes.slice(same).map(spans));
  shown.set(element, { language, keys });
};

/** Changes the text of a block. Returns false if the element is no block of this language. */
export const updateCode = (element, text, language, need) => {
  if (shown.get(element)?.language !== language) return false;
  fill(element, text, language, need);
  return true;
};

const copy = async (event) => {
  const button = event.currentTarget;
  await copyText(button.closest('.code').querySelector('code').textContent);
  button.textContent = 'Copied';
  setTimeout(() => (button.textContent = 'Copy'), 1500);
};

/** Makes the element of a block. `need(name)` returns a library, or `null` while it loads. */
export const codeBlock = (text, language, need) => {
  const name = language || 'code';
  const button = el('button', { class: 'quiet', type: 'button', 'aria-label': `Copy ${name}`, onclick: copy }, 'Copy');
  // a long line scrolls, so keyboards must reach the block
  const code = el('code');
  const pre = el('pre', { tabindex: '0', role: 'group', 'aria-label': name }, code);
  const head = el('div', { class: 'code-head' }, el('span', {}, name), wrapButton('the code'), button);
  const element = el('div', { class: 'code scrolls', dir: 'ltr', 'data-view': true }, head, pre);
  watch(pre, code);
  fill(element, text, language, need);
  return element;
};
