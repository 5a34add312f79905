// Shows what a user wrote, with its line breaks and spaces: fenced code blocks as code, the rest as plain text.

import { codeBlock } from './code.js';
import { el } from './dom.js';
import { library } from './libraries.js';

/** Splits a text into parts `{code, language, text}`; `code` is true for a fenced block. A fence that is still open ends with the text. */
export const parts = (text) => {
  const found = [];
  let lines = [];
  let fence = null;
  let language = '';
  const end = () => {
    const content = lines.join('\n');
    if (fence || content.trim()) found.push({ code: Boolean(fence), language, text: fence ? content : content.replace(/^\n+|\s+$/g, '') });
    lines = [];
  };
  for (const line of text.split('\n')) {
    const mark = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/.exec(line);
    if (fence ? mark && !mark[2] && mark[1].startsWith(fence) : mark) {
      end();
      fence = fence ? null : mark[1];
      language = fence ? mark[2] : '';
    } else lines.push(line);
  }
  end();
  return found;
};

/** Makes `{element, set}`: `set(text)` shows a text. */
export const textView = () => {
  const element = el('div', { class: 'body' });
  let shown = null;
  const refresh = () => {
    const text = shown;
    shown = null;
    set(text);
  };
  const block = (part) => (part.code ? codeBlock(part.text, part.language, (name) => library(name, refresh)) : el('div', { class: 'text', dir: 'auto' }, part.text));
  const set = (text) => {
    if (text === shown) return;
    shown = text;
    element.replaceChildren(...parts(text).map(block));
  };
  return { element, set };
};
