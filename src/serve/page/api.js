// Calls the server. Addresses are relative to the page, so the page also works below a path of a proxy. In the demo, web/demo/local.js takes the place
// of this file: it has the same exports, and a model in the browser.

import { events } from './sse.js';

const KEY = 'wingbeat.key';

/** An error that the server reports, a server that cannot be reached, or a stream that is cut. The last two have `isLost`. */
export class ApiError extends Error {
  constructor(message, { status = 0, code = null, type = null, param = null, requestId = null, retryAfter = null, isLost = false } = {}) {
    super(message);
    Object.assign(this, { status, code, type, param, requestId, retryAfter, isLost });
  }
}

/** Where conversations are kept, for the page's note. */
export const PLACE = 'The conversation stays in this browser and on this server.';

let key = '';
try {
  key = sessionStorage.getItem(KEY) ?? '';
} catch {
  // without storage the variable `key` has the key until the page is closed
}

/** Sets the API key of all further requests. */
export const setKey = (value) => {
  key = value.trim();
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // without storage the variable `key` has the key
  }
};

const reported = (error, response) =>
  new ApiError(error?.message || `The server answered with status ${response.status}.`, {
    status: response.status,
    code: error?.code,
    type: error?.type,
    param: error?.param,
    requestId: error?.request_id ?? response.headers.get('x-request-id'),
    retryAfter: response.headers.get('retry-after'),
  });

async function send(path, { method = 'GET', json, body, signal } = {}) {
  const headers = {};
  if (key) headers.authorization = `Bearer ${key}`;
  if (json !== undefined) {
    headers['content-type'] = 'application/json';
    body = JSON.stringify(json);
  }
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), { method, headers, body, signal });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('The server cannot be reached. Check that `wingbeat serve` runs, then send the request again.', { isLost: true });
  }
  if (response.ok) return response;
  const text = await response.text().catch(() => '');
  let error = null;
  try {
    error = JSON.parse(text).error;
  } catch {
    error = text.trim() && text.length < 500 ? { message: text.trim() } : null;
  }
  throw reported(error, response);
}

const json = async (path, options) => (await send(path, options)).json();
// states belong to a model; without a name, the server takes its first model
const query = (model) => (model ? `?model=${encodeURIComponent(model)}` : '');
const state = (name, model, part = '') => `v1/states/${encodeURIComponent(name)}${part}${query(model)}`;

/** Returns the models of the server. */
export const models = async () => (await json('v1/models')).data ?? [];

/** Returns the settings of a request that sets none: `{temperature, top_k, …}`. */
export const defaults = async (model) => {
  const { n_predict, ...settings } = (await json(`props${query(model)}`)).default_generation_settings.params;
  return { ...settings, max_tokens: n_predict };
};

/** Returns the saved states of a model. */
export const states = async (model) => (await json(`v1/states${query(model)}`)).data ?? [];

/** Saves, copies, renames or deletes a state: `{action, name, …}`. */
export const changeState = (change) => send('v1/states', { method: 'POST', json: change });

export const deleteState = (name, model) => send(state(name, model), { method: 'DELETE' });
export const stateContent = async (name, model) => (await send(state(name, model, '/content'))).blob();
export const uploadState = (name, model, file) => send(state(name, model, '/content'), { method: 'PUT', body: file });

/** Yields `{id, chunk}` of each event of a stream. Throws `ApiError` for an error in the stream, and for a stream that is cut. */
async function* chunks(response) {
  try {
    for await (const { id, data } of events(response.body)) {
      if (data === '[DONE]') return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw reported(chunk.error, response);
      yield { id, chunk };
    }
  } catch (error) {
    // the browser reports a broken connection as a TypeError
    if (!(error instanceof TypeError)) throw error;
  }
  const cut = 'The answer was cut off: the connection ended before the end of the stream.';
  throw new ApiError(cut, { status: response.status, requestId: response.headers.get('x-request-id'), isLost: true });
}

const completions = 'v1/chat/completions';
const answer = (id) => `${completions}/${encodeURIComponent(id)}`;

/** Yields the events of a new answer. */
export async function* chat(request, signal) {
  yield* chunks(await send(completions, { method: 'POST', json: request, signal }));
}

/** Yields the events of the answer `id` after the event `after`: those that the server has, then the others as they come. */
export async function* rest(id, after, signal) {
  yield* chunks(await send(`${answer(id)}/events?after=${after}`, { signal }));
}

/** Stops an answer that would continue without a connection. */
export const cancel = (id) => send(answer(id), { method: 'DELETE' });
