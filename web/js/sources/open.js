// Opens the files of a model, and makes the object that the WebAssembly module reads.

import { FileError } from '../errors.js';
import { CachedFile } from '../cache/pieces.js';
import { entryOf, isWhole, remove } from '../cache/entries.js';
import { fits, isAvailable } from '../cache/opfs.js';
import { VOCABULARY } from './choose.js';
import { UrlFile, stat } from './http.js';
import { StreamFile } from './stream.js';
import { BlobFile, MemoryFile, PathFile } from './readers.js';
import { whole } from './request.js';

/** A file of at most this size is read into memory if the server has no ranges and the cache is not used. */
const WHOLE_BYTES = 64 << 20;

/** The shortest time between two reports of progress, in milliseconds: a fast download arrives in thousands of parts per second. */
const TELL_MS = 50;

/** Counts bytes from the network, and reports them to `listener`. */
class Progress {
  loaded = 0;
  total = 0;
  arrived = 0;
  told = -Infinity;
  timer = null;

  constructor(listener) {
    this.listener = listener;
  }

  add(n, file) {
    this.began ??= performance.now();
    this.loaded += n;
    this.arrived += n;
    this.file = file;
    const wait = this.told + TELL_MS - performance.now();
    if (wait <= 0) this.tell();
    else this.timer ??= setTimeout(() => this.tell(), wait);
  }

  tell() {
    clearTimeout(this.timer);
    this.timer = null;
    this.told = performance.now();
    const seconds = Math.max(0.05, (this.told - this.began) / 1000);
    const { loaded, total, file } = this;
    this.listener?.({ stage: 'download', loaded: Math.min(loaded, total), total, file, rate: Math.round(this.arrived / seconds) });
  }

  /** Reports the bytes that were not reported yet. */
  end() {
    if (this.timer !== null) this.tell();
  }
}

/** Returns a reader of a file on the network, with the size and version of the file. `known` is the file's complete entry in the cache, or null. */
async function fromNetwork({ name, url, bytes, size: announced }, known, { signal, headers, progress, cache }) {
  if (bytes) return { source: new MemoryFile(bytes), size: bytes.length, etag: null };
  const about = known ? { ...known, ranged: known.isRanged } : await stat(url, { signal, headers, isKept: cache });
  const { etag, ranged: isRanged } = about;
  const size = about.size ?? announced ?? null;
  if (announced && size !== announced) {
    throw new FileError(`${url}: expected ${announced} bytes, found ${size}`, { kind: 'file', hint: 'the file was cut while it was copied to the server, or its list is older than the file' });
  }
  const options = { size, etag, signal, headers, isKept: cache, onBytes: (n) => progress.add(n, name) };
  if (isRanged) return { source: new UrlFile(url, options), size, etag, isRanged, isCounted: true };
  if (cache && size !== null) return { source: new StreamFile(url, options), size, etag, isRanged, isCounted: true };
  if (size !== null && size > WHOLE_BYTES) {
    const hint = 'load it with the cache, serve it from a server that has ranges (206 Partial Content), or download it and load it as a File';
    throw new FileError(`${url}: the server has no ranges, and sends only the whole file of ${Math.round(size / 1e6)} MB`, { kind: 'file', hint });
  }
  const all = (await whole(url, { signal, headers })).bytes;
  return { source: new MemoryFile(all), size: all.length, etag };
}

async function openUrl(entry, { revalidate, expected, pieceBytes, ...options }) {
  const { cache, signal, progress } = options;
  const kept = cache ? await entryOf(entry.url) : null;
  const isKept = kept && isWhole(kept) && !revalidate;
  const { source, size, etag, isRanged, isCounted } = await fromNetwork(isKept ? { ...entry, bytes: null } : entry, isKept ? kept : null, options);
  const file = cache ? await CachedFile.open(entry.url, { source, size, etag, expected, isRanged, signal, ...(pieceBytes ? { pieceBytes } : {}) }) : source;
  if (isCounted) {
    progress.total += size;
    if (cache) progress.loaded += file.bytes;
  }
  return file;
}

const openOne = (entry, options) => {
  if (entry.url) return openUrl(entry, options);
  if (entry.blob) return new BlobFile(entry.blob);
  return entry.path ? PathFile.open(entry.path) : new MemoryFile(entry.bytes);
};

const expectedOf = (entry, main, integrity) => (typeof integrity === 'string' ? entry.name === main && integrity : integrity?.[entry.name]) || entry.sha256 || null;

/**
 * Opens the files that `find` returned. `world` returns the vocabulary of World models, for models without a vocabulary. Returns `source`, from which
 * the module reads, and `failure`, `complete`, `forget` and `close`.
 */
export async function open(found, { onDownload, cache = true, world, integrity, ...options } = {}) {
  const progress = new Progress(onDownload);
  const useCache = cache !== false && found.files.some((file) => file.url) && (await isAvailable());
  const files = [];
  const opened = [];
  const add = (name, file) => {
    files.push({ name, size: file.size });
    opened.push(file);
  };
  const close = () => {
    progress.end();
    return Promise.all(opened.map((file) => file.close?.()));
  };
  try {
    for (const entry of found.files) {
      add(entry.name, await openOne(entry, { ...options, cache: useCache, progress, expected: expectedOf(entry, found.main, integrity) }));
    }
    if (useCache) await fits(progress.total - progress.loaded);
    if (world && !found.files.some((file) => VOCABULARY.test(file.name))) add('rwkv_vocab_v20230424.txt', new MemoryFile(await world()));
  } catch (error) {
    await close();
    throw error;
  }
  let failure = null;
  const read = async (file, ranges) => {
    try {
      return await opened[file].read(Array.from(ranges));
    } catch (error) {
      failure ??= error;
      throw error;
    }
  };
  return {
    source: { name: found.name, main: found.main ?? undefined, files, read },
    /** The first error of reading, or null. The module would hide it behind an error of its own. */
    get failure() {
      return failure;
    },
    /** Fetches the parts that the load did not read, compares hashes, and remembers the list of files. */
    async complete() {
      for (const file of opened) await file.complete?.();
      await found.keep?.();
    },
    /**
     * Removes the file that the module could not parse from the cache, or all files if `message` names no file. Returns whether a file was removed.
     */
    async forget(message) {
      if (!useCache) return false;
      const cached = found.files.filter((file) => file.url);
      const named = cached.filter(({ name }) => message.includes(name));
      const gone = await Promise.all((named.length ? named : cached).map(({ url }) => remove(url)));
      return gone.some(Boolean);
    },
    close,
  };
}
