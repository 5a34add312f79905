// A loaded model.

import { Answer } from './answer.js';
import { InputError } from './errors.js';
import { States } from './states.js';

export class Model {
  #link;
  #id;
  #isFreed = false;

  constructor(link, id, info) {
    this.#link = link;
    this.#id = id;
    /** The description of the model: name, architecture, sizes, device, formats. */
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

  /** Returns the vector of a text, or a list of vectors for a list of texts. */
  async embed(input, { signal, ...settings } = {}) {
    const events = await this.#run({ input, ...settings }, { signal }).all();
    const vectors = events.filter((event) => event.type === 'vector').sort((a, b) => a.index - b.index);
    const all = vectors.map((event) => Float32Array.from(event.vector));
    return Array.isArray(input) && typeof input[0] !== 'number' ? all : all[0];
  }

  /** Scores documents for a query, with a reranker. Returns `{logit, score}` of each document, in the given order; `score` is from 0 to 1. */
  async rerank(query, documents, { signal } = {}) {
    const events = await this.#run({ query, documents }, { signal }).all();
    const scores = events.filter((event) => event.type === 'score').sort((a, b) => a.index - b.index);
    return scores.map(({ logit }) => ({ logit, score: 1 / (1 + Math.exp(-logit)) }));
  }

  /** Returns the log-probability of each token of a text after the first token: `{tokens: [{id, token, logprob}], sum}`. */
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

  /** Returns counters of the engine: slots, waiting requests, bytes of memory. */
  async stats() {
    return JSON.parse(await this.#call('stats'));
  }

  /** Refuses new requests, and resolves when all earlier requests have ended. */
  async drain() {
    await this.#call('drain');
  }

  /** Frees the memory of the model. Running requests end with an error. */
  async free() {
    // if the worker has ended, its models no longer exist
    if (this.#isFreed || this.#link.dead) return;
    this.#isFreed = true;
    await this.#link.call('free', { model: this.#id });
    this.#link.release();
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.free();
  }
}
