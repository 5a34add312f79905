// Remembers the files of a source, so that a later visit needs no request to find them: not to the hub, not for a manifest, and not for small files
// that may be beside the weights.

import { sha256 } from '../sha256.js';
import { Journal, valueIn } from './journal.js';
import { folderOf, root } from './opfs.js';

const PREFIX = 'plan-';

const nameOf = async (key) => PREFIX + (await sha256(new TextEncoder().encode(key))).slice(0, 32);

/** Returns `{name, main, files}` of a source that was loaded before, or null. */
export async function planOf(key) {
  try {
    const plan = await valueIn(await (await root()).getDirectoryHandle(await nameOf(key)));
    return plan?.key === key ? plan : null;
  } catch {
    return null;
  }
}

/** Keeps the list of a source's files. Each file must have an address. */
export async function keepPlan(key, { name, main, files }) {
  const folder = await folderOf(await nameOf(key));
  const kept = files.map(({ name, url, size, sha256 }) => ({ name, url, size: size ?? null, sha256: sha256 ?? null }));
  await (await Journal.open(folder)).save({ key, name, main, files: kept });
}

/** Removes the plans for which `isGone(plan)` is true, and damaged plans. */
export async function forgetPlans(isGone) {
  const folder = await root();
  const names = [];
  for await (const [name, entry] of folder.entries()) {
    if (!name.startsWith(PREFIX)) continue;
    const plan = await valueIn(entry);
    if (!plan?.files || isGone(plan)) names.push(name);
  }
  for (const name of names) await folder.removeEntry(name, { recursive: true });
}
