// The named states of a model.

import { FileError, InputError } from './errors.js';
import { isNode, nodeModule } from './node.js';
import { hintOfStatus } from './sources/request.js';

const isPath = (file) => typeof file === 'string' && !/^[a-z][a-z0-9+.-]+:/i.test(file);

/** Returns the bytes of a file that the caller gave. */
async function bytesOf(file) {
  if (isNode && isPath(file)) {
    const { readFile } = await nodeModule('fs/promises');
    return new Uint8Array(await readFile(file).catch((cause) => {
      throw new FileError(`${file}: ${cause.message}`, { kind: 'file', cause, hint: 'check the path' });
    }));
  }
  if (typeof file === 'string' || file instanceof URL) {
    const response = await fetch(file).catch((cause) => ({ ok: false, status: cause?.message ?? cause }));
    if (!response.ok) throw new FileError(`${file}: expected a state, the server answered ${response.status}`, { kind: 'file', hint: hintOfStatus(response.status) });
    return new Uint8Array(await response.arrayBuffer());
  }
  const blob = typeof file?.getFile === 'function' ? await file.getFile() : file;
  if (typeof Blob !== 'undefined' && blob instanceof Blob) return new Uint8Array(await blob.arrayBuffer());
  if (blob instanceof ArrayBuffer) return new Uint8Array(blob);
  if (ArrayBuffer.isView(blob)) return new Uint8Array(blob.buffer, blob.byteOffset, blob.byteLength);
  throw new InputError('expected a file, bytes or an address of a state', { kind: 'input', field: 'file', hint: null });
}

export class States {
  #call;

  constructor(call) {
    this.#call = call;
  }

  /** Lists `{name, n_tokens, bytes}`. */
  async list() {
    return JSON.parse(await this.#call('states'));
  }

  /** Returns the file of a state. `wingbeat generate --state`, the server and other pages can read it. */
  async export(name) {
    return new Blob([await this.#call('export_state', name)], { type: 'application/octet-stream' });
  }

  /** Loads the state in a file under a name. `file` is a Blob, an ArrayBuffer, bytes, an address, a file handle, or in Node a path. */
  async load(name, file) {
    return JSON.parse(await this.#call('import_state', name, await bytesOf(file)));
  }

  /** Writes the file of a state: to a file handle (of `showSaveFilePicker` or of OPFS), or in Node to a path. */
  async save(name, file) {
    const state = await this.export(name);
    if (isNode && isPath(file)) {
      const { writeFile } = await nodeModule('fs/promises');
      return writeFile(file, new Uint8Array(await state.arrayBuffer()));
    }
    if (typeof file?.createWritable !== 'function') {
      throw new InputError('expected a file handle', { kind: 'input', field: 'file', hint: 'use `showSaveFilePicker`, or save the Blob that `states.export` returns' });
    }
    const out = await file.createWritable();
    await out.write(state);
    return out.close();
  }

  /** Copies a state. */
  async fork(name, to) {
    return JSON.parse(await this.#call('fork_state', name, to));
  }

  async delete(name) {
    await this.#call('delete_state', name);
  }
}
