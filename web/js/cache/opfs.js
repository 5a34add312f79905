// Reads and writes small folders of the origin-private file system (OPFS), or of the disk in Node.

import { MemoryError } from '../errors.js';
import { isNode } from '../node.js';
import { diskFolder } from './disk.js';

const FOLDER = 'wingbeat-cache';

/** Returns the folder of the cache. */
export const root = async () => {
  const { storage } = globalThis.navigator ?? {};
  const base = isNode && !storage?.getDirectory ? await diskFolder() : await storage.getDirectory();
  return base.getDirectoryHandle(FOLDER, { create: true });
};

/** Returns whether the file system is available. Private windows of some browsers have no file system. */
export const isAvailable = async () => {
  try {
    await root();
    return true;
  } catch {
    return false;
  }
};

const mb = (n) => (n < 1e6 ? `${Math.ceil(n / 1e3)} kB` : `${n < 1e7 ? (n / 1e6).toFixed(1) : Math.round(n / 1e6)} MB`);

/** Returns `{usage, quota}` in bytes, or an empty object if they are unknown. */
const estimate = async () => (await globalThis.navigator?.storage?.estimate?.().catch(() => null)) ?? {};

const full = async (error, what, needed = 0) => {
  const { usage = 0, quota = 0 } = await estimate();
  // browsers may report a larger quota than they grant
  const why = usage + needed < 0.9 * quota ? 'the disk may be full, or this window has less storage than others' : `${mb(usage)} of ${mb(quota)} are in use`;
  return new MemoryError(`${isNode ? 'the disk' : "the browser's storage"} is full: ${what} does not fit; ${why}`, {
    kind: 'memory',
    cause: error ?? undefined,
    hint: 'remove models with `wingbeat.cache.remove`, free disk space, or load with `cache: false`',
  });
};

/** Converts the error of a full storage to a `MemoryError` with advice. Returns other errors unchanged. */
export const explained = (error, what) => (error?.name === 'QuotaExceededError' || error?.code === 'ENOSPC' || /quota/i.test(error?.message ?? '') ? full(error, what) : error);

/** Throws a `MemoryError` if the storage has no room for so many bytes. Call it before a download, which would otherwise be in vain. */
export async function fits(bytes) {
  const { usage, quota } = await estimate();
  if (bytes > 0 && quota > 0 && bytes > quota - usage) throw await full(null, `the download of ${mb(bytes)}`, bytes);
}

/** Returns the folder with this name. Creates the folder if it is missing. */
export const folderOf = async (name) => {
  try {
    return await (await root()).getDirectoryHandle(name, { create: true });
  } catch (error) {
    throw await explained(error, 'a folder');
  }
};

async function writeInPlace(file, bytes) {
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
}

/** Writes a file. After an interrupted write, the file may have any content. */
export async function write(folder, name, bytes) {
  try {
    const file = await folder.getFileHandle(name, { create: true });
    // every browser with OPFS has access handles, but only in dedicated workers; other threads use `createWritable`
    if (file.createSyncAccessHandle && typeof WorkerGlobalScope !== 'undefined') return await writeInPlace(file, bytes);
    const out = await file.createWritable();
    await out.write(bytes);
    await out.close();
  } catch (error) {
    throw await explained(error, `a file of ${mb(bytes.length)}`);
  }
}

/** Returns the bytes of a file from `start` to `end`, or null if it cannot be read. */
export const read = async (folder, name, start, end) => {
  try {
    const file = await (await folder.getFileHandle(name)).getFile();
    return new Uint8Array(await (start === undefined ? file : file.slice(start, end)).arrayBuffer());
  } catch {
    return null;
  }
};

/** Returns the value of a JSON file, or null if it cannot be read. */
export const readJson = async (folder, name) => {
  const bytes = await read(folder, name);
  try {
    return bytes && JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return null;
  }
};
