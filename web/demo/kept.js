// Keeps the states that the user named in IndexedDB, so they are there after a reload. States in the engine end with the page.

const STORE = 'states';

let opening = null;

const result = (request) =>
  new Promise((done, failed) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });

const opened = () => {
  opening ??= (() => {
    const request = indexedDB.open('wingbeat-states', 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: ['model', 'name'] });
    return result(request);
  })();
  // forgets a failure, so that the next call opens the database again
  opening.catch(() => (opening = null));
  return opening;
};

const store = async (mode) => (await opened()).transaction(STORE, mode).objectStore(STORE);

/** Keeps `{model, name, tokens, bytes, created, file}`. `model` is the hash of the weights. */
export const put = async (entry) => result((await store('readwrite')).put(entry));

/** Returns the entry of a state, or `null`. */
export const get = async (model, name) => (await result((await store('readonly')).get([model, name]))) ?? null;

export const remove = async (model, name) => result((await store('readwrite')).delete([model, name]));

/** Returns the entries of a model. */
export const list = async (model) => result((await store('readonly')).getAll(IDBKeyRange.bound([model], [model, []])));
