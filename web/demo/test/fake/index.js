// Stands for the package `wingbeat` in tests of the page: the same API without WebAssembly, fixed texts, and errors on demand. A test sets
// `globalThis.fake` before the page runs: `{check, fails, step, files}`; `fake.calls` has the calls of `load`, `fake.freed` counts freed models.

const fake = (globalThis.fake = { calls: [], requests: [], freed: 0, step: 4, ...globalThis.fake });
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export class WingbeatError extends Error {
  constructor(message, { kind = 'input', field = null, hint = null, retry = null } = {}) {
    super(message);
    Object.assign(this, { name: kind === 'interrupted' ? 'AbortError' : 'WingbeatError', kind, field, hint, retry });
  }
}

const stopped = () => new WingbeatError('stopped by the caller', { kind: 'interrupted' });

export const check = async () => ({ ok: true, verdict: 'Models run on test gpu.', hint: null, gpu: {}, memory: null, storage: null, ...fake.check });

export const cache = {
  list: async () => fake.files ?? [],
  remove: async (url) => {
    fake.files = (fake.files ?? []).filter((file) => file.url !== url);
    return 1;
  },
};

const words = (text) => text.match(/\s*\S+/g) ?? [];

async function* answer(model, request, signal) {
  fake.requests.push(request);
  const last = request.messages.findLast((message) => message.role === 'user')?.content ?? '';
  if (request.state && !model.known.has(request.state)) throw new WingbeatError(`unknown state ${request.state}`, { field: 'state' });
  if (/refuse/.test(last)) throw new WingbeatError('expected at most 2, found 3', { field: 'temperature', hint: 'choose a smaller number' });
  yield { type: 'started', prompt_tokens: 5, cached_tokens: 2 };
  if (/prefill/.test(last)) {
    for (let n = 0; n < 4000; n += 200) {
      yield { type: 'progress', processed_tokens: n, prompt_tokens: 4000, cached_tokens: 0 };
      await pause(20);
    }
  }
  const parts = request.max_tokens === 0 ? [] : words(/long/.test(last) ? 'A sentence of a long answer. '.repeat(80) : `You wrote “${last}”. The engine is ${model.info.name}.`);
  if (/think/.test(last)) yield { type: 'thought', index: 0, text: 'A short thought.' };
  let n = 0;
  for (const text of parts) {
    if (signal?.aborted) throw stopped();
    if (model.isFreed) throw new WingbeatError('the model was freed while it wrote', { kind: 'interrupted', hint: 'load it again' });
    if (/lost/.test(last) && n === 3 && !fake.isMended) {
      fake.isMended = true;
      throw new WingbeatError('the GPU was lost', { kind: 'device', hint: 'the model is loaded again: send the request again', retry: true });
    }
    await pause(8);
    yield { type: 'text', index: 0, text };
    n += 1;
  }
  if (/tool/.test(last)) {
    yield { type: 'call', index: 0, call: 0, name: 'weather' };
    yield { type: 'arguments', index: 0, call: 0, text: '{"city": "Leipzig"}' };
  }
  const state = request.save_state ? { name: request.save_state, n_tokens: 5 + n, bytes: 4000 } : null;
  if (state) model.known.set(state.name, { ...state, file: new Blob([`state ${state.name}`]) });
  yield { type: 'done', index: 0, text: parts.join(''), finish_reason: 'stop', seed: 7, state, usage: { prompt_tokens: 5, cached_tokens: 2, completion_tokens: n }, timings: { decode_ms: n * 10 } };
}

class Model {
  known = new Map();

  constructor(name, device) {
    this.info = { name, n_params: 2e6, weights_hash: `hash of ${name}`, dtype: 'f16', notes: fake.notes ?? [], device: { name: 'Test GPU', backend: device === 'cpu' ? 'cpu' : 'webgpu' } };
    const { known } = this;
    const found = (name) => {
      if (!known.has(name)) throw new WingbeatError(`unknown state ${name}`, { field: 'state' });
      return known.get(name);
    };
    this.states = {
      list: async () => [...known.values()].map(({ file, ...info }) => info),
      export: async (name) => found(name).file,
      load: async (name, file) => {
        if (/broken/.test(await file.text())) throw new WingbeatError(`${name}: expected a state, found other bytes`, { kind: 'file', hint: 'choose a file that wingbeat saved' });
        known.set(name, { name, n_tokens: 3, bytes: file.size, file });
      },
      fork: async (name, to) => known.set(to, { ...found(name), name: to }),
      delete: async (name) => known.delete(name),
    };
  }

  chat(request, { signal } = {}) {
    const events = answer(this, request, signal);
    return {
      [Symbol.asyncIterator]: () => events,
      done: async () => {
        let last = null;
        for await (const event of events) last = event;
        return last;
      },
    };
  }

  async free() {
    this.isFreed = true;
    fake.freed += 1;
  }
}

const nameOf = (source) => {
  const first = typeof source === 'string' ? source : [...source][0];
  return typeof first === 'string' ? first : first.name;
};

export async function load(source, { onProgress, signal, quant, device } = {}) {
  const files = typeof source === 'string' ? source : [...source].map(({ name, url, size }) => ({ name, url, size }));
  fake.calls.push({ files, quant, device });
  const total = 40e6;
  for (const loaded of [0, 1]) {
    onProgress?.({ stage: 'check', loaded, total: 1 });
    await pause(fake.step);
  }
  for (const [stage, all, count] of [['download', total, 20], ['weights', total, 10], ['kernels', 24, 12]]) {
    for (let i = 0; i <= count; i += 1) {
      onProgress?.({ stage, loaded: Math.round((all / count) * i), total: all, ...(stage === 'download' && { rate: 8e6, file: 'model' }) });
      await pause(fake.step);
      if (signal?.aborted && !fake.isDeaf) throw stopped();
      if (fake.fails && stage === 'download' && i === 3) {
        const { message, ...fields } = fake.fails;
        delete fake.fails;
        throw new WingbeatError(message, fields);
      }
    }
  }
  return new Model(nameOf(source), device);
}
