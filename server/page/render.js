// Makes elements from the tokens of the Markdown parser. No HTML is parsed: markup that a model writes becomes text nodes.

import { codeBlock } from './code.js';
import { el } from './dom.js';
import { formula } from './formulas.js';
import { checkbox } from './tasks.js';
import { watch, wrapButton } from './wide.js';

// other tags never come from the parser; a token with another tag is shown as text
const TAGS = new Set(['p', 'ul', 'ol', 'li', 'blockquote', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'strong', 'em', 's']);

// Elements with `dir=auto`: their first letter determines their direction. Code and formulas set their own direction, so `auto` skips them. Cells of
// a table get their direction from the style sheet: `auto` of the table, which orders the columns, would skip cells with the attribute `dir`.
const DIRECTED = new Set(['p', 'li', 'blockquote', 'table']);

/** Returns whether an element must have no `dir`, so that `auto` of its parent sees its text: the first paragraph of a quotation or an item. */
const givesDirection = (tag, parent) => tag === 'p' && ['LI', 'BLOCKQUOTE'].includes(parent.tagName) && !parent.childElementCount;

const outside = { target: '_blank', rel: 'noopener noreferrer' };

const opened = (token, parent) => {
  if (token.type === 'link_open') return el('a', { href: token.attrGet('href'), title: token.attrGet('title'), ...outside });
  // one level lower: the title of the page is the only `h1`
  if (token.type === 'heading_open') return el(`h${Math.min(6, Number(token.tag[1]) + 1)}`, { dir: 'auto' });
  if (!TAGS.has(token.tag)) return el('span');
  const side = /right|center/.exec(token.attrGet('style') ?? '')?.[0];
  const dir = DIRECTED.has(token.tag) && !givesDirection(token.tag, parent) ? 'auto' : null;
  return el(token.tag, { class: token.meta?.task ? 'task' : side, dir, start: token.tag === 'ol' ? token.attrGet('start') : null });
};

/** Makes a link in the place of a picture, because the page loads nothing from other sites. */
const picture = (token, isInLink) => {
  const label = token.content || 'picture';
  return isInLink ? label : el('a', { class: 'picture', href: token.attrGet('src'), ...outside }, label);
};

/** Returns text and language of a block of code. */
export const codeOf = (token) => [token.content.replace(/\n$/, ''), token.info.trim().split(/\s+/)[0].toLowerCase()];

const leaf = (token, parent, need) => {
  switch (token.type) {
    case 'text':
      return token.content;
    case 'softbreak':
    case 'hardbreak':
      return el('br');
    case 'code_inline':
      return el('code', { dir: 'ltr' }, token.content);
    case 'fence':
    case 'code_block':
      return codeBlock(...codeOf(token), need);
    case 'formula':
      return formula(token.content, token.meta, need);
    case 'image':
      return picture(token, Boolean(parent.closest('a')));
    case 'task':
      return checkbox(token.meta);
    case 'hr':
      return el('hr');
    default:
      return token.content;
  }
};

const closed = (element) => {
  // a wide table scrolls, so keyboards must reach it
  if (element.tagName !== 'TABLE') return;
  const box = el('div', { class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Table' });
  // moves `dir` to the box, so that a narrow table is at the side of its first column
  if (element.dir) box.dir = element.dir;
  element.removeAttribute('dir');
  element.replaceWith(el('div', { class: 'scrolls', 'data-view': true }, wrapButton('the table'), box));
  watch(box, element);
  box.append(element);
};

/** Appends the elements of `tokens` to `parent`. `need(name)` returns a library, or `null` while it loads. */
export const render = (tokens, parent, need) => {
  let at = parent;
  for (const token of tokens) {
    // the parser hides the paragraphs of a tight list
    if (token.hidden) continue;
    if (token.type === 'inline') render(token.children, at, need);
    else if (token.nesting > 0) {
      const element = opened(token, at);
      at.append(element);
      at = element;
    } else if (token.nesting < 0) {
      const element = at;
      at = at.parentElement;
      closed(element);
    } else at.append(leaf(token, at, need));
  }
  return parent;
};
