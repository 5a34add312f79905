// Shows how far a model is loaded: a bar for each stage, with bytes, rate and remaining time.

import { say } from '../page/announce.js';
import { byId, el, perFrame } from '../page/dom.js';
import { duration, size } from './words.js';

const TITLES = { check: 'Test of the GPU', download: 'Download', weights: 'Weights: converted and copied to the device', kernels: 'Kernels' };

const words = ({ stage, loaded, total, rate }) => {
  if (stage === 'check') return loaded < total ? `compares it with the CPU${loaded ? `: ${loaded} of ${total} cases` : ''}` : 'done';
  if (stage === 'kernels') return `${loaded} of ${total}`;
  const left = rate > 0 ? (total - loaded) / rate : 0;
  return [`${size(loaded)} of ${size(total)}`, rate > 0 && `${size(rate)}/s`, left > 2 && `${duration(left)} left`].filter(Boolean).join(' · ');
};

const row = (stage) => {
  const bar = el('progress', { max: '1', value: 0, 'aria-label': TITLES[stage] ?? stage });
  const numbers = el('span', {});
  const element = el('div', { class: 'stage', 'data-stage': stage }, el('p', {}, el('strong', {}, TITLES[stage] ?? stage), numbers), bar);
  return { element, bar, numbers };
};

/** Begins to show the progress of a model. Returns a function for the events of the package. */
export const begin = (name) => {
  byId('start-loading').textContent = `Loading ${name}`;
  byId('start-stages').replaceChildren(el('p', { class: 'stage' }, 'Looking for the files…'));
  const rows = new Map();
  const latest = new Map();
  let last = null;
  // the last announced quarter of each stage, in %
  const announced = new Map();

  const announce = ({ stage, loaded, total }) => {
    const quarter = total ? Math.floor((loaded / total) * 4) * 25 : 0;
    if (announced.get(stage) === quarter) return;
    announced.set(stage, quarter);
    if (stage === 'check' && [0, 100].includes(quarter)) return say(quarter ? 'The GPU is tested.' : 'The GPU is being tested.');
    say(`${(TITLES[stage] ?? stage).replace(/:.*/, '')}: ${quarter} %.`);
  };

  const draw = perFrame(() => {
    if (!byId('start-stages').isConnected || byId('start-progress').hidden) return;
    if (!rows.size) byId('start-stages').replaceChildren();
    for (const [stage, event] of latest) {
      if (!rows.has(stage)) {
        rows.set(stage, row(stage));
        byId('start-stages').append(rows.get(stage).element);
      }
      const { bar, numbers } = rows.get(stage);
      // the number of cases is known only after the first case; until then, the bar shows no value
      if (stage === 'check' && !event.loaded) bar.removeAttribute('value');
      else bar.value = event.total ? event.loaded / event.total : 0;
      numbers.textContent = words(event);
      announce(event);
    }
    const { stage, loaded, total } = last;
    if (stage !== 'check') document.title = `${total ? Math.floor((loaded / total) * 100) : 0} % · wingbeat`;
  });

  return (event) => {
    last = event;
    latest.set(event.stage, event);
    draw();
  };
};
