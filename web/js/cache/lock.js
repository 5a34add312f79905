// Lets one tab at a time download a model.

import { AbortError } from '../errors.js';

/**
 * Runs `work` while no other tab loads the same files. `onWait` is called if another tab does so. The first address in sorted order is the name of
 * the lock.
 */
export async function alone(urls, { signal, onWait }, work) {
  const locks = globalThis.navigator?.locks;
  if (!locks || !urls.length) return work();
  const name = `wingbeat.cache.${[...urls].sort()[0]}`;
  let isMine = false;
  const mine = async () => {
    isMine = true;
    return work();
  };
  const found = await locks.request(name, { ifAvailable: true }, (lock) => lock && mine());
  if (isMine) return found;
  onWait?.();
  try {
    return await locks.request(name, { signal }, mine);
  } catch (error) {
    throw error?.name === 'AbortError' && signal?.aborted ? new AbortError() : error;
  }
}
