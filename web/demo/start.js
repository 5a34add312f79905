// The view before the chat. The user chooses a model here, sees how far the model is loaded, and can return to choose another model.

import * as wingbeat from '../wingbeat/index.js';
import { say } from '../page/announce.js';
import { byId, el, icon } from '../page/dom.js';
import { start } from '../page/main.js';
import { toast } from '../page/toast.js';
import * as choice from './choice.js';
import { onChoose, onDrop } from './drop.js';
import { last, remember } from './last.js';
import * as local from './local.js';
import { keepOffline } from './offline.js';
import { begin } from './progress.js';
import { sentence } from './words.js';

let list = [];
let model = null;
let page = null;
// aborts the load that is running, or `null`
let controller = null;

const showView = (name) => {
  document.body.dataset.view = name;
  byId('app').hidden = name !== 'chat';
};
const isChoosing = () => document.body.dataset.view === 'start' && !controller;

const showLoading = (isLoading) => {
  byId('start-progress').hidden = !isLoading;
  byId('start-choice').hidden = isLoading;
  byId('start-back').hidden = isLoading || !page;
};

const clearError = () => {
  byId('start-error').hidden = true;
  byId('start-error').replaceChildren();
};

const showError = (error, again) => {
  const box = byId('start-error');
  const hint = sentence(error.hint);
  const button = el('button', { class: 'plain', type: 'button', onclick: again }, 'Try again');
  box.hidden = false;
  box.replaceChildren(el('p', {}, sentence(error.message ?? error)), ...(hint ? [el('p', {}, hint)] : []), button);
  box.scrollIntoView({ block: 'nearest' });
  button.focus();
};

/** Shows the model's name, number format and device, below the plot of the speed. */
const showDevice = ({ device, dtype, notes }, name) => {
  byId('device')?.remove();
  const words = [name, dtype, device.backend === 'cpu' ? 'on the CPU' : `on ${device.name}`].filter(Boolean).join(' · ');
  byId('speed').after(el('p', { id: 'device', class: 'fine' }, words, ...(notes ?? []).map((note) => ` ${sentence(note)}`)));
};

const openChat = async (name) => {
  if (page) await page.refresh();
  else {
    addChangeButton();
    page = await start(local);
  }
  // shows the chat only now, because shortcuts have no effect before `start` is done
  showView('chat');
  showDevice(model.info, name);
  (model.info.notes ?? []).forEach((note) => toast(sentence(note)));
  say(`${name} is loaded. Write a message.`);
  // on a touch screen the focus would open the keyboard
  const target = byId(matchMedia('(hover: hover)').matches ? 'input' : 'title');
  if (target.id === 'title') target.tabIndex = -1;
  target.focus();
};

/** Waits until a load ends, or until the user stops it. A model that is loaded after the stop is freed. */
const loadedOrStopped = (loading, signal) => {
  const stopped = new Promise((_, failed) => signal.addEventListener('abort', () => failed(new DOMException('stopped', 'AbortError')), { once: true }));
  loading.then((late) => signal.aborted && late.free(), () => {});
  return Promise.race([loading, stopped]);
};

/** Loads a model and opens the chat. `what` is `{name, source, quant?, kept?}`; `kept` is the choice to remember for the next visit. */
const load = async (what) => {
  if (controller) return;
  const options = { quant: what.quant ?? byId('start-quant').value, device: byId('start-device').value };
  const from = document.activeElement;
  const own = (controller = new AbortController());
  clearError();
  showLoading(true);
  const onProgress = begin(what.name);
  byId('start-cancel').focus();
  try {
    const before = model;
    model = null;
    local.setModel(null);
    // two models may not fit into the memory of the device
    await before?.free();
    const { signal } = own;
    model = await loadedOrStopped(wingbeat.load(what.source, { ...options, signal, onProgress: (event) => controller === own && onProgress(event) }), signal);
    local.setModel(model, what.name);
    if (what.kept) remember({ ...what.kept, quant: byId('start-quant').value, device: options.device });
    showLoading(false);
    await openChat(what.name);
  } catch (error) {
    showLoading(false);
    // the conversations can be read without a model
    if (page) await page.refresh();
    document.title = 'wingbeat';
    if (own.signal.aborted) {
      say('The load was cancelled.');
      (from?.isConnected ? from : byId('start-title')).focus();
    } else showError(error, () => load(what));
  } finally {
    controller = null;
  }
};

const loadEntry = (entry) => load({ name: entry.name, source: choice.sourceOf(entry), quant: entry.quant, kept: { id: entry.id } });
const loadFiles = ({ name, files }) => load({ name: name.replace(/\.[a-z0-9]+$/i, ''), source: files });

const loadAddress = (address) => {
  const name = address.replace(/[?#@].*$/, '').replace(/\/+$/, '').split('/').pop().replace(/\.(safetensors|pth|gguf|st)$/i, '');
  return load({ name: name || address, source: address, kept: { address } });
};

/** Returns from the chat to the choice of a model. The chat stays as it is. */
const openStart = async () => {
  showView('start');
  showLoading(false);
  clearError();
  byId('start-title').textContent = 'Change the model';
  byId('start-title').focus();
  await choice.show(list, loadEntry);
};

function addChangeButton() {
  byId('upload').before(el('button', { class: 'quiet', id: 'models-open', type: 'button', onclick: openStart }, icon('wing'), 'Change the model'));
}

/** Shows what this browser can run. */
const showCheck = async () => {
  const { ok, verdict, hint } = await wingbeat.check();
  const box = byId('start-check');
  box.classList.toggle('warns', !ok || Boolean(hint));
  box.textContent = [verdict, hint].map(sentence).filter(Boolean).join(' ');
};

const useLast = () => {
  const previous = last();
  if (!previous) return;
  for (const name of ['quant', 'device']) {
    const field = byId(`start-${name}`);
    if ([...field.options].some((option) => option.value === previous[name])) field.value = previous[name];
  }
  if (previous.address) byId('start-url').value = previous.address;
};

byId('start-cancel').addEventListener('click', () => controller?.abort());
byId('start-back').addEventListener('click', () => showView('chat'));
byId('start-address').addEventListener('submit', (event) => {
  event.preventDefault();
  loadAddress(byId('start-url').value.trim());
});
onChoose(byId('start-file'), byId('start-files'), loadFiles);
onChoose(byId('start-folder'), byId('start-folders'), loadFiles);
onDrop(() => !isChoosing(), loadFiles);
addEventListener('keydown', (event) => event.key === 'Escape' && controller?.abort());
useLast();
showCheck();
try {
  list = await choice.entries();
  await choice.show(list, loadEntry);
} catch (error) {
  showError(error, () => location.reload());
}
keepOffline();
