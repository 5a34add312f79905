// The list of models that the page knows, and the list of downloaded files.

import * as wingbeat from '../wingbeat/index.js';
import { byId, el, iconButton } from '../page/dom.js';
import { last } from './last.js';
import { size } from './words.js';

const addresses = (entry) => entry.files.map((file) => new URL(file, document.baseURI).href);

/**
 * Returns the source of an entry, for `wingbeat.load`. The files have names, so the package asks no host for a list, and downloaded files load
 * offline.
 */
export const sourceOf = (entry) => addresses(entry).map((url) => ({ name: decodeURIComponent(url.split('/').pop()), url }));

/** Returns the entries of models.json. */
export const entries = async () => {
  const response = await fetch(new URL('../models.json', import.meta.url));
  if (!response.ok) throw new Error(`models.json: the server answered ${response.status}`);
  return response.json();
};

const facts = (entry) => [entry.size, entry.licence && `licence ${entry.licence}`].filter(Boolean).join(' · ');

const linkTo = (entry) =>
  el('a', { href: entry.page, target: '_blank', rel: 'noopener' }, 'model’s page', el('span', { class: 'hidden' }, ` of ${entry.name} (new tab)`));

const row = (entry, { isLast, isHere, load }) => {
  const attributes = { class: isLast ? 'solid' : 'plain', type: 'button', 'aria-label': `Load ${entry.name}`, 'data-id': entry.id };
  const button = el('button', { ...attributes, onclick: () => load(entry) }, 'Load');
  return el(
    'li',
    {},
    el(
      'div',
      {},
      el('strong', {}, entry.name, isLast && el('span', { class: 'chip' }, 'last used'), isHere && el('span', { class: 'chip' }, 'downloaded')),
      el('span', {}, entry.about),
      el('span', { class: 'fine' }, facts(entry), ...(entry.page ? [' · ', linkTo(entry)] : [])),
    ),
    button,
  );
};

/** Shows the list of models, with the last used model first. `load(entry)` loads a model. */
const showModels = (list, cached, load) => {
  const previous = last();
  const complete = new Set(cached.filter((file) => file.isComplete).map((file) => file.url));
  const isLast = (entry) => previous?.id === entry.id;
  const isHere = (entry) => addresses(entry).every((url) => complete.has(url));
  const sorted = list.toSorted((a, b) => isLast(b) - isLast(a));
  const rows = sorted.map((entry) => row(entry, { isLast: isLast(entry), isHere: isHere(entry), load }));
  byId('start-models').replaceChildren(...rows);
};

const showCache = (cached, refresh) => {
  const section = byId('start-cache');
  section.hidden = !cached.length;
  const rows = cached.map((file) => {
    const name = decodeURIComponent(file.url.split('/').pop());
    const amount = file.isComplete ? size(file.size) : `${size(file.bytes)} of ${size(file.size)}`;
    const remove = async () => {
      await wingbeat.cache.remove(file.url);
      await refresh();
      (section.hidden ? byId('start-list-title') : section.querySelector('button')).focus();
    };
    return el('li', {}, el('div', {}, el('strong', {}, name), el('span', { class: 'fine' }, amount)), iconButton('delete', `Remove ${name}`, remove));
  });
  section.querySelector('ul').replaceChildren(...rows);
};

/** Shows the list of models and the list of downloaded files. `load(entry)` loads a model. */
export const show = async (list, load) => {
  const cached = await wingbeat.cache.list().catch(() => []);
  showModels(list, cached, load);
  showCache(cached, () => show(list, load));
};
