// The view before the chat: chooses a model, shows how far it is loaded, and hands it to the page.

import * as wingbeat from './wingbeat/index.js';
import { use } from './page/api.js';

const byId = (id) => document.getElementById(id);
const LAST = 'wingbeat.last';
const STAGES = { check: 'Testing the GPU', download: 'Downloading', weights: 'Copying the weights to the device', kernels: 'Preparing the kernels' };

const size = (bytes) => (bytes >= 1e9 ? `${(bytes / 1e9).toFixed(2)} GB` : `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`);

let controller = null;

const remembered = () => {
  try {
    return JSON.parse(localStorage.getItem(LAST));
  } catch {
    return null;
  }
};

const remember = (choice) => {
  try {
    localStorage.setItem(LAST, JSON.stringify(choice));
  } catch {
    // without storage, the next visit asks again
  }
};

const show = ({ stage, loaded, total, rate }) => {
  byId('start-stage').textContent = `${STAGES[stage] ?? 'Loading'}…`;
  byId('start-bar').value = total ? loaded / total : 0;
  const unit = stage === 'kernels' ? `${loaded} of ${total} kernels` : `${size(loaded)} of ${size(total)}`;
  byId('start-bytes').textContent = rate ? `${unit}, ${size(rate)} per second` : unit;
};

const busy = (isBusy) => {
  byId('start-choice').hidden = isBusy;
  byId('start-progress').hidden = !isBusy;
  if (isBusy) byId('start-cancel').focus();
};

const fail = (error) => {
  const problem = byId('start-error');
  problem.textContent = [error.message, error.hint].filter(Boolean).join(' ');
  problem.hidden = false;
};

/** Loads a model and opens the chat. */
async function load(source, { quant = byId('start-quant').value, choice = null, ...options } = {}) {
  byId('start-error').hidden = true;
  busy(true);
  show({ stage: 'download', loaded: 0, total: 0 });
  controller = new AbortController();
  try {
    const model = await wingbeat.load(source, { quant, ...options, signal: controller.signal, onProgress: show });
    if (choice) remember({ ...choice, quant });
    use(model);
    globalThis.wingbeatModel = model;
    byId('start').hidden = true;
    byId('app').hidden = false;
    document.body.classList.remove('starting');
    await import('./page/main.js');
  } catch (error) {
    busy(false);
    if (error.name !== 'AbortError') fail(error);
    byId('start-models').querySelector('button')?.focus();
  }
}

const entry = ({ name, source, bytes, about, licence }) => {
  const item = document.createElement('li');
  const button = Object.assign(document.createElement('button'), { type: 'button', className: 'plain' });
  const title = Object.assign(document.createElement('strong'), { textContent: name });
  const note = Object.assign(document.createElement('span'), { className: 'fine', textContent: [about, size(bytes), licence].filter(Boolean).join(' · ') });
  button.append(title, note);
  const sources = Array.isArray(source) ? source.map((each) => new URL(each, document.baseURI).href) : source;
  button.addEventListener('click', () => load(sources, { choice: { source: sources, name }, ...(bytes < 1e7 && { quant: '' }) }));
  item.append(button);
  return item;
};

const begin = async () => {
  byId('start-cancel').addEventListener('click', () => controller?.abort());
  byId('start-address').addEventListener('submit', (event) => {
    event.preventDefault();
    const source = byId('start-url').value.trim();
    load(source, { choice: { source, name: source } });
  });
  byId('start-open').addEventListener('click', () => byId('start-files').click());
  byId('start-files').addEventListener('change', ({ target }) => target.files.length && load([...target.files]));
  const start = byId('start');
  start.addEventListener('dragover', (event) => {
    event.preventDefault();
    start.classList.add('over');
  });
  start.addEventListener('dragleave', () => start.classList.remove('over'));
  start.addEventListener('drop', async (event) => {
    event.preventDefault();
    start.classList.remove('over');
    const handles = await Promise.all([...event.dataTransfer.items].map((item) => item.getAsFileSystemHandle?.() ?? null));
    const folder = handles.find((handle) => handle?.kind === 'directory');
    const files = folder ? folder : handles.every((handle) => handle) ? await Promise.all(handles.map((handle) => handle.getFile())) : [...event.dataTransfer.files];
    load(files);
  });
  const { verdict, hint } = await wingbeat.check();
  byId('start-check').textContent = [verdict, hint && `${hint[0].toUpperCase()}${hint.slice(1)}.`].filter(Boolean).join(' ');
  const list = await (await fetch('models.json')).json();
  const last = remembered();
  if (last) list.unshift({ name: `Again: ${last.name}`, source: last.source, bytes: list.find(({ name }) => name === last.name)?.bytes ?? 0, about: 'the model of the last visit' });
  byId('start-models').replaceChildren(...list.map(entry));
  const cached = await wingbeat.cache.list().catch(() => []);
  if (cached.length) {
    const note = byId('start-cached');
    note.textContent = `${size(cached.reduce((sum, { bytes }) => sum + bytes, 0))} of models are kept in this browser. `;
    const remove = Object.assign(document.createElement('button'), { type: 'button', className: 'plain', textContent: 'Remove them' });
    remove.addEventListener('click', async () => {
      await wingbeat.cache.remove();
      note.hidden = true;
    });
    note.append(remove);
    note.hidden = false;
  }
};

if ('serviceWorker' in navigator) navigator.serviceWorker.register('sw.js').catch(() => {});
begin();
