// Requests that are sent again when the network fails, and errors that say why.

import { AbortError, FileError } from '../errors.js';

/** How often a request is sent at most; then the first and the longest wait between two attempts, in milliseconds. */
export const TRIES = 5;
const WAIT_MS = 300;
const MOST_WAIT_MS = 30_000;

/** Waits before the next attempt. A server may ask for more time with `Retry-After`. */
export const pause = (attempt, signal, after = null) =>
  new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new AbortError());
    };
    const asked = Number(after) > 0 ? Number(after) * 1000 : 0;
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, Math.min(MOST_WAIT_MS, Math.max(asked, WAIT_MS * 2 ** (attempt - 1))));
    signal?.addEventListener('abort', stop, { once: true });
  });

const hintOf = (url) => {
  if (globalThis.navigator?.onLine === false) return 'this device is offline; models that were loaded before need no network';
  const { origin } = globalThis.location ?? {};
  const isForeign = origin && origin !== 'null' && new URL(url).origin !== origin;
  return isForeign
    ? `check the address and the connection; the server must allow pages of ${origin} (CORS: Access-Control-Allow-Origin)`
    : 'check the address and the connection';
};

/**
 * Sends a request, and sends it again if the network or the server fails. If the caller keeps the bytes (`isKept`), the browser does not cache them.
 */
export async function request(url, { signal, headers, method = 'GET', isKept = false } = {}) {
  for (let attempt = 1; ; attempt++) {
    if (signal?.aborted) throw new AbortError();
    let response = null;
    let cause = null;
    try {
      response = await fetch(url, { method, headers, signal, ...(isKept && { cache: 'no-store' }) });
    } catch (error) {
      if (signal?.aborted || error?.name === 'AbortError') throw new AbortError();
      cause = error;
    }
    if (response && response.status < 500 && response.status !== 429) return response;
    if (attempt === TRIES) {
      if (response) return response;
      throw new FileError(`${url}: the server cannot be reached: ${cause?.message ?? cause}`, { kind: 'file', cause, hint: hintOf(url) });
    }
    await response?.body?.cancel();
    await pause(attempt, signal, response?.headers.get('retry-after'));
  }
}

/** Returns a hint for the status of a failed request. */
export const hintOfStatus = (status) => {
  if (status === 429) return 'the server is busy: try again later';
  return status >= 500 ? 'the server failed: try again later' : 'check the address';
};

/** Returns the error for an answer with the status of a failure. */
export const refused = (url, response) => {
  const needsKey = response.status === 401 || response.status === 403;
  const hint = needsKey ? 'the file needs a permission: send it with `headers: {authorization: "Bearer …"}`, or download the file and load that' : hintOfStatus(response.status);
  return new FileError(`${url}: expected the file, the server answered ${response.status} ${response.statusText}`.trim(), { kind: 'file', hint });
};

/** Fetches a whole file. */
export async function whole(url, options) {
  const response = await request(url, options);
  if (!response.ok) throw refused(url, response);
  try {
    return { bytes: new Uint8Array(await response.arrayBuffer()), response };
  } catch (cause) {
    if (options?.signal?.aborted) throw new AbortError();
    throw new FileError(`${url}: the connection ended before the end of the file`, { kind: 'file', cause, hint: 'try again' });
  }
}

/** Fetches JSON. */
export async function json(url, options) {
  const { bytes, response } = await whole(url, options);
  try {
    return { value: JSON.parse(new TextDecoder().decode(bytes)), response };
  } catch (cause) {
    throw new FileError(`${url}: expected JSON`, { kind: 'file', cause, hint: 'check the address' });
  }
}
