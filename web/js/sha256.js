// SHA-256. `crypto.subtle` needs all bytes in memory at once; `Hasher` of the WebAssembly module takes the bytes in pieces.

let Module = null;

/** Sets the module, whose `Hasher` this file uses. */
export const useModule = (module) => {
  Module = module;
};

export const hasher = () => new Module.Hasher();

const hex = (bytes) => Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** Returns the hash of bytes in memory. */
export const sha256 = async (bytes) => hex(await crypto.subtle.digest('SHA-256', bytes));
