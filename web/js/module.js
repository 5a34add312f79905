// The WebAssembly module of this thread: starts the module once, and converts its errors.

import init, * as wasm from './wingbeat.js';
import { AbortError, FileError, MemoryError, WingbeatError, unpacked } from './errors.js';
import { isNode, nodeModule } from './node.js';
import { useModule } from './sha256.js';
import { renamed } from './words.js';

export { wasm };

let started = null;
/** The error that stopped the module, or null. The module's memory may then be damaged, so no call runs in it any more. */
let broken = null;

const isFile = (location) => isNode && String(location).startsWith('file:');

async function readFile(location) {
  const { readFile } = await nodeModule('fs/promises');
  const { fileURLToPath } = await nodeModule('url');
  return readFile(fileURLToPath(location));
}

/** Compiles the module once. `location` is its address. */
export const start = (location) => {
  if (broken) throw broken;
  const work = async () => {
    await init({ module_or_path: isFile(location) ? await readFile(location) : location });
    useModule(wasm);
  };
  started ??= work().catch((cause) => {
    started = null;
    const hint = 'serve wingbeat_bg.wasm beside the package, or name its address with `wasm`; a content security policy must allow `wasm-unsafe-eval`';
    throw new FileError(`the module ${location} cannot be loaded: ${cause?.message ?? cause}`, { kind: 'file', cause, hint });
  });
  return started;
};

/** Returns the vocabulary of World models. `location` is the address of its compressed file. */
export async function worldVocabulary(location) {
  if (isFile(location)) {
    const { gunzipSync } = await nodeModule('zlib');
    return new Uint8Array(gunzipSync(await readFile(location)));
  }
  const response = await fetch(location).catch((cause) => ({ ok: false, status: cause?.message ?? cause }));
  if (!response.ok) {
    const hint = 'serve world.vocab beside the package, name its address with `world`, or give the vocabulary as one of the files';
    throw new FileError(`${location}: the vocabulary of World models cannot be loaded: ${response.status}`, { kind: 'file', hint });
  }
  const bytes = new Uint8Array(await response.arrayBuffer());
  // without the magic number of gzip, the server or the browser has already unpacked the file
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(unpacked).arrayBuffer());
}

export const isTrap = (error) => typeof WebAssembly !== 'undefined' && error instanceof WebAssembly.RuntimeError;

/** Records that the module stopped. Returns the error that all later calls throw. */
export function breakDown(error) {
  const isMemory = /memory|allocat/i.test(error.message);
  const Class = isMemory ? MemoryError : WingbeatError;
  broken ??= new Class(`the module stopped: ${error.message}`, { kind: isMemory ? 'memory' : 'internal', cause: error, hint: 'load the model again' });
  broken.isFatal = true;
  return broken;
}

/** Converts a thrown value to an error of this package. `failure` is the first error of reading a file, which the module would hide. */
export const thrown = (error, { failure, signal } = {}) => {
  if (isTrap(error)) return breakDown(error);
  if (signal?.aborted) return new AbortError();
  if (failure) return failure;
  if (error instanceof WingbeatError) return error;
  if (!error?.kind) return error;
  return unpacked({ message: renamed(error.message), kind: error.kind, field: error.field ?? null, hint: error.hint ? renamed(error.hint) : null });
};
