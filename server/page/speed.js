// Plots the tokens per second of the answer that is being received, or of the last one.

import { byId, el, perFrame, svg } from './dom.js';
import { count } from './numbers.js';

const WIDTH = 248;
const HEIGHT = 64;
const STEP = 100;
const WINDOW = 600;
/** The fewest tokens with a plot: a plot of fewer tokens would show mostly noise. */
const FEWEST = 100;

let times = [];
let total = null;

/** Returns the tokens per second after every `STEP` ms, averaged over the last `WINDOW` ms. `times` has the time of each token in ms, ascending. */
export const curve = (times) => {
  const points = [];
  const end = times.at(-1);
  let from = 0;
  let to = 0;
  for (let t = times[0] + STEP; t <= end || !points.length; t += STEP) {
    const span = Math.min(WINDOW, t - times[0]);
    while (to < times.length && times[to] <= t) to += 1;
    while (times[from] <= t - span && from < to) from += 1;
    points.push(((to - from) * 1000) / span);
  }
  return points;
};

const draw = perFrame(() => {
  const box = byId('speed');
  if (!times.length) {
    box.textContent = 'Tokens per second appear here during an answer.';
    byId('rate').textContent = '';
    return;
  }
  const all = curve(times);
  // an answer of less than a step has no curve
  const points = all.length > 1 ? all.slice(-240) : [total ?? all[0]];
  const now = total ?? points.at(-1);
  const high = Math.max(...points, now, 1);
  const at = (value, i) => `${((i / Math.max(points.length - 1, 1)) * WIDTH).toFixed(1)} ${(HEIGHT - 2 - (value / high) * (HEIGHT - 12)).toFixed(1)}`;
  const line = points.length > 1 ? points.map(at).join('L') : `${at(points[0], 0)}H${WIDTH}`;
  const alternative = `Tokens per second: ${total ? 'average' : 'now'} ${now.toFixed(1)}, highest ${high.toFixed(1)}`;
  const plot =
    times.length >= FEWEST &&
    svg(
      'svg',
      { role: 'img', 'aria-label': alternative, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none' },
      svg('path', { class: 'area', d: `M0 ${HEIGHT}L${line}V${HEIGHT}Z` }),
      svg('path', { class: 'line', d: `M${line}` }),
    );
  const words = plot ? `${count(times.length, 'token')} · highest ${high.toFixed(1)}` : count(times.length, 'token');
  box.replaceChildren(el('p', { class: 'now' }, el('strong', {}, now.toFixed(1)), ` tokens/s${total ? ' on average' : ''}`), plot || '', el('p', { class: 'fine' }, words));
  byId('rate').textContent = total ? '' : `${now.toFixed(0)} tokens/s`;
});

/** Begins a plot. */
export const begin = () => {
  times = [];
  total = null;
  draw();
};

/** Adds a token. */
export const token = () => {
  times.push(performance.now());
  draw();
};

/** Ends the plot. `rate` is the average of the answer, or `null`. */
export const end = (rate) => {
  total = rate || (times.length ? curve(times).at(-1) : null);
  byId('rate').textContent = '';
  draw();
};

draw();
