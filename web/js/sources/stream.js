// A file of a server without ranges: the server sends the file only from its beginning to its end.

import { AbortError, FileError } from '../errors.js';
import { TRIES, pause, refused, request } from './request.js';

export class StreamFile {
  constructor(url, { size, signal, headers, onBytes, isKept }) {
    Object.assign(this, { url, size, signal, headers, onBytes, isKept });
  }

  /** Fetches the file, and waits for `take(i, bytes)` with each piece of `step` bytes. After a cut connection, begins again. */
  async pieces(step, take) {
    for (let attempt = 1; ; attempt++) {
      const response = await request(this.url, { signal: this.signal, isKept: this.isKept, headers: this.headers });
      if (!response.ok) {
        await response.body?.cancel();
        throw refused(this.url, response);
      }
      const at = await this.receive(response, step, take);
      if (at === this.size) return;
      if (this.signal?.aborted) throw new AbortError();
      if (at > this.size || attempt === TRIES) {
        const hint = 'serve the file from a server that has ranges (206 Partial Content): then a cut download goes on where it was';
        throw new FileError(`${this.url}: expected ${this.size} bytes, the server sent ${at}`, { kind: 'file', hint });
      }
      await pause(attempt, this.signal);
    }
  }

  /** Returns how many bytes arrived. */
  async receive(response, step, take) {
    const reader = response.body.getReader();
    let [at, piece, filled] = [0, null, 0];
    try {
      for (;;) {
        const { value, done } = await reader.read().catch(() => ({ done: true }));
        if (done) return at;
        this.onBytes?.(value.length);
        if (at + value.length > this.size) return at + value.length;
        for (let from = 0; from < value.length; ) {
          piece ??= new Uint8Array(Math.min(step, this.size - at));
          const part = value.subarray(from, from + piece.length - filled);
          piece.set(part, filled);
          filled += part.length;
          from += part.length;
          at += part.length;
          if (filled < piece.length) continue;
          await take(Math.ceil(at / step) - 1, piece);
          [piece, filled] = [null, 0];
        }
      }
    } finally {
      await reader.cancel().catch(() => {});
    }
  }
}
