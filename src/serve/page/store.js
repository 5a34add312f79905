// Keeps conversations in localStorage: one entry per conversation, and an index for the list.

import { title } from './tree.js';

const INDEX = 'wingbeat.list';
const CURRENT = 'wingbeat.current';
const entry = (id) => `wingbeat.c.${id}`;

const read = (name, otherwise) => {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
};

const write = (name, value) => {
  try {
    localStorage.setItem(name, JSON.stringify(value));
  } catch {
    throw new Error('The storage of this browser is full. Download conversations, then delete them here.');
  }
};

/** Returns `{id, title, updated}` of each conversation, the newest first. */
export const list = () => read(INDEX, []).sort((a, b) => b.updated - a.updated);

export const load = (id) => read(entry(id), null);

/** Saves a conversation. An empty conversation is not listed. Throws if the storage is full. */
export const save = (c) => {
  if (!c.nodes.length) return;
  write(entry(c.id), c);
  write(INDEX, [{ id: c.id, title: title(c), updated: c.updated }, ...list().filter((item) => item.id !== c.id)]);
};

export const forget = (id) => {
  localStorage.removeItem(entry(id));
  write(INDEX, list().filter((item) => item.id !== id));
};

/** Returns the id of the conversation that was open last, or `null`. */
export const current = () => read(CURRENT, null);

export const setCurrent = (id) => write(CURRENT, id);

/** Calls `f` when another tab changes the list of conversations. */
export const onChange = (f) => addEventListener('storage', (event) => event.key === INDEX && f());
