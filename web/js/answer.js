// The events of a request.

import { AbortError } from './errors.js';

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
