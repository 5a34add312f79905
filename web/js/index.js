// wingbeat: RWKV and GLM-4 on WebGPU, in browsers, Node and Deno.

import { AbortError } from './errors.js';
import { linkTo } from './link.js';
import { Model } from './model.js';

export { AbortError, BusyError, DeviceError, FileError, InputError, MemoryError, WingbeatError } from './errors.js';
export { check } from './gpu.js';
export { Answer, Model } from './model.js';
export * as cache from './stored.js';

let n = 0;

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
    const given = source instanceof URL ? source.href : relative(source);
    const info = await link.call('load', { model: id, source: given, options, assets }, { onProgress });
    return new Model(link, id, info);
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

/** Addresses are relative to the page. In a worker from a blob, there is no page to be relative to. */
const relative = (source) => {
  const base = globalThis.document?.baseURI;
  if (typeof source !== 'string' || !base || /^[a-z][a-z0-9+.-]*:/i.test(source)) return source;
  return new URL(source, base).href;
};
