// Shows short texts above the page for some seconds. The region is a status region, so screen readers announce the texts.

import { byId, el } from './dom.js';

let hiding = 0;

/** Shows a text, with an optional button `{label, run}`. */
export const toast = (text, action = null) => {
  const box = byId('toast');
  const close = () => box.replaceChildren();
  const run = () => {
    close();
    action.run();
  };
  clearTimeout(hiding);
  hiding = setTimeout(close, action ? 8000 : 4000);
  const button = action && el('button', { class: 'quiet', type: 'button', onclick: run }, action.label);
  box.replaceChildren(el('div', {}, el('span', {}, text), button ?? ''));
};
