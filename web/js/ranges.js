// Reads ranges of files: behind addresses, in memory, of blobs, and on the disk of Node.

import { AbortError, FileError } from './errors.js';
import { nodeModule } from './node.js';

/** How many requests of one file are under way at once. */
const PARALLEL = 6;
/** How often a request is sent again after the network failed, and the first wait in milliseconds. */
const TRIES = 5;
const WAIT_MS = 300;

const pause = (ms, signal) =>
  new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new AbortError());
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, ms);
    signal?.addEventListener('abort', stop, { once: true });
  });

/** Sends a request. Sends it again if the network fails or the server is busy. */
export async function request(url, { signal, headers, method = 'GET', fetch = globalThis.fetch } = {}) {
  for (let attempt = 1; ; attempt++) {
    if (signal?.aborted) throw new AbortError();
    let response = null;
    let cause = null;
    try {
      response = await fetch(url, { method, headers, signal });
    } catch (error) {
      if (signal?.aborted || error?.name === 'AbortError') throw new AbortError();
      cause = error;
    }
    if (response && response.status < 500 && response.status !== 429) return response;
    if (attempt === TRIES) {
      if (response) return response;
      throw new FileError(`${url}: the server cannot be reached: ${cause?.message ?? cause}`, {
        kind: 'file',
        cause,
        hint: 'check the address and the connection; a server of another origin must allow this page (CORS: Access-Control-Allow-Origin)',
      });
    }
    await pause(WAIT_MS * 2 ** (attempt - 1), signal);
  }
}

const refused = (url, response) =>
  new FileError(`${url}: expected the file, the server answered ${response.status} ${response.statusText}`.trim(), {
    kind: 'file',
    hint: response.status === 401 || response.status === 403 ? 'the file needs a permission: download it and give the file' : 'check the address',
  });

/** Returns `{size, etag, ranged}` of a file behind an address. */
export async function stat(url, options = {}) {
  const response = await request(url, { ...options, headers: { ...options.headers, range: 'bytes=0-0' } });
  if (!response.ok) throw refused(url, response);
  const etag = response.headers.get('etag');
  const total = /\/(\d+)$/.exec(response.headers.get('content-range') ?? '')?.[1];
  await response.body?.cancel();
  if (response.status === 206 && total) return { size: Number(total), etag, ranged: true };
  const length = response.headers.get('content-length');
  if (response.status === 206) {
    // `Content-Range` is hidden from pages of other origins unless the server exposes it
    const whole = await request(url, { ...options, method: 'HEAD' });
    const size = Number(whole.headers.get('content-length'));
    if (whole.ok && size > 0 && !whole.headers.get('content-encoding')) return { size, etag: etag ?? whole.headers.get('etag'), ranged: true };
  }
  return { size: length ? Number(length) : null, etag, ranged: false };
}

/** Calls `work` for all items, at most `PARALLEL` at once. */
async function each(items, work) {
  const left = items.map((item, i) => [item, i]);
  const results = new Array(items.length);
  const next = async () => {
    for (let entry = left.shift(); entry; entry = left.shift()) results[entry[1]] = await work(entry[0]);
  };
  await Promise.all(Array.from({ length: Math.min(PARALLEL, items.length) }, next));
  return results;
}

/** Returns the pairs [start, end] of a flat list. */
export const pairs = (flat) => Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i], flat[2 * i + 1]]);

/** A file behind an address. `size` is known. `onBytes(n)` is called with the bytes that arrive. */
export class UrlFile {
  constructor(url, { size, etag = null, signal, onBytes, fetch, headers } = {}) {
    Object.assign(this, { url, size, etag, signal, onBytes, fetch, headers });
  }

  read(ranges) {
    return each(pairs(ranges), ([start, end]) => (end > start ? this.range(start, end) : new Uint8Array(0)));
  }

  /** Reads one range. After a cut connection, asks for the rest. */
  async range(start, end) {
    const bytes = new Uint8Array(end - start);
    let at = 0;
    for (let attempt = 1; at < bytes.length; attempt++) {
      const before = at;
      const response = await request(this.url, {
        signal: this.signal,
        fetch: this.fetch,
        headers: { ...this.headers, range: `bytes=${start + at}-${end - 1}`, ...(this.etag && !this.etag.startsWith('W/') ? { 'if-range': this.etag } : {}) },
      });
      if (response.status !== 206) {
        await response.body?.cancel();
        if (!response.ok) throw refused(this.url, response);
        const hint = 'load it again, or serve the file from a server that has ranges (206 Partial Content)';
        throw new FileError(`${this.url}: expected a part of the file, the server sent all of it: the file has changed, or the server has no ranges`, { kind: 'file', hint });
      }
      try {
        const reader = response.body.getReader();
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          if (at + value.length > bytes.length) {
            await reader.cancel();
            throw new FileError(`${this.url}: expected ${end - start} bytes from byte ${start} on, the server sent more`, { kind: 'file' });
          }
          bytes.set(value, at);
          at += value.length;
          this.onBytes?.(value.length);
        }
      } catch (error) {
        if (error instanceof FileError) throw error;
        if (this.signal?.aborted) throw new AbortError();
      }
      if (at > before) attempt = 0;
      else if (attempt >= TRIES) {
        throw new FileError(`${this.url}: the connection ended ${TRIES} times before byte ${end}`, { kind: 'file', hint: 'try again: what has arrived is kept' });
      } else await pause(WAIT_MS * 2 ** (attempt - 1), this.signal);
    }
    return bytes;
  }
}

/** A file of a user, or any blob. */
export class BlobFile {
  constructor(blob) {
    this.blob = blob;
    this.size = blob.size;
  }

  read(ranges) {
    const one = async ([start, end]) => {
      try {
        return new Uint8Array(await this.blob.slice(start, end).arrayBuffer());
      } catch (cause) {
        throw new FileError(`${this.blob.name ?? 'the file'}: the browser cannot read it any more`, { kind: 'file', cause, hint: 'choose the file again' });
      }
    };
    return Promise.all(pairs(ranges).map(one));
  }
}

/** Bytes in memory. */
export class MemoryFile {
  constructor(bytes) {
    this.bytes = bytes;
    this.size = bytes.length;
  }

  async read(ranges) {
    return pairs(ranges).map(([start, end]) => this.bytes.slice(start, end));
  }
}

/** A file on the disk, in Node, Deno and Bun. */
export class PathFile {
  constructor(handle, size) {
    this.handle = handle;
    this.size = size;
  }

  static async open(path) {
    const { open } = await nodeModule('fs/promises');
    const handle = await open(path, 'r');
    return new PathFile(handle, (await handle.stat()).size);
  }

  async read(ranges) {
    const read = [];
    for (const [start, end] of pairs(ranges)) {
      const bytes = new Uint8Array(end - start);
      for (let at = 0; at < bytes.length; ) {
        const { bytesRead } = await this.handle.read(bytes, at, bytes.length - at, start + at);
        if (!bytesRead) throw new FileError('the file became shorter while it was read', { kind: 'file', hint: 'load it again' });
        at += bytesRead;
      }
      read.push(bytes);
    }
    return read;
  }

  close() {
    return this.handle.close();
  }
}
