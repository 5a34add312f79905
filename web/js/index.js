// wingbeat: RWKV and GLM-4 on WebGPU, in browsers, Node and Deno.

import { AbortError } from './errors.js';
import { linkTo } from './link.js';
import { Model } from './model.js';

export { AbortError, BusyError, DeviceError, FileError, InputError, MemoryError, WingbeatError } from './errors.js';
export { check } from './gpu.js';
export { Answer, Model } from './model.js';
export * as cache from './stored.js';

let n = 0;

/** A list of files, such as a FileList, which is no array. */
const isList = (source) => typeof source === 'object' && source !== null && typeof source[Symbol.iterator] === 'function' && !ArrayBuffer.isView(source);

/**
 * Loads a model. `source`: an address, `hf:OWNER/REPO[/FILE][@REVISION]`, a File, files, a folder, bytes, or in Node a path.
 */
export async function load(source, { onProgress, signal, wasm, world, worker, ...options } = {}) {
  if (signal?.aborted) throw new AbortError();
  const link = await linkTo(worker);
  const assets = {
    wasm: String(wasm ?? new URL('./wingbeat_bg.wasm', import.meta.url)),
    world: String(world ?? new URL('./world.vocab', import.meta.url)),
  };
  const id = ++n;
  const stop = () => link.call('abort', { model: id }).catch(() => {});
  signal?.addEventListener('abort', stop, { once: true });
  try {
    const given = isList(source) ? absolute([...source]) : absolute(source);
    const info = await link.call('load', { model: id, source: given, options, assets }, { onProgress });
    return new Model(link, id, info);
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

/** Makes addresses absolute, because a worker from a text has no address that they could be relative to. */
const absolute = (source) => {
  const base = globalThis.document?.baseURI;
  if (source instanceof URL) return source.href;
  if (typeof source === 'string') return base && !/^[a-z][a-z0-9+.-]*:/i.test(source) ? new URL(source, base).href : source;
  if (Array.isArray(source)) return source.map(absolute);
  return source?.url && !source.blob ? { ...source, url: absolute(source.url) } : source;
};
