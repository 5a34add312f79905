// Reads ranges of the file at an address.

import { AbortError, FileError } from '../errors.js';
import { Gate, joined, pairs, split } from './ranges.js';
import { TRIES, pause, refused, request } from './request.js';

/** Limits the requests that run at once, for all files together. Browsers open at most six connections to a host. */
const gate = new Gate(6);

/** Returns the version of a file, or null. Pages of other origins see `last-modified`, but see `etag` only if the server exposes it. */
const versionOf = ({ headers }) => headers.get('etag') ?? headers.get('last-modified');

/** Returns `{start, end, size}` of `Content-Range`, or null. Servers of other origins may hide it. */
const contentRange = (response) => {
  const found = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(response.headers.get('content-range') ?? '');
  return found && { start: Number(found[1]), end: Number(found[2]) + 1, size: found[3] === '*' ? null : Number(found[3]) };
};

const lengthOf = ({ headers }) => (headers.get('content-encoding') ? null : Number(headers.get('content-length')) || null);

/** Returns `{size, etag, ranged}` of the file at an address. `size` is null if unknown; `ranged` is true if the server sends ranges. */
export async function stat(url, options = {}) {
  const response = await request(url, { ...options, headers: { ...options.headers, range: 'bytes=0-0' } });
  // an empty file has no byte 0
  if (response.status === 416 && /\/0$/.test(response.headers.get('content-range') ?? '')) return { size: 0, etag: versionOf(response), ranged: true };
  if (!response.ok) throw refused(url, response);
  if (/^text\/html\b/i.test(response.headers.get('content-type') ?? '')) {
    await response.body?.cancel();
    throw new FileError(`${url}: expected the file, the server sent a web page`, { kind: 'file', hint: 'check the address: it may name a page about the file, or need a permission' });
  }
  const etag = versionOf(response);
  const range = contentRange(response);
  const length = lengthOf(response);
  await response.body?.cancel();
  if (response.status === 206 && range?.size) return { size: range.size, etag, ranged: true };
  if (response.status === 206) {
    const head = await request(url, { ...options, method: 'HEAD' });
    const size = lengthOf(head);
    if (head.ok && size) return { size, etag: etag ?? versionOf(head), ranged: true };
  }
  return { size: response.status === 200 ? length : null, etag, ranged: false };
}

/** A file whose size is known. `onBytes(n)` is called with the number of bytes that arrive. */
export class UrlFile {
  constructor(url, { size, etag = null, signal, onBytes, headers, isKept } = {}) {
    Object.assign(this, { url, size, etag, signal, onBytes, headers, isKept });
  }

  async read(ranges) {
    const wanted = pairs(ranges);
    const results = wanted.map(() => new Uint8Array(0));
    const run = async ({ start, end, items }) => {
      const bytes = new Uint8Array(end - start);
      await Promise.all(split(start, end).map(([from, to]) => gate.run(() => this.range(from, to, bytes.subarray(from - start, to - start)))));
      for (const i of items) results[i] = bytes.subarray(wanted[i][0] - start, wanted[i][1] - start);
    };
    await Promise.all(joined(wanted).map(run));
    return results;
  }

  /** Reads one range into `bytes`. After a cut connection, asks for the rest. */
  async range(start, end, bytes) {
    let at = 0;
    for (let attempt = 1; at < bytes.length; attempt++) {
      const before = at;
      const response = await request(this.url, { signal: this.signal, isKept: this.isKept, headers: this.headersOf(start + at, end) });
      await this.check(response, start + at, end);
      try {
        at = await this.receive(response, bytes, at);
      } catch (error) {
        if (this.signal?.aborted) throw new AbortError();
        if (error instanceof FileError) throw error;
        at = error.at;
      }
      if (at > before) attempt = 0;
      else if (attempt >= TRIES) {
        throw new FileError(`${this.url}: the connection ended ${TRIES} times before byte ${end}`, { kind: 'file', hint: 'try again: what has arrived is kept' });
      } else await pause(attempt, this.signal);
    }
  }

  headersOf(start, end) {
    const headers = { ...this.headers, range: `bytes=${start}-${end - 1}` };
    // On another origin, `If-Range` needs a preflight request, which hosts of files often refuse. There, `check` compares the versions instead.
    const isOwn = new URL(this.url).origin === globalThis.location?.origin;
    if (isOwn && this.etag && !this.etag.startsWith('W/')) headers['if-range'] = this.etag;
    return headers;
  }

  /** Throws unless the answer has the requested bytes, of the same version of the file as before. */
  async check(response, start, end) {
    const stop = async (message, hint) => {
      await response.body?.cancel();
      throw new FileError(`${this.url}: ${message}`, { kind: 'file', hint });
    };
    const isChanged = 'the file on the server has changed since its download began';
    if (response.status === 416) await stop(isChanged, 'load it again');
    if (!response.ok) {
      await response.body?.cancel();
      throw refused(this.url, response);
    }
    const version = versionOf(response);
    if (this.etag && version && version !== this.etag && !isWeaklySame(version, this.etag)) await stop(isChanged, 'load it again');
    if (response.status !== 206) {
      await stop('expected a part of the file, the server sent all of it', 'load it again, or serve the file from a server that has ranges (206 Partial Content)');
    }
    const range = contentRange(response);
    if (!range) return;
    if (range.size !== null && range.size !== this.size) await stop(isChanged, 'load it again');
    if (range.start !== start || range.end > end) {
      await stop(`expected bytes ${start} to ${end}, the server sent bytes ${range.start} to ${range.end}`, 'the server or a proxy before it has no working ranges: serve the file from another one');
    }
  }

  /**
   * Writes the body to `bytes` from `at` on. Returns the position after the last byte. If the connection breaks, the error has this position as
   * `at`.
   */
  async receive(response, bytes, at) {
    const reader = response.body.getReader();
    for (;;) {
      let chunk;
      try {
        chunk = await reader.read();
      } catch (error) {
        throw Object.assign(new Error(error?.message), { at });
      }
      if (chunk.done) return at;
      if (at + chunk.value.length > bytes.length) {
        await reader.cancel();
        throw new FileError(`${this.url}: expected ${bytes.length} bytes, the server sent more`, { kind: 'file', hint: 'the server or a proxy before it has no working ranges: serve the file from another one' });
      }
      bytes.set(chunk.value, at);
      at += chunk.value.length;
      this.onBytes?.(chunk.value.length);
    }
  }
}

const isWeaklySame = (a, b) => a.replace(/^W\//, '') === b.replace(/^W\//, '');
