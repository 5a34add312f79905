// The page's way to a model in this browser. It has the exports of src/serve/page/api.js, which calls a server, and takes its place in the demo.

/** As in api.js. */
export class ApiError extends Error {
  constructor(message, { status = 0, code = null, type = null, param = null, requestId = null, retryAfter = null, isLost = false } = {}) {
    super(message);
    Object.assign(this, { status, code, type, param, requestId, retryAfter, isLost });
  }
}

/** Where conversations are kept, for the page's note. */
export const PLACE = 'The conversation and the model stay in this browser.';

let model = null;

/** Sets the model of all further requests. */
export const use = (loaded) => {
  model = loaded;
};

export const setKey = () => {};

const STATUS = { input: 400, usage: 400, file: 400, busy: 429, memory: 507, device: 503 };

const reported = (error) => {
  if (error?.name === 'AbortError') return new DOMException('stopped', 'AbortError');
  const isUnknown = error?.kind === 'input' && /unknown state|no state/i.test(error.message);
  return new ApiError([error?.message ?? String(error), error?.hint].filter(Boolean).join(' '), {
    status: isUnknown ? 404 : (STATUS[error?.kind] ?? 500),
    code: isUnknown ? 'state_not_found' : error?.kind,
    param: error?.field,
  });
};

const asked = async (work) => {
  try {
    return await work();
  } catch (error) {
    throw reported(error);
  }
};

export const models = async () => (model ? [{ id: model.info.name, status: 'ready', parameters: model.info.n_params }] : []);
export const defaults = async () => ({});

/** The time at which a state was saved, by name. The engine does not keep it. */
const saved = new Map();

export const states = () =>
  asked(async () => (await model.states.list()).map(({ name, n_tokens, bytes }) => ({ name, tokens: n_tokens, bytes, created: saved.get(name), model: model.info.name })));

export const changeState = ({ action, name, from, messages }) =>
  asked(async () => {
    saved.set(name, Date.now() / 1000);
    if (action === 'fork') return model.states.fork(from, name);
    const isOpen = messages.at(-1)?.role === 'assistant';
    return model.chat({ messages, state: from, save_state: name, max_tokens: 0, ...(isOpen && { continue_final_message: true }) }).done();
  });

export const deleteState = (name) => asked(() => model.states.delete(name));
export const stateContent = (name) => asked(() => model.states.export(name));
export const uploadState = (name, _, file) =>
  asked(() => {
    saved.set(name, Date.now() / 1000);
    return model.states.load(name, file);
  });

/** Fields that mean something to a server only. The prefix cache of the engine keeps what a session would. */
const SERVED = ['model', 'stream', 'stream_options', 'session_id', 'resumable', 'return_state'];

const deltaOf = (event) => {
  switch (event.type) {
    case 'text':
      return { content: event.text };
    case 'thought':
      return { reasoning_content: event.text };
    case 'call':
      return { tool_calls: [{ index: event.call, function: { name: event.name } }] };
    case 'arguments':
      return { tool_calls: [{ index: event.call, function: { arguments: event.text } }] };
    default:
      return null;
  }
};

const chunkOf = (event) => {
  const head = { model: model.info.name };
  if (event.type === 'progress') {
    const { processed_tokens: processed, prompt_tokens: total, cached_tokens: cache } = event;
    return { ...head, choices: [], prompt_progress: { processed, total, cache } };
  }
  if (event.type === 'done') {
    const { finish_reason, seed, timings, usage } = event;
    return {
      ...head,
      choices: [{ index: event.index, delta: {}, finish_reason, seed, timings }],
      usage: { ...usage, prompt_tokens_details: { cached_tokens: usage.cached_tokens } },
    };
  }
  const delta = deltaOf(event);
  return delta && { ...head, choices: [{ index: event.index, delta, finish_reason: null }] };
};

/** Yields the events of a new answer. */
export async function* chat(request, signal) {
  const body = Object.fromEntries(Object.entries(request).filter(([name]) => !SERVED.includes(name)));
  if (body.save_state) saved.set(body.save_state, Date.now() / 1000);
  try {
    for await (const event of model.chat(body, { signal })) {
      const chunk = chunkOf(event);
      if (chunk) yield { id: null, chunk };
    }
  } catch (error) {
    throw reported(error);
  }
}

/** An answer that was cut is not kept anywhere. */
export async function* rest() {
  throw new ApiError('The answer ended with the page.', { status: 404 });
}

export const cancel = async () => {};
