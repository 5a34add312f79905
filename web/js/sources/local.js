// Models of this place: files of a user, folders, bytes, and in Node paths.

import { FileError, InputError } from '../errors.js';
import { nodeModule } from '../node.js';
import { absolute, nameOf } from './address.js';
import { chosen } from './choose.js';

export const isBlob = (value) => typeof Blob !== 'undefined' && value instanceof Blob;
export const isBytes = (value) => value instanceof ArrayBuffer || ArrayBuffer.isView(value);

const bytesOf = (value) => {
  if (value instanceof Uint8Array) return value;
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  return Uint8Array.from(value);
};

/** Names bytes after their format: by the first bytes of GGUF and of zip archives, which `.pth` files are. */
const namedBytes = (bytes) => {
  const start = String.fromCharCode(...bytes.subarray(0, 4));
  return start === 'GGUF' ? 'model.gguf' : start.startsWith('PK') ? 'model.pth' : 'model.safetensors';
};

export const ofBytes = (value) => {
  const bytes = bytesOf(value);
  const name = namedBytes(bytes);
  return { name: 'model', files: [{ name, bytes }], main: name };
};

export const ofBlob = async (blob) => {
  const name = blob.name ?? namedBytes(new Uint8Array(await blob.slice(0, 4).arrayBuffer()));
  return { name: name.replace(/\..*$/, ''), files: [{ name, blob }], main: name };
};

export async function ofFolder(handle) {
  const files = [];
  for await (const entry of handle.values()) {
    if (entry.kind !== 'file') continue;
    files.push({ name: entry.name, blob: await entry.getFile() });
  }
  return { name: handle.name || 'model', ...chosen(files, null, handle.name || 'the folder') };
}

/** Returns the files of a list of files, addresses, and `{name, bytes | blob | url}`. */
export function ofList(list) {
  if (!list.length) throw new InputError('expected at least one file, found none', { kind: 'input', field: 'source', hint: 'give the checkpoint' });
  const files = list.map((entry) => {
    if (isBlob(entry)) return { name: entry.name, blob: entry };
    if (typeof entry === 'string' || entry instanceof URL) {
      const url = absolute(entry);
      return { name: nameOf(url), url };
    }
    if (entry?.bytes) return { ...entry, bytes: bytesOf(entry.bytes) };
    if (entry?.url) return { ...entry, url: absolute(entry.url), name: entry.name ?? nameOf(absolute(entry.url)) };
    if (entry?.blob) return entry;
    throw new InputError('expected files, addresses or {name, bytes}', { kind: 'input', field: 'source', hint: null });
  });
  const found = chosen(files, null, 'the files');
  return { name: found.main.replace(/\..*$/, ''), ...found };
}

/** Returns the files of a path of Node: a checkpoint with the small files beside it, or a folder. */
export async function atPath(path) {
  const { stat, readdir } = await nodeModule('fs/promises');
  const { join, basename, dirname } = await nodeModule('path');
  const { fileURLToPath } = await nodeModule('url');
  const place = path.startsWith('file:') ? fileURLToPath(path) : path;
  try {
    const isFolder = (await stat(place)).isDirectory();
    const folder = isFolder ? place : dirname(place);
    const names = (await readdir(folder, { withFileTypes: true })).filter((entry) => !entry.isDirectory()).map((entry) => entry.name);
    const files = names.map((name) => ({ name, path: join(folder, name) }));
    const found = chosen(files, isFolder ? null : basename(place), place);
    return { name: basename(isFolder ? place : found.main).replace(/\.[^.]*$/, ''), ...found };
  } catch (cause) {
    if (cause?.code === undefined) throw cause;
    throw new FileError(`${place}: ${cause.code === 'ENOENT' ? 'no such file or folder' : cause.message}`, { kind: 'file', cause, hint: 'check the path' });
  }
}
