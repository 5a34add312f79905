// Shows text of a model: fenced code blocks as <pre>, the rest as paragraphs of plain text. Markup in the text stays text.

import { el } from './dom.js';

/** Splits a text into `{code, language, text}`. A fence that is still open ends with the text. */
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

const block = (part) => {
  if (!part.code) return el('div', { class: 'text' });
  const code = el('code');
  const name = part.language || 'code';
  const head = el('div', { class: 'code-head' }, el('span', {}, name));
  if (navigator.clipboard) {
    const copy = async (event) => {
      const button = event.currentTarget;
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = 'Copied';
      setTimeout(() => (button.textContent = 'Copy'), 1500);
    };
    head.append(el('button', { class: 'quiet', type: 'button', 'aria-label': `Copy ${name}`, onclick: copy }, 'Copy'));
  }
  // a long line scrolls, so keyboards must reach the block
  return el('div', { class: 'code' }, head, el('pre', { tabindex: '0', role: 'group', 'aria-label': name }, code));
};

/** Returns an element and a function that sets its text. Only blocks that differ change, so a growing text keeps the user's selection. */
export const textView = () => {
  const element = el('div', { class: 'body' });
  let shown = [];
  const set = (text) => {
    const wanted = parts(text);
    wanted.forEach((part, i) => {
      let old = shown[i];
      if (!old || old.code !== part.code || old.language !== part.language) {
        const fresh = block(part);
        if (old) old.element.replaceWith(fresh);
        else element.append(fresh);
        old = { ...part, text: null, element: fresh };
        shown[i] = old;
      }
      if (old.text !== part.text) {
        (part.code ? old.element.querySelector('code') : old.element).textContent = part.text;
        old.text = part.text;
      }
    });
    for (const { element } of shown.splice(wanted.length)) element.remove();
  };
  return { element, set };
};
