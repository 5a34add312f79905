// The cache of downloaded models: `wingbeat.cache`.

export { list, remove } from './entries.js';

/** Returns `{usage, quota, isPersistent}` of the browser's storage for this page. */
export async function usage() {
  const { usage = 0, quota = 0 } = (await globalThis.navigator?.storage?.estimate?.()) ?? {};
  return { usage, quota, isPersistent: (await globalThis.navigator?.storage?.persisted?.()) ?? false };
}

/** Asks the browser not to remove the cache when storage runs low. Returns whether the browser agrees. */
export const persist = async () => (await globalThis.navigator?.storage?.persist?.()) ?? false;
