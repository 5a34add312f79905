// Local sources of models: a user's files, folders, bytes, and in Node paths.

import { FileError, InputError } from '../errors.js';
import { isNode, nodeModule } from '../node.js';
import { absolute, nameOf } from './address.js';
import { chosen } from './choose.js';
import { unreadable } from './readers.js';

export const isBlob = (value) => typeof Blob !== 'undefined' && value instanceof Blob;
/** Returns whether a text is a path or a `file:` address, which only Node has. A single letter before a colon is a Windows drive, not a scheme. */
export const isPath = (text) => isNode && (/^file:/i.test(text) || !/^[a-z][a-z0-9+.-]+:/i.test(text));

const placeOf = async (text) => (/^file:/i.test(text) ? (await nodeModule('url')).fileURLToPath(text) : text);

/** Returns the file of a path. */
const fileAt = async (text, name) => {
  const path = await placeOf(text);
  return { name: name ?? (await nodeModule('path')).basename(path), path };
};

export const isBytes = (value) => value instanceof ArrayBuffer || ArrayBuffer.isView(value);

const bytesOf = (value) => {
  if (value instanceof Uint8Array) return value;
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  return Uint8Array.from(value);
};

/** Returns a file name for bytes by their format. GGUF files begin with `GGUF`; `.pth` files are zip archives, which begin with `PK`. */
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

/** Returns the files of a list of files, addresses, paths, and `{name, bytes | blob | url}`. */
export async function ofList(list) {
  if (!list.length) throw new InputError('expected at least one file, found none', { kind: 'input', field: 'source', hint: 'give the checkpoint' });
  const one = async (entry) => {
    if (isBlob(entry)) return { name: entry.name, blob: entry };
    if (typeof entry === 'string' || entry instanceof URL) {
      if (isPath(String(entry))) return fileAt(String(entry));
      const url = absolute(entry);
      return { name: nameOf(url), url };
    }
    if (entry?.bytes) return { ...entry, bytes: bytesOf(entry.bytes) };
    if (entry?.url && isPath(String(entry.url))) return fileAt(String(entry.url), entry.name);
    if (entry?.url) return { ...entry, url: absolute(entry.url), name: entry.name ?? nameOf(absolute(entry.url)) };
    if (entry?.blob) return entry;
    throw new InputError('expected files, addresses or {name, bytes}', { kind: 'input', field: 'source', hint: null });
  };
  const files = await Promise.all(list.map(one));
  const found = chosen(files, null, 'the files');
  return { name: found.main.replace(/\..*$/, ''), ...found };
}

/** Returns the files of a path of Node: a checkpoint with the small files beside it, or a folder. */
export async function atPath(path) {
  const { stat, readdir } = await nodeModule('fs/promises');
  const { join, basename, dirname } = await nodeModule('path');
  const place = await placeOf(path);
  try {
    const isFolder = (await stat(place)).isDirectory();
    const folder = isFolder ? place : dirname(place);
    const names = (await readdir(folder, { withFileTypes: true })).filter((entry) => !entry.isDirectory()).map((entry) => entry.name);
    const files = names.map((name) => ({ name, path: join(folder, name) }));
    const found = chosen(files, isFolder ? null : basename(place), place);
    return { name: basename(isFolder ? place : found.main).replace(/\.[^.]*$/, ''), ...found };
  } catch (cause) {
    if (cause?.code === undefined) throw cause;
    throw unreadable(place, cause);
  }
}
