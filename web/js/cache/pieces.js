// Keeps a downloaded file in pieces, each with its SHA-256. Only a piece with the right hash counts. So a download that was cut continues with the
// missing pieces, and a damaged piece is fetched again.

import { AbortError, FileError } from '../errors.js';
import { hasher as newHasher, sha256 } from '../sha256.js';
import { pairs } from '../sources/ranges.js';
import { bytesOf, isWhole, keyOf, nPieces, remove } from './entries.js';
import { Journal } from './journal.js';
import { folderOf, read, root, write } from './opfs.js';

const PIECE_BYTES = 16 << 20;
/** How many pieces are fetched at once, how many are fetched ahead of the reader, and how many stay in memory. */
const PARALLEL = 4;
const AHEAD = 2;
const HELD = 3;

const isSame = (entry, { size, etag, expected }) =>
  entry?.size === size && entry.pieceBytes > 0 && (!etag || !entry.etag || entry.etag === etag) && (!expected || !entry.expected || entry.expected === expected);

/**
 * A file behind an address, with its pieces in the cache. `source` reads ranges from the network. `expected` is the SHA-256 of the whole file, or
 * null. With it, the file counts as complete only after its hash was compared.
 */
export class CachedFile {
  static async open(url, { source, size, etag = null, expected = null, isRanged = true, signal, pieceBytes = PIECE_BYTES }) {
    const key = await keyOf(url);
    let folder = await folderOf(key);
    let journal = await Journal.open(folder);
    if (!isSame(journal.value, { size, etag, expected })) {
      if (journal.value) {
        await (await root()).removeEntry(key, { recursive: true });
        folder = await folderOf(key);
        journal = await Journal.open(folder);
      }
      await journal.save({ url, size, etag, expected, isRanged, pieceBytes, hashes: [], isVerified: false, at: Date.now() });
    }
    // a file that was cached without a hash is compared with the hash that is known now
    const isVerified = journal.value.isVerified && (!expected || journal.value.expected === expected);
    const entry = { ...journal.value, expected: journal.value.expected ?? expected, isVerified };
    return Object.assign(new CachedFile(), { url, folder, journal, entry, source, size, signal, held: new Map(), pending: new Map(), checked: new Set(), wanted: new Set() });
  }

  /** Returns how many bytes are in the cache. */
  get bytes() {
    return bytesOf(this.entry);
  }

  get isWhole() {
    return isWhole(this.entry);
  }

  span(i) {
    return [i * this.entry.pieceBytes, Math.min(this.size, (i + 1) * this.entry.pieceBytes)];
  }

  save() {
    return this.journal.save({ ...this.entry, hashes: [...this.entry.hashes] });
  }

  /** Returns the bytes of a piece. */
  piece(i) {
    const held = this.held.get(i);
    if (held) {
      this.held.delete(i);
      this.held.set(i, held);
      return Promise.resolve(held);
    }
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
    const stored = async () => {
      const bytes = this.entry.hashes[i] ? await read(this.folder, String(i)) : null;
      return bytes?.length === end - start && (await sha256(bytes)) === this.entry.hashes[i] ? bytes : null;
    };
    let bytes = await stored();
    if (!bytes) {
      if (this.signal?.aborted) throw new AbortError();
      if (this.source.pieces) {
        await this.fill(i);
        bytes = await stored();
        if (!bytes) throw new FileError(`${this.url}: the storage of the browser lost a piece of the file`, { kind: 'file', hint: 'load it again' });
      } else {
        [bytes] = await this.source.read([start, end]);
        await this.put(i, bytes);
      }
    }
    this.checked.add(i);
    return this.hold(i, bytes);
  }

  /** Stores a fetched piece. Throws if the file was verified before, and this piece has another hash now. */
  async put(i, bytes) {
    const digest = await sha256(bytes);
    const hash = this.entry.hashes[i];
    if (hash && this.entry.isVerified && digest !== hash) {
      throw new FileError(`${this.url}: the file on the server is not the one in the cache any more`, { kind: 'file', hint: 'load it with `revalidate: true`, which fetches the new file' });
    }
    await write(this.folder, String(i), bytes);
    this.entry.hashes[i] = digest;
    await this.save();
  }

  /** Fetches piece `i` and all missing pieces from a server without ranges, which sends only the whole file. */
  async fill(i) {
    const take = async (k, bytes) => {
      if (this.wanted.has(k) || !this.entry.hashes[k]) await this.put(k, bytes);
      this.wanted.delete(k);
    };
    this.wanted.add(i);
    // a download that began for another piece may already be past this piece; then one more download is needed
    while (this.wanted.has(i)) {
      this.filling ??= this.source.pieces(this.entry.pieceBytes, take).finally(() => (this.filling = null));
      await this.filling;
    }
  }

  /** Returns bytes of a piece, from `start` to `end` within it. A piece whose hash was compared is not read as a whole again. */
  async part(i, start, end) {
    if (this.checked.has(i) && !this.held.has(i) && !this.pending.has(i)) {
      const bytes = await read(this.folder, String(i), start, end);
      if (bytes?.length === end - start) return bytes;
      this.checked.delete(i);
    }
    return (await this.piece(i)).subarray(start, end);
  }

  async read(ranges) {
    const wanted = pairs(ranges);
    const results = wanted.map(([start, end]) => new Uint8Array(end - start));
    const parts = wanted.flatMap(([start, end], r) => this.pieces(start, end).map((i) => ({ r, i, start, end })));
    parts.sort((a, b) => a.i - b.i);
    const one = async ({ r, i, start, end }) => {
      const [first, last] = this.span(i);
      const [from, to] = [Math.max(start, first), Math.min(end, last)];
      results[r].set(await this.part(i, from - first, to - first), from - start);
    };
    for (let at = 0; at < parts.length; at += PARALLEL) await Promise.all(parts.slice(at, at + PARALLEL).map(one));
    if (parts.length) this.ahead(parts.at(-1).i + 1);
    return results;
  }

  pieces(start, end) {
    if (start >= end) return [];
    const [from, to] = [Math.floor(start / this.entry.pieceBytes), Math.floor((end - 1) / this.entry.pieceBytes)];
    return Array.from({ length: to - from + 1 }, (_, k) => from + k);
  }

  /** Begins to fetch the next pieces, so that the network works while weights are encoded. */
  ahead(from) {
    if (this.source.pieces) return;
    for (let i = from; i < Math.min(from + AHEAD, nPieces(this.entry)); i++) if (!this.entry.hashes[i]) this.piece(i).catch(() => {});
  }

  /** Fetches the missing pieces, and compares the hash of the whole file with `expected`. Removes a file with another hash from the cache. */
  async complete() {
    const missing = Array.from({ length: nPieces(this.entry) }, (_, i) => i).filter((i) => !this.entry.hashes[i]);
    for (let at = 0; at < missing.length; at += PARALLEL) await Promise.all(missing.slice(at, at + PARALLEL).map((i) => this.piece(i)));
    if (this.entry.isVerified) return;
    if (this.entry.expected) {
      const hasher = newHasher();
      for (let i = 0; i < nPieces(this.entry); i++) hasher.update(await this.piece(i));
      const found = hasher.digest();
      if (found !== this.entry.expected) {
        await remove(this.url);
        throw new FileError(`${this.url}: expected the SHA-256 ${this.entry.expected}, found ${found}`, { kind: 'file', hint: 'the file was damaged on its way, has changed, or `integrity` is of another file; it is not kept: load it again' });
      }
    }
    this.entry.isVerified = true;
    await this.save();
  }

  /** Waits for pieces that are being written. */
  async close() {
    await Promise.allSettled(this.pending.values());
    await this.journal.saving.catch(() => {});
  }
}
