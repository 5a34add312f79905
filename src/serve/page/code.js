// Makes a block of code: its language, a button that copies it, and the highlighted code.

import { copyText, el } from './dom.js';

// above this size, highlighting would delay each new token
const MOST = 60_000;

// The library's tree has a scope per span. Its strings become text nodes, so code is never parsed as HTML.
const spans = (node) => (typeof node === 'string' ? node : el('span', { class: node.scope && `hl-${node.scope.split(/[.:]/)[0]}` }, ...node.children.map(spans)));

const highlighted = (highlight, text, language) => {
  const root = highlight.highlight(text, { language, ignoreIllegals: true })._emitter?.rootNode;
  return root ? root.children.map(spans) : [text];
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
  const highlight = language && text.length < MOST ? need('code') : null;
  const known = highlight?.getLanguage(language);
  const button = el('button', { class: 'quiet', type: 'button', 'aria-label': `Copy ${name}`, onclick: copy }, 'Copy');
  const head = el('div', { class: 'code-head' }, el('span', {}, name), button);
  const code = el('code', {}, ...(known ? highlighted(highlight, text, language) : [text]));
  // a long line scrolls, so keyboards must reach the block
  return el('div', { class: 'code' }, head, el('pre', { tabindex: '0', role: 'group', 'aria-label': name }, code));
};
