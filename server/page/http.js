// The backend (see backend.js) that asks a server. Addresses are relative to the page, so the page also works behind a proxy that adds a path.

import { BackendError } from './backend.js';
import { events } from './sse.js';

const KEY = 'wingbeat.key';

export const hasKey = true;
export const resumes = true;
export const chooses = true;
export const place = 'The conversation stays in this browser and on this server.';

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
  new BackendError(error?.message || `The server answered with status ${response.status}.`, {
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
    throw new BackendError('The server cannot be reached. Check that `wingbeat serve` runs, then send the request again.', { isLost: true });
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

// an embedding model writes no answers
export const models = async () => ((await json('v1/models')).data ?? []).filter(({ task }) => task !== 'embedding');

export const defaults = async (model) => {
  const { thinking, default_generation_settings: defaults } = await json(`props${query(model)}`);
  const { n_predict, ...settings } = defaults.params;
  return { ...settings, max_tokens: n_predict, thinking };
};

export const count = async (content, model) =>
  (await json('v1/tokens/count', { method: 'POST', json: { content, add_special: false, parse_special: false, ...(model && { model }) } })).tokens;

export const states = {
  list: async (model) => (await json(`v1/states${query(model)}`)).data ?? [],
  change: (change) => send('v1/states', { method: 'POST', json: change }),
  delete: (name, model) => send(state(name, model), { method: 'DELETE' }),
  content: async (name, model) => (await send(state(name, model, '/content'))).blob(),
  upload: (name, model, file) => send(state(name, model, '/content'), { method: 'PUT', body: file }),
};

/** Yields `{id, chunk}` of each event of a stream. Throws `BackendError` for an error in the stream, and for a stream that is cut. */
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
  throw new BackendError(cut, { status: response.status, requestId: response.headers.get('x-request-id'), isLost: true });
}

const completions = 'v1/chat/completions';
const answer = (id) => `${completions}/${encodeURIComponent(id)}`;

export async function* chat(request, signal) {
  yield* chunks(await send(completions, { method: 'POST', json: request, signal }));
}

/** Yields the events after the event `after`: at once those that the server has stored, then new events as they arrive. */
export async function* rest(id, after, signal) {
  yield* chunks(await send(`${answer(id)}/events?after=${after}`, { signal }));
}

export const cancel = (id) => send(answer(id), { method: 'DELETE' });
