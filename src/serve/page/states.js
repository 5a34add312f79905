// The dialog of the server's states: list, save, begin a conversation, download, upload, delete.

import * as api from './api.js';
import { byId, download, el, iconButton } from './dom.js';
import { isTip, messages, path } from './tree.js';

const size = (bytes) => {
  const units = ['bytes', 'KB', 'MB', 'GB'];
  let i = 0;
  for (; bytes >= 1000 && i < 3; i++) bytes /= 1000;
  return `${i ? bytes.toFixed(1) : bytes} ${units[i]}`;
};

const NAME = /^[A-Za-z0-9_.-]{1,100}$/;
// states that this page's conversations keep as sessions
const isSession = (name) => name.startsWith('page-');

/** Saves the state after the current branch under a name: a copy of the session's state if the server has it, otherwise prefilled messages. */
const save = async (c, name) => {
  const model = c.model ? { model: c.model } : {};
  const last = path(c).at(-1);
  if (last?.role === 'assistant' && isTip(c, last)) {
    try {
      return await api.changeState({ action: 'fork', name, from: last.session, ...model });
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  const list = messages(c, c.head);
  if (!list.length) throw new Error('The branch has no text. Send a message first.');
  return api.changeState({ action: 'save', name, messages: list, ...model, ...(c.state && { from: c.state }) });
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
      await api.deleteState(state.name, conversation().model);
      row.remove();
      actions.toast(`Deleted the state ${state.name}.`);
      (next?.querySelector('button') ?? name).focus();
    });

  const row = (state) => {
    const details = [`${Number(state.tokens ?? 0).toLocaleString('en')} tokens`, size(state.bytes ?? 0), state.model].filter(Boolean);
    const item = el(
      'li',
      {},
      el('div', {}, el('strong', {}, state.name), el('span', { class: 'fine' }, details.join(' · '))),
      el(
        'div',
        { class: 'row' },
        el('button', { class: 'plain', type: 'button', 'aria-label': `Begin a conversation from ${state.name}`, onclick: () => {
          dialog.close();
          actions.beginFrom(state.name);
        } }, 'Begin'),
        iconButton('down', `Download ${state.name}`, () =>
          attempt(async () => download(`${state.name}.state`, await api.stateContent(state.name, conversation().model), 'application/octet-stream'))),
        iconButton('delete', `Delete ${state.name}`, () => remove(state, item)),
      ),
    );
    return item;
  };

  const list = async () => {
    const all = await api.states(conversation().model);
    const own = all.filter((state) => !isSession(state.name));
    const sessions = all.filter((state) => isSession(state.name));
    byId('state-list').replaceChildren(...own.map(row));
    if (!own.length) byId('state-list').append(el('li', { class: 'fine' }, 'No saved states yet.'));
    kept.hidden = !sessions.length;
    kept.querySelector('summary').textContent = `${sessions.length === 1 ? '1 state' : `${sessions.length} states`} kept for conversations`;
    kept.querySelector('ul').replaceChildren(...sessions.map(row));
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
      await api.uploadState(target, conversation().model, chosen);
      name.value = '';
      actions.toast(`Uploaded the state ${target}.`);
      await list();
    }));

  return { open };
};
