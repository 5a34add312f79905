// The events of a request.

import { stopped } from './errors.js';

/**
 * The events of a request, as an async iterable. Leaving the loop cancels the request. `text()`, `done()` and `all()` read all events to the end.
 */
export class Answer {
  #link;
  #queue = [];
  #wake = null;
  #end = null;
  #id;
  #taken = 0;
  #done = null;
  #all = null;
  /** The last event of the first continuation. */
  #last = null;

  constructor(link, model, request, signal) {
    this.#link = link;
    if (signal?.aborted) throw stopped(signal);
    const { id, result } = link.begin('run', { model, request }, { onEvent: (event) => this.#push(event) });
    this.#id = id;
    const stop = () => {
      this.cancel();
      this.#finish(stopped(signal));
    };
    signal?.addEventListener('abort', stop, { once: true });
    result.then(() => this.#finish(null), (error) => this.#finish(error)).finally(() => signal?.removeEventListener('abort', stop));
  }

  #push(event) {
    if (event.type === 'done' && event.index === 0) this.#last = event;
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

  async #read() {
    const events = [];
    for await (const event of this) events.push(event);
    return events;
  }

  /** Reads the remaining events to the end, without keeping them. */
  async #drain() {
    for await (const _ of this);
  }

  /** Returns the events of all continuations. */
  all() {
    return (this.#all ??= this.#read());
  }

  /** Returns the last event of the first continuation: its text, thought, calls, tokens, usage and timings. */
  async done() {
    await (this.#all ?? (this.#done ??= this.#drain()));
    return this.#last;
  }

  /** Returns the text of the first continuation. */
  async text() {
    return (await this.done())?.text ?? '';
  }
}
