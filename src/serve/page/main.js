// Connects the parts of the page: holds the current conversation and the answers that are being received.

import { fill } from './answer.js';
import { say, sentences } from './announce.js';
import * as api from './api.js';
import * as composer from './composer.js';
import * as conversations from './conversations.js';
import { byId, download } from './dom.js';
import * as keys from './keys.js';
import * as map from './map.js';
import { settingsDialog } from './settings.js';
import * as speed from './speed.js';
import { statesDialog } from './states.js';
import * as store from './store.js';
import * as thread from './thread.js';
import { closeOver } from './panels.js';
import { toast } from './toast.js';
import * as tree from './tree.js';

let c = tree.create();
let models = [];
// id of a conversation to its running answer `{c, node, controller}`; an answer continues while another conversation is shown
const running = new Map();

const save = (which = c) => {
  try {
    store.save(which);
  } catch (error) {
    toast(error.message);
  }
};

const show = () => {
  const answer = running.get(c.id)?.node.id ?? null;
  thread.show(c, answer, actions);
  map.show(c, (id) => {
    actions.select(id);
    closeOver();
    thread.reveal(id);
  });
  conversations.show(store.list(), c.id, running, actions);
  composer.setRunning(answer !== null);
  const title = tree.title(c);
  byId('title').textContent = title;
  document.title = c.nodes.length ? `${title} · wingbeat` : 'wingbeat';
  const from = byId('from');
  from.hidden = !c.state;
  from.textContent = c.state ? `from state ${c.state}` : '';
  byId('empty-note').textContent = c.state
    ? `The model continues after the saved state ${c.state}.`
    : 'The conversation stays in this browser and on this server.';
};

const touch = () => {
  c.updated = Date.now();
  save();
  show();
};

const loadModels = async () => {
  try {
    models = await api.models();
    if (models.some((model) => model.status === 'loading')) setTimeout(loadModels, 2000);
  } catch (error) {
    if (error.status === 401) composer.askKey(loadModels);
    else if (error.status === 503) setTimeout(loadModels, 2000);
    else toast(error.message, { label: 'Try again', run: loadModels });
  }
  composer.showModels(models, c.model);
};

/** Requests an answer to the user message `user`. */
const answer = async (user) => {
  const own = c;
  const node = tree.add(own, user.id, 'assistant', '');
  const controller = new AbortController();
  running.set(own.id, { c: own, node, controller });
  touch();
  thread.goToEnd();
  speed.begin();
  const spoken = sentences();
  let saved = Date.now();
  const error = await fill(own, node, {
    signal: controller.signal,
    token: () => own === c && speed.token(),
    changed: (text) => {
      thread.update(own, node);
      if (own === c) spoken.add(text);
      // saves about once per second, so that a reload in the middle of an answer keeps the text so far
      if (Date.now() - saved > 1000) {
        saved = Date.now();
        save(own);
      }
    },
  });
  running.delete(own.id);
  // the conversation was deleted meanwhile, so nothing is saved
  if (controller.signal.reason === 'deleted') return;
  own.updated = Date.now();
  save(own);
  show();
  if (own !== c) return;
  speed.end(node.rate);
  const tokens = node.usage?.completion_tokens;
  const endings = { stopped: 'Answer stopped.', error: `Error: ${error?.message}`, length: 'Answer ended at the token limit.' };
  spoken.end(endings[node.finish] ?? `End of the answer${tokens ? `, ${tokens} tokens` : ''}.`);
  if (error?.status === 401) composer.askKey(() => (loadModels(), own === c && actions.resend(node)));
};

/** Returns whether a request can begin: one answer at a time, and valid settings. */
const ready = () => {
  if (running.has(c.id)) {
    toast('This conversation receives an answer. Stop the answer first.');
    return false;
  }
  return dialogs.settings.isValid();
};
const lastOf = (role) => tree.path(c).findLast((node) => node.role === role);

const open = (next) => {
  c = next;
  try {
    store.setCurrent(c.id);
  } catch {
    // a full storage is reported when the conversation is saved
  }
  speed.begin();
  composer.showModels(models, c.model);
  show();
  if (closeOver()) composer.focus();
};

const dialogs = {};

const actions = {
  send(text) {
    if (!ready()) return false;
    answer(tree.add(c, c.head, 'user', text));
    return true;
  },
  stop: () => running.get(c.id)?.controller.abort('stopped'),
  regenerate(node = lastOf('assistant')) {
    if (!node || !ready()) return;
    answer(tree.get(c, node.parent));
    composer.focus();
  },
  edit(node, text) {
    if (!ready()) return;
    answer(tree.add(c, node.parent, 'user', text));
    composer.focus();
  },
  editLast() {
    const node = lastOf('user');
    if (!node || running.has(c.id)) return false;
    thread.edit(node.id);
    return true;
  },
  /** Requests an answer again. An answer without text is replaced, otherwise it stays as a branch. */
  resend(node) {
    if (!ready()) return;
    const user = tree.get(c, node.parent);
    if (!node.content) tree.remove(c, node.id);
    answer(user);
    composer.focus();
  },
  step(node, by) {
    const other = tree.sibling(c, node, by);
    if (!other) return;
    tree.select(c, other.id);
    touch();
    thread.focus(other.id, `[data-step="${by}"]`);
    const all = tree.siblings(c, other);
    say(`Branch ${all.indexOf(other) + 1} of ${all.length}.`);
  },
  previous: () => lastOf('assistant') && actions.step(lastOf('assistant'), -1),
  next: () => lastOf('assistant') && actions.step(lastOf('assistant'), 1),
  select(id) {
    tree.select(c, id);
    touch();
  },
  continueFrom(node) {
    c.head = node.id;
    touch();
    composer.focus();
    say('The next message begins a branch after this answer.');
  },
  create() {
    open(tree.create(c));
    composer.focus();
  },
  beginFrom(name) {
    open(tree.create(c, name));
    composer.focus();
  },
  open(id) {
    const next = id === c.id ? c : (running.get(id)?.c ?? store.load(id));
    if (!next) return toast('The conversation is not in the storage of this browser.');
    open(next);
  },
  rename(id, title) {
    const which = id === c.id ? c : (running.get(id)?.c ?? store.load(id));
    if (title !== null && which) {
      which.title = title;
      save(which);
    }
    show();
  },
  download(id) {
    const which = id === c.id ? c : store.load(id);
    const name = tree.title(which).replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 40);
    download(`${name || 'conversation'}.json`, JSON.stringify(which, null, 1));
  },
  remove(id) {
    const which = id === c.id ? c : store.load(id);
    running.get(id)?.controller.abort('deleted');
    store.forget(id);
    if (id === c.id) open(tree.create(c));
    else show();
    if (!which) return;
    // the states stay until the deletion can no longer be undone
    const states = setTimeout(() => tree.sessions(which).forEach((name) => api.deleteState(name, which.model).catch(() => {})), 9000);
    const restore = () => {
      clearTimeout(states);
      save(which);
      open(which);
    };
    toast(`Deleted “${tree.title(which)}”.`, { label: 'Undo', run: restore });
  },
  states: () => dialogs.states.open(),
  settings: () => dialogs.settings.open(),
  failed: (error, retry) => composer.askKey(retry),
  toast,
};

dialogs.settings = settingsDialog(() => c, () => save());
dialogs.states = statesDialog(() => c, actions);
composer.connect(actions);
composer.onModel((name) => {
  c.model = name;
  save();
});
composer.onKey(api.setKey);
keys.connect(actions);
byId('new').addEventListener('click', actions.create);
byId('states-open').addEventListener('click', actions.states);
byId('settings-open').addEventListener('click', actions.settings);
store.onChange(() => conversations.show(store.list(), c.id, running, actions));

conversations.onUpload((text) => {
  try {
    open(tree.parse(text));
    touch();
  } catch (error) {
    toast(error.message);
  }
});

open(store.load(store.current()) ?? store.load(store.list()[0]?.id) ?? c);
loadModels();
// on a touch screen the focus would open the keyboard
if (matchMedia('(hover: hover)').matches) composer.focus();
