// A loaded model.

import { AbortError, InputError } from './errors.js';

/**
 * The events of a request, as an async iterable. Leaving the loop cancels the request. `text()`, `done()` and `all()` read it to its end.
 */
export class Answer {
  #link;
  #queue = [];
  #wake = null;
  #end = null;
  #id;
  #taken = 0;

  constructor(link, model, request, signal) {
    this.#link = link;
    if (signal?.aborted) throw new AbortError();
    const { id, result } = link.begin('run', { model, request }, { onEvent: (event) => this.#push(event) });
    this.#id = id;
    const stop = () => {
      this.cancel();
      this.#finish(new AbortError());
    };
    signal?.addEventListener('abort', stop, { once: true });
    result.then(() => this.#finish(null), (error) => this.#finish(error)).finally(() => signal?.removeEventListener('abort', stop));
  }

  #push(event) {
    this.#queue.push(event);
    this.#wake?.();
  }

  #finish(error) {
    this.#end ??= { error };
    this.#wake?.();
  }

  /** Stops the request. */
  cancel() {
    if (!this.#end) this.#link.call('cancel', { of: this.#id }).catch(() => {});
  }

  async *[Symbol.asyncIterator]() {
    try {
      for (;;) {
        while (this.#queue.length) {
          const event = this.#queue.shift();
          if (++this.#taken % 16 === 0) this.#link.call('taken', { of: this.#id, n: 16 }).catch(() => {});
          yield event;
        }
        if (this.#end) {
          if (this.#end.error) throw this.#end.error;
          return;
        }
        await new Promise((wake) => (this.#wake = wake));
        this.#wake = null;
      }
    } finally {
      this.cancel();
    }
  }

  /** Returns the events of all continuations. */
  async all() {
    const events = [];
    for await (const event of this) events.push(event);
    return events;
  }

  /** Returns the last event of the first continuation: its text, thought, calls, tokens, usage and timings. */
  async done() {
    let found = null;
    for await (const event of this) if (event.type === 'done' && event.index === 0) found = event;
    return found;
  }

  /** Returns the text of the first continuation. */
  async text() {
    return (await this.done())?.text ?? '';
  }
}

/** The named states of a model. */
class States {
  #call;

  constructor(call) {
    this.#call = call;
  }

  /** Lists `{name, n_tokens, bytes}`. */
  async list() {
    return JSON.parse(await this.#call('states'));
  }

  /** Returns the file of a state, which `wingbeat generate --state`, the server and other pages take. */
  async export(name) {
    return new Blob([await this.#call('export_state', name)], { type: 'application/octet-stream' });
  }

  /** Keeps the state in a file under a name. `file`: a Blob, an ArrayBuffer, bytes, or an address. */
  async load(name, file) {
    let bytes = file;
    if (typeof file === 'string' || file instanceof URL) {
      const response = await fetch(file);
      if (!response.ok) throw new InputError(`${file}: the server answered ${response.status}`, { kind: 'file' });
      bytes = await response.arrayBuffer();
    } else if (typeof Blob !== 'undefined' && file instanceof Blob) bytes = await file.arrayBuffer();
    if (bytes instanceof ArrayBuffer) bytes = new Uint8Array(bytes);
    if (!ArrayBuffer.isView(bytes)) throw new InputError('expected a file, bytes or an address of a state', { kind: 'input', field: 'file' });
    return JSON.parse(await this.#call('import_state', name, bytes));
  }

  /** Writes the file of a state to a file of the user (`showSaveFilePicker`, or OPFS). */
  async save(name, handle) {
    const out = await handle.createWritable();
    await out.write(await this.export(name));
    await out.close();
  }

  /** Copies a state. */
  async fork(name, to) {
    return JSON.parse(await this.#call('fork_state', name, to));
  }

  async delete(name) {
    await this.#call('delete_state', name);
  }
}

export class Model {
  #link;
  #id;

  constructor(link, id, info) {
    this.#link = link;
    this.#id = id;
    /** What the model is: name, architecture, sizes, device, formats. */
    this.info = info;
    this.states = new States((method, ...args) => this.#call(method, ...args));
  }

  #call(method, ...args) {
    return this.#link.call('call', { model: this.#id, method, args });
  }

  #run(request, { signal } = {}) {
    return new Answer(this.#link, this.#id, request, signal);
  }

  /** Answers messages. `request` has the fields of the server's /v1/chat/completions. */
  chat(request, options) {
    if (!Array.isArray(request?.messages)) throw new InputError('expected messages, a list of {role, content}', { kind: 'input', field: 'messages' });
    return this.#run(request, options);
  }

  /** Continues a text: a string, or a request with `prompt` or `tokens`. */
  generate(request, options) {
    return this.#run(typeof request === 'string' ? { prompt: request } : request, options);
  }

  /** Returns the vector of a text, or those of several texts. */
  async embed(input, { signal, ...settings } = {}) {
    const events = await this.#run({ input, ...settings }, { signal }).all();
    const vectors = events.filter((event) => event.type === 'vector').sort((a, b) => a.index - b.index);
    const all = vectors.map((event) => Float32Array.from(event.vector));
    return Array.isArray(input) && typeof input[0] !== 'number' ? all : all[0];
  }

  /** Scores documents for a query, with a reranker. */
  async rerank(query, documents, { signal } = {}) {
    const events = await this.#run({ query, documents }, { signal }).all();
    const scores = events.filter((event) => event.type === 'score').sort((a, b) => a.index - b.index);
    return scores.map(({ logit }) => ({ logit, score: 1 / (1 + Math.exp(-logit)) }));
  }

  /** Returns the log-probability of each token of a text after the first: `{tokens: [{id, token, logprob}], sum}`. */
  async score(text, { signal } = {}) {
    const events = await this.#run({ prompt: text, max_tokens: 0, echo: true, logprobs: 0 }, { signal }).all();
    const tokens = events.find((event) => event.type === 'prompt')?.logprobs ?? [];
    return { tokens, sum: tokens.reduce((sum, { logprob }) => sum + logprob, 0) };
  }

  /** Returns the token ids of a text. */
  async tokenize(text) {
    return Array.from(await this.#call('tokenize', text));
  }

  /** Returns the text of token ids. */
  async detokenize(ids) {
    return new TextDecoder().decode(await this.#call('detokenize', Uint32Array.from(ids)));
  }

  /** Returns the numbers of the engine: slots, requests that wait, memory. */
  async stats() {
    return JSON.parse(await this.#call('stats'));
  }

  /** Refuses new requests, and resolves when all others have ended. */
  async drain() {
    await this.#call('drain');
  }

  /** Frees the memory of the model. Texts that are being written end with an error. */
  async free() {
    await this.#link.call('free', { model: this.#id });
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.free();
  }
}
