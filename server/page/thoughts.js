// Shows the thought of an answer: while the model thinks, its seconds and its last line; afterwards its duration, and the whole text on request.

import { seconds } from './dates.js';
import { el } from './dom.js';
import { markdownView } from './markdown.js';

// characters, about two lines on a phone
const LONGEST = 72;

/** Returns the last line of a text, shortened at its beginning. */
export const lastLine = (text) => {
  const line = text.trimEnd().split('\n').at(-1).trim();
  return line.length > LONGEST ? `…${line.slice(-LONGEST).replace(/^\S*\s/, '')}` : line;
};

const label = ({ thought }, thinks) => {
  // answers of an earlier version of this page have no times
  if (!thought) return thinks ? 'Thinking…' : 'Thoughts';
  const ms = (thinks ? Date.now() : (thought.to ?? Date.now())) - thought.from;
  const time = ms < 1000 ? 'a moment' : seconds(ms);
  return thinks ? `Thinking for ${time}` : `Thought for ${time}`;
};

/** Makes `{element, update}`; `update(node, thinks)` shows the thought of an answer. */
export const thoughtsView = () => {
  const text = markdownView();
  const summary = el('summary', {});
  // screen readers skip the last line, because the details have the whole text
  const last = el('p', { class: 'last', dir: 'auto', 'aria-hidden': 'true' });
  const details = el('details', { class: 'thoughts' }, summary, text.element);
  const element = el('div', { hidden: true }, details, last);
  let shown = null;
  let timer = 0;

  const tick = () => {
    summary.textContent = label(...shown);
    if (!element.isConnected) stop();
  };
  const stop = () => {
    clearInterval(timer);
    timer = 0;
  };
  // only an open text is rendered, so a folded text costs no time while it grows
  details.addEventListener('toggle', () => shown && update(...shown));

  const update = (node, thinks) => {
    shown = [node, thinks];
    element.hidden = !node.reasoning;
    if (!node.reasoning) return;
    if (details.open) {
      text.wake();
      text.set(node.reasoning, thinks);
    }
    last.hidden = !thinks || details.open;
    last.textContent = thinks ? lastLine(node.reasoning) : '';
    tick();
    if (thinks) timer ||= setInterval(tick, 1000);
    else stop();
  };
  return { element, update };
};
