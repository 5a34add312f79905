// Shows why an answer has no new text: the server computes the prompt, or the connection is lost.

import { seconds } from './dates.js';
import { el } from './dom.js';
import { number } from './numbers.js';

/** Returns the words for the progress of a prefill, with the time that the rest will take. */
export const words = ({ total, cache = 0, processed, time_ms: time }) => {
  const done = Math.max(processed - cache, 0);
  const rest = done > 0 && time > 500 ? (time / done) * (total - processed) : 0;
  const left = rest > 1000 ? ` · about ${seconds(rest)} left` : '';
  return `Prefill: ${number(processed)} of ${number(total)} tokens${left}`;
};

/** Makes `{element, update}`; `update(isWaiting, live)` shows the state of a running answer. */
export const waitingView = () => {
  const bar = el('progress', { 'aria-label': 'Prefill of the prompt' });
  const text = el('span', {}, 'Waiting for the answer');
  const element = el('p', { class: 'waiting', hidden: true }, text, bar);

  const update = (isWaiting, live) => {
    const progress = isWaiting ? live?.progress : null;
    element.hidden = !isWaiting && !live?.isLost;
    bar.hidden = !progress;
    // the pulsing dot says enough; the words are for screen readers
    text.classList.toggle('hidden', !progress && !live?.isLost);
    if (live?.isLost) text.textContent = 'The connection is lost. Connecting again…';
    else if (progress) {
      text.textContent = words(progress);
      bar.max = progress.total;
      bar.value = progress.processed;
    } else text.textContent = 'Waiting for the answer';
  };
  return { element, update };
};
