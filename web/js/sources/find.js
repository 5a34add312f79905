// Finds the files of a model: converts the source of `load` to a list of files that can be read by ranges.

import { InputError } from '../errors.js';
import { isAvailable } from '../cache/opfs.js';
import { entryOf, isWhole } from '../cache/entries.js';
import { keepPlan, planOf } from '../cache/plans.js';
import { absolute, atAddress } from './address.js';
import { HUB, hubOf, onHub } from './hub.js';
import { atPath, isBlob, isBytes, isPath, ofBlob, ofBytes, ofFolder, ofList } from './local.js';

/** Returns the files of a source that is a text: on the hub, at an address, or at a path. Needs no request if the cache has all files completely. */
async function ofText(text, options) {
  if (isPath(text)) return atPath(text);
  const hub = hubOf(text, options.endpoint);
  const key = JSON.stringify([hub ?? absolute(text), options.sideFiles ?? null]);
  const keeps = options.cache !== false && (await isAvailable());
  if (keeps && !options.revalidate) {
    const plan = await planOf(key);
    const entries = plan ? await Promise.all(plan.files.map((file) => entryOf(file.url))) : [];
    if (plan && entries.every((entry) => entry && isWhole(entry))) return { ...plan, isKept: true };
  }
  const found = hub ? await onHub(hub, options) : await atAddress(text, options);
  return { ...found, keep: () => (keeps ? keepPlan(key, found) : null) };
}

/**
 * Returns `{name, main, files: [{name, url | blob | bytes | path, size?, sha256?}], keep?}` for the source of `load`. `keep()` remembers the list.
 */
export async function find(source, options = {}) {
  const endpoint = (options.endpoint ?? HUB).replace(/\/$/, '');
  if (source instanceof URL) source = source.href;
  if (typeof source === 'string') return ofText(source, { ...options, endpoint });
  if (isBlob(source)) return ofBlob(source);
  if (isBytes(source)) return ofBytes(source);
  if (source?.kind === 'directory') return ofFolder(source);
  if (source?.kind === 'file') return ofBlob(await source.getFile());
  if (source && typeof source[Symbol.iterator] === 'function') return ofList([...source]);
  if (source?.url || source?.bytes || source?.blob) return ofList([source]);
  throw new InputError('expected an address, hf:OWNER/REPO, a file, files, a folder or bytes as the source of a model', { kind: 'input', field: 'source' });
}
