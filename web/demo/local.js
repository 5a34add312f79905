// The backend (server/page/backend.js) that asks a model in this browser, through the package `wingbeat`.

import { BackendError } from '../page/backend.js';
import { ownerOf } from '../page/tree.js';
import { chunker, requestOf } from './chunks.js';
import * as kept from './kept.js';
import { sentence } from './words.js';

export const hasKey = false;
export const resumes = false;
export const chooses = false;
export const place = 'The model and the conversation stay in this browser.';

let model = null;
let id = '';
// maps the name of a state to the time of saving in seconds, which the engine does not keep
let saved = new Map();

/** Sets the model that answers, and its name in the page. With `null`, no model answers. */
export const setModel = (loaded, name = '') => {
  model = loaded;
  id = name;
  saved = new Map();
};

const loaded = () => {
  if (!model) throw new BackendError('No model is loaded. Choose one with “Change the model”.', { status: 503, code: 'no_model' });
  return model;
};

const STATUS = { input: 400, usage: 400, file: 400, model: 400, busy: 429, device: 503, memory: 507 };

/** Returns an error of the package as an error of a backend. */
const reported = (error) => {
  if (error instanceof BackendError) return error;
  const message = [error?.message ?? String(error), error?.hint].map(sentence).filter(Boolean).join(' ');
  return new BackendError(message, { status: STATUS[error?.kind] ?? 0, code: error?.kind, param: error?.field });
};

/** Returns a function that calls `f`, and throws errors of the package as errors of a backend. */
const asked = (f) => async (...args) => {
  try {
    return await f(...args);
  } catch (error) {
    throw reported(error);
  }
};

/** Returns the hash of the weights. States are kept under this hash, because a state fits only the weights that computed it. */
const weights = () => loaded().info.weights_hash;

const inEngine = async (name) => (await loaded().states.list()).find((state) => state.name === name) ?? null;

/** Loads a kept state into the engine, unless the engine has the state. Throws an error with the status 404 if the browser does not have it. */
const need = async (name) => {
  if (await inEngine(name)) return;
  const entry = await kept.get(weights(), name).catch(() => null);
  if (!entry) throw new BackendError(`This browser has no state named ${name} for this model.`, { status: 404, code: 'state_not_found', param: 'state' });
  await loaded().states.load(name, entry.file);
};

/** Records that a state was saved now, and keeps a state that the user saved. A state of a conversation is not kept: it can be computed again. */
const keep = async (name) => {
  const created = Math.floor(Date.now() / 1000);
  saved.set(name, created);
  if (ownerOf(name)) return;
  const [file, { n_tokens: tokens, bytes }] = await Promise.all([loaded().states.export(name), inEngine(name)]);
  try {
    await kept.put({ model: weights(), name, tokens, bytes, created, file });
  } catch (error) {
    const why = `the storage of the browser did not take it (${error.message})`;
    throw new BackendError(`The state ${name} lasts until this page is closed: ${why}. Download it to keep it.`);
  }
};

export const models = async () => {
  if (!model) return [];
  const { architecture, n_params: parameters, dtype, device } = model.info;
  return [{ id, status: 'ready', architecture, parameters, dtype, device: device.backend === 'cpu' ? 'CPU' : device.name }];
};

export const defaults = async () => ({});

// the package has no function that counts
export const count = async () => null;

/** Yields the events of a new answer. */
export async function* chat(body, signal) {
  try {
    const request = requestOf(body);
    if (request.state) await need(request.state);
    const chunkOf = chunker(id);
    for await (const event of loaded().chat(request, { signal })) {
      const chunk = chunkOf(event);
      if (chunk) yield { id: null, chunk };
    }
    if (request.save_state) saved.set(request.save_state, Math.floor(Date.now() / 1000));
  } catch (error) {
    throw reported(error);
  }
}

const change = async ({ action, name, from, messages }) => {
  if (from) await need(from);
  if (action === 'fork') await loaded().states.fork(from, name);
  else {
    const done = await loaded().chat({ messages, ...(from && { state: from }), save_state: name, max_tokens: 0 }).done();
    if (done?.state?.error) throw new BackendError(sentence(done.state.error));
  }
  await keep(name);
};

const list = async () => {
  const entries = new Map((await kept.list(weights()).catch(() => [])).map((entry) => [entry.name, entry]));
  for (const { name, n_tokens: tokens, bytes } of await loaded().states.list()) {
    entries.set(name, { name, tokens, bytes, created: saved.get(name) ?? entries.get(name)?.created });
  }
  return [...entries.values()].map(({ name, tokens, bytes, created }) => ({ name, tokens, bytes, created, model: id }));
};

export const states = {
  list: asked(list),
  change: asked(change),
  delete: asked(async (name) => {
    if (await inEngine(name)) await loaded().states.delete(name);
    await kept.remove(weights(), name).catch(() => {});
    saved.delete(name);
  }),
  content: asked(async (name) => {
    await need(name);
    return loaded().states.export(name);
  }),
  upload: asked(async (name, _, file) => {
    await loaded().states.load(name, file);
    await keep(name);
  }),
};
