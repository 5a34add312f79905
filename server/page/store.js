// Keeps conversations in IndexedDB: one record per conversation, one small record per conversation for the list, and values of the page.
//
// The list is also in memory, so it can be shown at once. Without IndexedDB, or if it is full, conversations stay in memory until the page is closed.

import { isOpen, title } from './tree.js';

const STORES = { conversations: { keyPath: 'id' }, list: { keyPath: 'id' }, values: {} };
const FULL = 'The storage of this browser is full. Download conversations, then delete them here. Until then, changes last until this page is closed.';
const MISSING = 'This browser offers no storage. Conversations last until this page is closed. Download those that you want to keep.';

/** Milliseconds between two writes of one conversation. */
const PAUSE = 500;

let db = null;
let index = new Map();
const values = new Map();
// conversations that were saved less than `PAUSE` ago: id to `{c, timer, isDue}`; `isDue` is true if a change is not written yet
const waiting = new Map();
// conversations that could not be written: id to conversation
const unsaved = new Map();
const channel = globalThis.BroadcastChannel ? new BroadcastChannel('wingbeat') : null;

let report = () => {};
let changed = () => {};

/** Calls `f` with a text if conversations cannot be stored. */
export const onProblem = (f) => (report = f);

/** Calls `f` with the id of a conversation that another tab changed. */
export const onChange = (f) => (changed = f);

const result = (request) =>
  new Promise((done, failed) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });

/** Runs `work(stores)` in a transaction that writes. Resolves when the data are stored. */
const write = (work) =>
  new Promise((done, failed) => {
    const transaction = db.transaction(Object.keys(STORES), 'readwrite');
    transaction.oncomplete = done;
    transaction.onabort = () => failed(transaction.error);
    work(Object.fromEntries(Object.keys(STORES).map((name) => [name, transaction.objectStore(name)])));
    // commits now: a page that is closing may be gone before the automatic commit
    transaction.commit();
  });

const read = (store) => db.transaction(store).objectStore(store);

const opened = () => {
  const request = indexedDB.open('wingbeat', 1);
  request.onupgradeneeded = () => Object.entries(STORES).forEach(([name, options]) => request.result.createObjectStore(name, options));
  return result(request);
};

const entry = (c) => ({ id: c.id, title: title(c), created: c.created, updated: c.updated, isOpen: isOpen(c) });

const readIndex = async () => {
  index = new Map((await result(read('list').getAll())).map((item) => [item.id, item]));
  unsaved.forEach((c) => index.set(c.id, entry(c)));
};

const parsed = (name) => {
  try {
    return JSON.parse(localStorage.getItem(name));
  } catch {
    return null;
  }
};

/** Moves the conversations of the first version of this page from localStorage. */
const migrate = async () => {
  let names;
  try {
    names = Object.keys(localStorage).filter((name) => name.startsWith('wingbeat.c.'));
  } catch {
    return;
  }
  if (!names.length) return;
  const found = names.map(parsed).filter((c) => typeof c?.id === 'string' && Array.isArray(c.nodes));
  await write(({ conversations, list, values }) => {
    found.forEach((c) => (conversations.put(c), list.put(entry(c))));
    values.put(parsed('wingbeat.current'), 'current');
  });
  [...names, 'wingbeat.list', 'wingbeat.current'].forEach((name) => localStorage.removeItem(name));
};

/** Opens the storage and reads the list and the values into memory, from which the other functions take them. */
export const open = async () => {
  try {
    db = await opened();
    await migrate().catch(() => report(FULL));
    await readIndex();
    for (const name of ['current', 'swept', 'advanced']) values.set(name, await result(read('values').get(name)));
    db.onversionchange = () => db.close();
  } catch {
    db = null;
    report(MISSING);
  }
};

/** Returns `{id, title, created, updated, isOpen}` of each conversation, the newest first. */
export const list = () => [...index.values()].sort((a, b) => b.updated - a.updated);

const store = async (c) => {
  if (!db) return void unsaved.set(c.id, c);
  try {
    await write(({ conversations, list }) => (conversations.put(c), list.put(entry(c))));
    unsaved.delete(c.id);
    channel?.postMessage(c.id);
  } catch {
    if (!unsaved.has(c.id)) report(FULL);
    unsaved.set(c.id, c);
  }
};

const flush = (id) => {
  const { c } = waiting.get(id);
  waiting.get(id).isDue = false;
  waiting.get(id).timer = setTimeout(() => (waiting.get(id)?.isDue ? flush(id) : waiting.delete(id)), PAUSE);
  return store(c);
};

/** Saves a conversation: at once, or after a pause if it was saved just now. An empty conversation is not listed. */
export const save = (c) => {
  if (!c.nodes.length) return;
  index.set(c.id, entry(c));
  if (waiting.has(c.id)) Object.assign(waiting.get(c.id), { c, isDue: true });
  else {
    waiting.set(c.id, { c });
    flush(c.id);
  }
};

/** Saves a conversation at once. */
export const saveNow = (c) => {
  save(c);
  if (waiting.get(c.id)?.isDue) {
    clearTimeout(waiting.get(c.id).timer);
    flush(c.id);
  }
};

const flushAll = () => [...waiting].forEach(([id, { isDue, timer }]) => isDue && (clearTimeout(timer), flush(id)));
addEventListener('pagehide', flushAll);
document.addEventListener('visibilitychange', () => document.hidden && flushAll());

/** Returns a conversation, or `null` if it is unknown or cannot be read. */
export const load = async (id) => {
  if (!id) return null;
  const own = waiting.get(id)?.c ?? unsaved.get(id);
  return own ?? (db ? ((await result(read('conversations').get(id)).catch(() => null)) ?? null) : null);
};

export const forget = async (id) => {
  clearTimeout(waiting.get(id)?.timer);
  waiting.delete(id);
  unsaved.delete(id);
  index.delete(id);
  if (!db) return;
  await write(({ conversations, list }) => (conversations.delete(id), list.delete(id))).catch(() => {});
  channel?.postMessage(id);
};

/** Returns a value of the page: `current` is the id of the conversation that was open last, `advanced` whether the advanced settings are open. */
export const value = (name) => values.get(name) ?? null;

export const setValue = (name, value) => {
  values.set(name, value);
  if (db) write((stores) => stores.values.put(value, name)).catch(() => {});
};

const excerpt = (text, word) => {
  const at = text.toLowerCase().indexOf(word);
  const from = Math.max(0, at - 30);
  return `${from ? '…' : ''}${text.slice(from, at + 70).replace(/\s+/g, ' ').trim()}`;
};

const match = (c, words) => {
  const texts = [title(c), ...c.nodes.flatMap(({ content, files = [] }) => [content, ...files.map(({ name, text }) => `${name} ${text}`)])];
  const lower = texts.map((text) => text.toLowerCase());
  if (!words.every((word) => lower.some((text) => text.includes(word)))) return null;
  const [first] = words;
  const at = lower.findIndex((text, i) => i && text.includes(first));
  return at < 0 ? '' : excerpt(texts[at], first);
};

/** Returns the conversations that contain all words of `query`: id to a part of the text. */
export const search = async (query) => {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = new Map();
  for (const { id } of list()) {
    const c = await load(id);
    const text = c && match(c, words);
    if (text !== null) found.set(id, text);
  }
  return found;
};

channel?.addEventListener('message', async ({ data }) => {
  if (!db) return;
  await readIndex().catch(() => {});
  changed(data);
});
