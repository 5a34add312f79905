// Keeps files of models in the origin-private file system (OPFS): in pieces, each with its SHA-256. A piece counts when its hash is right, so a download
// that was cut goes on where it was, and a damaged piece is fetched again.

import { FileError, MemoryError, AbortError } from './errors.js';
import { hasher as newHasher, sha256 } from './sha256.js';
import { pairs } from './ranges.js';

const FOLDER = 'wingbeat-cache';
const PIECE_BYTES = 16 << 20;
/** How many pieces are fetched at once, and how many are kept in memory. */
const PARALLEL = 4;
const HELD = 3;

const root = async () => (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });

/** Returns whether this place has the file system. */
export const isAvailable = async () => {
  try {
    await root();
    return true;
  } catch {
    return false;
  }
};

const explained = async (error, what) => {
  if (error?.name !== 'QuotaExceededError' && !/quota/i.test(error?.message ?? '')) return error;
  const { usage = 0, quota = 0 } = (await navigator.storage.estimate?.()) ?? {};
  const mb = (n) => `${Math.round(n / 1e6)} MB`;
  return new MemoryError(`the browser's storage is full: ${what} does not fit; ${mb(usage)} of ${mb(quota)} are in use`, {
    kind: 'memory',
    cause: error,
    hint: 'remove models with `wingbeat.cache.remove`, free disk space, or load with `cache: false`',
  });
};

async function write(folder, name, bytes) {
  try {
    const file = await folder.getFileHandle(name, { create: true });
    if (file.createSyncAccessHandle && typeof WorkerGlobalScope !== 'undefined') {
      const access = await file.createSyncAccessHandle();
      try {
        access.truncate(0);
        for (let at = 0; at < bytes.length; ) {
          const n = access.write(at ? bytes.subarray(at) : bytes, { at });
          if (!n) throw new DOMException('the file cannot be written', 'QuotaExceededError');
          at += n;
        }
        access.flush();
      } finally {
        access.close();
      }
    } else {
      const out = await file.createWritable();
      await out.write(bytes);
      await out.close();
    }
  } catch (error) {
    throw await explained(error, `a piece of ${Math.round(bytes.length / 1e6)} MB`);
  }
}

const read = async (folder, name) => {
  try {
    return new Uint8Array(await (await (await folder.getFileHandle(name)).getFile()).arrayBuffer());
  } catch {
    return null;
  }
};

const readJson = async (folder, name) => {
  try {
    return JSON.parse(new TextDecoder().decode(await read(folder, name)));
  } catch {
    return null;
  }
};

const keyOf = async (url) => (await sha256(new TextEncoder().encode(url))).slice(0, 32);

/** Returns the entry of an address if it is complete or begun, else null. */
export async function entryOf(url) {
  try {
    return await readJson(await (await root()).getDirectoryHandle(await keyOf(url)), 'entry.json');
  } catch {
    return null;
  }
}

/**
 * A file behind an address, with its pieces in the cache. `source` reads ranges from the network. `expected` is the SHA-256 of the whole file, if it is
 * known: then the file counts as complete only after its hash was compared.
 */
export class CachedFile {
  static async open(url, { source, size, etag = null, expected = null, signal, onBytes, pieceBytes = PIECE_BYTES }) {
    const folder = await (await root()).getDirectoryHandle(await keyOf(url), { create: true }).catch(async (error) => {
      throw await explained(error, 'a folder');
    });
    let entry = await readJson(folder, 'entry.json');
    const isSame = entry && entry.size === size && entry.pieceBytes > 0 && (!etag || !entry.etag || entry.etag === etag) && (!expected || !entry.expected || entry.expected === expected);
    if (!isSame) entry = { url, size, etag, expected, pieceBytes, hashes: [], isVerified: false, at: Date.now() };
    entry.expected ??= expected;
    const file = new CachedFile();
    Object.assign(file, { url, folder, entry, source, size, signal, onBytes, held: new Map(), pending: new Map(), checked: new Set(), queue: [] });
    await file.save();
    return file;
  }

  get n() {
    return Math.ceil(this.size / this.entry.pieceBytes);
  }

  get isComplete() {
    for (let i = 0; i < this.n; i++) if (!this.entry.hashes[i]) return false;
    return true;
  }

  /** Returns how many bytes are in the cache. */
  get bytes() {
    let bytes = 0;
    for (let i = 0; i < this.n; i++) if (this.entry.hashes[i]) bytes += this.span(i)[1] - this.span(i)[0];
    return bytes;
  }

  span(i) {
    return [i * this.entry.pieceBytes, Math.min(this.size, (i + 1) * this.entry.pieceBytes)];
  }

  /** Writes are queued, so that a later entry never loses to an earlier one. */
  save() {
    const json = new TextEncoder().encode(JSON.stringify(this.entry));
    this.saving = (this.saving ?? Promise.resolve()).catch(() => {}).then(() => write(this.folder, 'entry.json', json));
    return this.saving;
  }

  /** Returns the bytes of a piece. */
  piece(i) {
    const held = this.held.get(i);
    if (held) return Promise.resolve(held);
    if (!this.pending.has(i)) this.pending.set(i, this.take(i).finally(() => this.pending.delete(i)));
    return this.pending.get(i);
  }

  hold(i, bytes) {
    this.held.set(i, bytes);
    if (this.held.size > HELD) this.held.delete(this.held.keys().next().value);
    return bytes;
  }

  async take(i) {
    const [start, end] = this.span(i);
    const hash = this.entry.hashes[i];
    if (hash) {
      const bytes = await read(this.folder, String(i));
      if (bytes?.length === end - start && (this.checked.has(i) || (await sha256(bytes)) === hash)) {
        this.checked.add(i);
        return this.hold(i, bytes);
      }
      this.onDamage?.(i);
    }
    if (this.signal?.aborted) throw new AbortError();
    const [bytes] = await this.source.read([start, end]);
    const digest = await sha256(bytes);
    if (hash && this.entry.isVerified && digest !== hash) {
      throw new FileError(`${this.url}: the file on the server is not the one in the cache any more`, { kind: 'file', hint: 'remove it with `wingbeat.cache.remove`, and load it again' });
    }
    await write(this.folder, String(i), bytes);
    this.entry.hashes[i] = digest;
    this.checked.add(i);
    await this.save();
    return this.hold(i, bytes);
  }

  async read(ranges) {
    const wanted = pairs(ranges);
    const needed = [...new Set(wanted.flatMap(([start, end]) => this.pieces(start, end)))].sort((a, b) => a - b);
    const results = wanted.map(([start, end]) => new Uint8Array(end - start));
    for (let at = 0; at < needed.length; at += PARALLEL) {
      const some = needed.slice(at, at + PARALLEL);
      const bytes = await Promise.all(some.map((i) => this.piece(i)));
      some.forEach((i, k) => {
        const [first] = this.span(i);
        wanted.forEach(([start, end], r) => {
          const [from, to] = [Math.max(start, first), Math.min(end, first + bytes[k].length)];
          if (from < to) results[r].set(bytes[k].subarray(from - first, to - first), from - start);
        });
      });
    }
    this.ahead((needed.at(-1) ?? -1) + 1);
    return results;
  }

  pieces(start, end) {
    if (start >= end) return [];
    const [from, to] = [Math.floor(start / this.entry.pieceBytes), Math.floor((end - 1) / this.entry.pieceBytes)];
    return Array.from({ length: to - from + 1 }, (_, k) => from + k);
  }

  /** Begins to fetch the next pieces, so that the network works while weights are encoded. */
  ahead(from) {
    for (let i = from; i < Math.min(from + 2, this.n); i++) if (!this.entry.hashes[i]) this.piece(i).catch(() => {});
  }

  /** Fetches what is missing, and compares the hash of the whole file if it is known. Forgets a file with another hash. */
  async complete() {
    const missing = Array.from({ length: this.n }, (_, i) => i).filter((i) => !this.entry.hashes[i]);
    for (let at = 0; at < missing.length; at += PARALLEL) await Promise.all(missing.slice(at, at + PARALLEL).map((i) => this.piece(i)));
    if (this.entry.expected && !this.entry.isVerified) {
      const hasher = newHasher();
      for (let i = 0; i < this.n; i++) hasher.update(await this.piece(i));
      const found = hasher.digest();
      if (found !== this.entry.expected) {
        await remove(this.url);
        throw new FileError(`${this.url}: expected the SHA-256 ${this.entry.expected}, found ${found}`, { kind: 'file', hint: 'the file was damaged on its way, or has changed: load it again' });
      }
    }
    this.entry.isVerified = true;
    await this.save();
  }
}

/** Lists the files in the cache: `{url, size, bytes, isComplete}`. */
export async function list() {
  if (!(await isAvailable())) return [];
  const found = [];
  for await (const [, folder] of (await root()).entries()) {
    if (folder.kind !== 'directory') continue;
    const entry = await readJson(folder, 'entry.json');
    if (!entry) continue;
    const n = Math.ceil(entry.size / entry.pieceBytes);
    const has = Array.from({ length: n }, (_, i) => Boolean(entry.hashes[i]));
    const bytes = has.reduce((sum, is, i) => sum + (is ? Math.min(entry.pieceBytes, entry.size - i * entry.pieceBytes) : 0), 0);
    found.push({ url: entry.url, size: entry.size, bytes: Math.min(bytes, entry.size), isComplete: has.every(Boolean), at: entry.at });
  }
  return found;
}

/** Removes the file of an address, or all files whose address begins with it. Without an address, removes all. Returns how many were removed. */
export async function remove(url) {
  if (!(await isAvailable())) return 0;
  const folder = await root();
  const names = [];
  for await (const [name, entry] of folder.entries()) {
    const known = entry.kind === 'directory' ? await readJson(entry, 'entry.json') : null;
    if (url === undefined || known?.url === url || known?.url?.startsWith(`${url.replace(/\/$/, '')}/`)) names.push(name);
  }
  for (const name of names) await folder.removeEntry(name, { recursive: true });
  return names.length;
}

/** Runs `work` while no other tab loads the same files. */
export const alone = (urls, signal, work) => {
  if (!globalThis.navigator?.locks || !urls.length) return work();
  const name = `wingbeat.cache.${[...urls].sort()[0]}`;
  return navigator.locks.request(name, { signal }, work).catch((error) => {
    if (error?.name === 'AbortError' && signal?.aborted) throw new AbortError();
    throw error;
  });
};

