// The dialog of the backend's states: list, save, begin a conversation, download, upload, delete. States that the page keeps for conversations are
// apart from the user's, and expire.

import { backend } from './backend.js';
import { brief } from './dates.js';
import { byId, download, el, iconButton } from './dom.js';
import { count, size } from './numbers.js';
import * as store from './store.js';
import { isTip, messages, ownerOf, path } from './tree.js';

const NAME = /^[A-Za-z0-9_.-]{1,100}$/;

/** Days for which a state of a conversation is kept after its last use. Without it, the conversation is prefilled again. */
const DAYS = 7;

/** Deletes the expired states of conversations, at most once per day. */
export const sweep = async (models) => {
  const now = Date.now() / 1000;
  if (now - (store.value('swept') ?? 0) < 86_400) return;
  store.setValue('swept', now);
  for (const { id } of models) {
    const all = await backend.states.list(id).catch(() => []);
    const old = all.filter((state) => ownerOf(state.name) && now - (state.created ?? now) > DAYS * 86_400);
    await Promise.all(old.map((state) => backend.states.delete(state.name, id).catch(() => {})));
  }
};

/** Groups states by their conversations: `{title, states}`, the most recent first. States of other browsers are left out. */
const byConversation = (states) => {
  const titles = new Map(store.list().map((item) => [item.id, item.title]));
  const groups = new Map();
  for (const state of states.toSorted((a, b) => (b.created ?? 0) - (a.created ?? 0))) {
    const id = ownerOf(state.name);
    if (titles.has(id)) groups.set(id, [...(groups.get(id) ?? []), state]);
  }
  return [...groups].map(([id, states]) => ({ title: titles.get(id), states }));
};

/** Saves the state after the current branch under a name: a copy of the session's state if the backend has it, otherwise prefilled messages. */
const save = async (c, name) => {
  const model = c.model ? { model: c.model } : {};
  const last = path(c).at(-1);
  if (last?.role === 'assistant' && isTip(c, last)) {
    try {
      return await backend.states.change({ action: 'fork', name, from: last.session, ...model });
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  const list = messages(c, c.head);
  if (!list.length) throw new Error('The branch has no text. Send a message first.');
  return backend.states.change({ action: 'save', name, messages: list, ...model, ...(c.state && { from: c.state }) });
};

/** Makes the dialog. `actions.beginFrom(name)` begins a conversation, `actions.failed(error, retry)` asks for the key, `actions.toast(text)`. */
export const statesDialog = (conversation, actions) => {
  const dialog = byId('states');
  const problem = byId('states-error');
  const name = byId('state-name');
  const kept = byId('state-kept');

  /** Runs a request of the dialog and shows its error. */
  const attempt = async (work) => {
    problem.hidden = true;
    try {
      await work();
    } catch (error) {
      if (error.status === 401) {
        dialog.close();
        actions.failed(error, open);
        return;
      }
      problem.textContent = error.requestId ? `${error.message} (request ${error.requestId})` : error.message;
      problem.hidden = false;
    }
  };

  const remove = (state, row) =>
    attempt(async () => {
      const next = row.nextElementSibling ?? row.previousElementSibling;
      await backend.states.delete(state.name, conversation().model);
      row.remove();
      actions.toast(`Deleted the state ${state.name}.`);
      (next?.querySelector('button') ?? name).focus();
    });

  const row = (state) => {
    const details = [count(state.tokens ?? 0, 'token'), size(state.bytes ?? 0), state.created && brief(state.created * 1000), state.model];
    const item = el(
      'li',
      {},
      el('div', {}, el('strong', {}, state.name), el('span', { class: 'fine' }, details.filter(Boolean).join(' · '))),
      el(
        'div',
        { class: 'row' },
        el('button', { class: 'plain', type: 'button', 'aria-label': `Begin a conversation from ${state.name}`, onclick: () => {
          dialog.close();
          actions.beginFrom(state.name);
        } }, 'Begin'),
        iconButton('down', `Download ${state.name}`, () =>
          attempt(async () => download(`${state.name}.state`, await backend.states.content(state.name, conversation().model), 'application/octet-stream'))),
        iconButton('delete', `Delete ${state.name}`, () => remove(state, item)),
      ),
    );
    return item;
  };

  /** Makes the row of all states of a conversation. */
  const group = ({ title, states }) => {
    const bytes = states.reduce((sum, state) => sum + (state.bytes ?? 0), 0);
    const details = `${count(states.length, 'state')} · ${size(bytes)} · last used ${brief((states[0].created ?? 0) * 1000)}`;
    const removeAll = () =>
      attempt(async () => {
        for (const state of states) await backend.states.delete(state.name, conversation().model);
        await list();
        (kept.hidden ? name : kept.querySelector('summary')).focus();
      });
    return el(
      'li',
      {},
      el('div', {}, el('strong', {}, title), el('span', { class: 'fine' }, details)),
      iconButton('delete', `Delete the states of ${title}`, removeAll),
    );
  };

  const list = async () => {
    const all = await backend.states.list(conversation().model);
    const own = all.filter((state) => !ownerOf(state.name));
    const groups = byConversation(all);
    byId('state-list').replaceChildren(...own.map(row));
    if (!own.length) byId('state-list').append(el('li', { class: 'fine' }, 'No saved states yet.'));
    kept.hidden = !groups.length;
    kept.querySelector('summary').textContent = `${count(groups.flatMap(({ states }) => states).length, 'state')} kept for conversations`;
    kept.querySelector('ul').replaceChildren(...groups.map(group));
  };

  const open = () => {
    problem.hidden = true;
    byId('state-list').replaceChildren(el('li', { class: 'fine' }, 'Loading…'));
    kept.hidden = true;
    if (!dialog.open) dialog.showModal();
    name.focus();
    return attempt(list);
  };

  byId('state-save').addEventListener('submit', (event) => {
    event.preventDefault();
    attempt(async () => {
      await save(conversation(), name.value);
      actions.toast(`Saved the state ${name.value}.`);
      name.value = '';
      await list();
    });
  });

  const file = byId('state-file');
  byId('state-upload').addEventListener('click', () => file.click());
  file.addEventListener('change', () =>
    attempt(async () => {
      const [chosen] = file.files;
      file.value = '';
      if (!chosen) return;
      const target = name.value || chosen.name.replace(/\.(state|safetensors|pth)$/, '').replace(/[^A-Za-z0-9_.-]/g, '-').slice(0, 100);
      if (!NAME.test(target)) throw new Error(`A name has letters, digits, dot, dash and underscore, at most 100. Found ${JSON.stringify(target)}.`);
      await backend.states.upload(target, conversation().model, chosen);
      name.value = '';
      actions.toast(`Uploaded the state ${target}.`);
      await list();
    }));

  return { open };
};
