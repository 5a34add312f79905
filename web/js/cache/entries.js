// The entries of the cache: one folder per address, with a journal and the pieces of the file.

import { sha256 } from '../sha256.js';
import { isAvailable, root } from './opfs.js';
import { valueIn } from './journal.js';
import { forgetPlans } from './plans.js';

/** Returns the name of the folder of an address. */
export const keyOf = async (url) => (await sha256(new TextEncoder().encode(url))).slice(0, 32);

export const nPieces = ({ size, pieceBytes }) => Math.ceil(size / pieceBytes);

/** Returns whether an entry has all pieces. */
export const isWhole = (entry) => Array.from({ length: nPieces(entry) }, (_, i) => entry.hashes[i]).every(Boolean);

/** Returns how many bytes of an entry are in the cache. */
export const bytesOf = (entry) => {
  let bytes = 0;
  for (let i = 0; i < nPieces(entry); i++) if (entry.hashes[i]) bytes += Math.min(entry.pieceBytes, entry.size - i * entry.pieceBytes);
  return bytes;
};

const isEntry = (value) => Boolean(value?.url && value.pieceBytes > 0 && Array.isArray(value.hashes));

/** Returns the entry of an address, complete or begun, or null. */
export async function entryOf(url) {
  try {
    const value = await valueIn(await (await root()).getDirectoryHandle(await keyOf(url)));
    return isEntry(value) && value.url === url ? value : null;
  } catch {
    return null;
  }
}

async function* folders() {
  if (!(await isAvailable())) return;
  for await (const [name, folder] of (await root()).entries()) if (folder.kind === 'directory') yield [name, folder];
}

/** Lists the files in the cache: `{url, size, bytes, isComplete, at}`. `at` is the time at which the download began, in ms since 1970. */
export async function list() {
  const found = [];
  for await (const [, folder] of folders()) {
    const entry = await valueIn(folder);
    if (isEntry(entry)) found.push({ url: entry.url, size: entry.size, bytes: bytesOf(entry), isComplete: isWhole(entry), at: entry.at });
  }
  return found;
}

const isBelow = (url, base) => url === base || url.startsWith(`${base.replace(/\/$/, '')}/`);

/** Removes the file of an address and all files below this address. Without an address, removes all files. Returns the number of removed files. */
export async function remove(url) {
  const base = url === undefined ? null : String(url);
  const found = [];
  for await (const [name, folder] of folders()) {
    const entry = await valueIn(folder);
    if (base === null || (isEntry(entry) && isBelow(entry.url, base))) found.push([name, isEntry(entry)]);
  }
  for (const [name] of found) await (await root()).removeEntry(name, { recursive: true });
  await forgetPlans(base === null ? () => true : (plan) => plan.files.some((file) => file.url && isBelow(file.url, base)));
  return found.filter(([, isFile]) => isFile).length;
}
