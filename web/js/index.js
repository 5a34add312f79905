// wingbeat: RWKV and GLM-4 on WebGPU, in browsers, Node and Deno.

import { stopped } from './errors.js';
import { linkTo } from './link.js';
import { Model } from './model.js';

export { AbortError, BusyError, DeviceError, FileError, InputError, MemoryError, WingbeatError } from './errors.js';
export { check } from './gpu.js';
export { Answer } from './answer.js';
export { Model } from './model.js';
export * as cache from './cache/index.js';

/** The version of the package. */
export const version = '0.1.0';

let n = 0;

/**
 * Loads a model. `source`: an address, `hf:OWNER/REPO[/FILE][@REVISION]`, a File, files, a folder, bytes, or in Node a path.
 */
export async function load(source, { onProgress, signal, wasm, world, worker, ...options } = {}) {
  let link = await linkTo(worker);
  // the worker ends with its last model, which may have been freed in the meantime
  if (link.dead) link = await linkTo(worker);
  if (signal?.aborted) throw stopped(signal);
  const assets = {
    wasm: absolute(wasm ?? new URL('./wingbeat_bg.wasm', import.meta.url)),
    world: absolute(world ?? new URL('./world.vocab', import.meta.url)),
  };
  const id = ++n;
  const stop = () => link.call('abort', { model: id }).catch(() => {});
  signal?.addEventListener('abort', stop, { once: true });
  link.hold();
  try {
    const info = await link.call('load', { model: id, source: sendable(source), options, assets }, { onProgress });
    // the load may have ended before the worker received the stop
    if (signal?.aborted) {
      await link.call('free', { model: id });
      throw stopped(signal);
    }
    return new Model(link, id, info);
  } catch (error) {
    link.release();
    throw signal?.aborted && error?.name === 'AbortError' ? stopped(signal) : error;
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

/** Makes an address of the page absolute, because a worker from a blob has no base address. */
const absolute = (address) => {
  const base = globalThis.document?.baseURI;
  const text = String(address);
  return base && !/^[a-z][a-z0-9+.-]*:/i.test(text) ? new URL(text, base).href : text;
};

const isBytes = (value) => value instanceof ArrayBuffer || ArrayBuffer.isView(value);

/** Turns bytes into a Blob for a worker. A Blob is sent without a copy, and the browser may keep it on the disk. */
const light = (bytes) => (globalThis.document ? new Blob([bytes]) : bytes);

/** Converts a source to values that can be sent to a worker. */
const sendable = (source) => {
  if (typeof source === 'string' || source instanceof URL) return absolute(source);
  if (isBytes(source)) return light(source);
  if (typeof source?.[Symbol.iterator] !== 'function') return source;
  return Array.from(source, (entry) => {
    if (typeof entry === 'string' || entry instanceof URL) return absolute(entry);
    if (isBytes(entry?.bytes)) return globalThis.document ? { name: entry.name, blob: light(entry.bytes) } : entry;
    return entry?.url ? { ...entry, url: absolute(entry.url) } : entry;
  });
};
