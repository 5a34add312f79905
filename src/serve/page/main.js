// Connects the parts of the page, and holds the current conversation.

import { say } from './announce.js';
import * as api from './api.js';
import * as composer from './composer.js';
import * as conversations from './conversations.js';
import { byId, download } from './dom.js';
import { showExamples } from './examples.js';
import * as keys from './keys.js';
import * as map from './map.js';
import { closeOver, showBranches } from './panels.js';
import * as running from './running.js';
import { settingsDialog } from './settings.js';
import * as speed from './speed.js';
import { statesDialog, sweep } from './states.js';
import * as store from './store.js';
import * as thread from './thread.js';
import { toast } from './toast.js';
import * as tree from './tree.js';

let c = tree.create();
let models = [];

const model = () => models.find((entry) => entry.id === c.model) ?? models[0] ?? null;

const showList = () => conversations.show(c.id, running, actions);

const show = () => {
  thread.show(c, running.of(c.id), actions);
  showBranches(tree.hasBranches(c));
  map.show(c, (id) => {
    actions.select(id);
    closeOver();
    thread.reveal(id);
  });
  showList();
  composer.setRunning(running.has(c.id));
  const title = tree.title(c);
  byId('title').textContent = title;
  document.title = c.nodes.length ? `${title} · wingbeat` : 'wingbeat';
  const from = byId('from');
  from.hidden = !c.state;
  from.textContent = c.state ? `from state ${c.state}` : '';
  showExamples(c, model(), actions.send);
};

const touch = () => {
  c.updated = Date.now();
  store.save(c);
  show();
};

const loadModels = async () => {
  try {
    models = await api.models();
    if (models.some((entry) => entry.status === 'loading')) setTimeout(loadModels, 2000);
    sweep(models);
  } catch (error) {
    if (error.status === 401) composer.askKey(loadModels);
    else if (error.status === 503) setTimeout(loadModels, 2000);
    else toast(error.message, { label: 'Try again', run: loadModels });
  }
  composer.showModels(models, c.model);
  showExamples(c, model(), actions.send);
};

const page = {
  isShown: (which) => which === c,
  began: (which) => {
    if (which !== c) return showList();
    touch();
    thread.goToEnd();
  },
  ended: (which, node, error) => {
    show();
    if (error && !node.error) toast(error.message);
    if (error?.status === 401) composer.askKey(() => (loadModels(), which === c && (node.answer ? actions.continueAnswer(node) : actions.resend(node))));
  },
};

/** Requests an answer to the user message `user`. */
const answer = (user) => running.run(c, tree.add(c, user.id, 'assistant', ''), 'begin', page);

/** Receives the rest of answers that a closed page did not receive to their end. */
const resume = async (which) => {
  const [node] = tree.openAnswers(which);
  if (node && !running.has(which.id)) await running.run(which, node, 'resume', page);
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
/** Returns a conversation: the object that is shown or receives an answer, or one of the storage. */
const find = async (id) => (id === c.id ? c : (running.of(id)?.c ?? (await store.load(id))));

const open = (next) => {
  c = next;
  store.setValue('current', c.id);
  speed.begin();
  composer.showModels(models, c.model);
  show();
  resume(c);
  if (closeOver()) composer.focus();
};

const dialogs = {};

const actions = {
  send(text) {
    if (!ready()) return false;
    answer(tree.add(c, c.head, 'user', text));
    return true;
  },
  stop: () => running.stop(c.id),
  regenerate(node = lastOf('assistant')) {
    if (!node || !ready()) return;
    answer(tree.get(c, node.parent));
    composer.focus();
  },
  /** Makes a branch with a changed message. A changed answer stays as it is; a changed message of the user gets an answer. */
  edit(node, text) {
    if (!ready()) return;
    const changed = tree.add(c, node.parent, node.role, text);
    if (node.role === 'user') answer(changed);
    else {
      changed.finish = 'edited';
      touch();
    }
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
  /** Continues the text of an answer. Messages after it keep the answer as it is, so the continued one is then a branch. */
  async continueAnswer(node) {
    if (!ready()) return;
    composer.focus();
    const own = c;
    if (node.answer) {
      await running.run(own, node, 'resume', page);
      if (node.finish !== 'lost') return;
    }
    if (!node.content && !node.reasoning) return actions.resend(node);
    if (!tree.children(own, node.id).length) return running.run(own, node, 'extend', page);
    const { content, reasoning, thought } = node;
    running.run(own, Object.assign(tree.add(own, node.parent, 'assistant', content), { reasoning, thought }), 'extend', page);
  },
  removeMessage(node) {
    if (!ready()) return;
    const own = c;
    const [nodes, head] = [own.nodes, own.head];
    tree.remove(own, node.id);
    if (own.nodes.length) touch();
    else {
      store.forget(own.id);
      show();
    }
    const restore = () => {
      tree.restore(own, nodes, head);
      store.save(own);
      open(own);
    };
    toast('Deleted the message and all after it.', { label: 'Undo', run: restore });
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
  async open(id) {
    const next = await find(id);
    if (!next) return toast('The conversation is not in the storage of this browser.');
    open(next);
  },
  async rename(id, title) {
    const which = await find(id);
    if (title !== null && which) {
      which.title = title;
      store.save(which);
    }
    show();
  },
  async download(id) {
    const which = await find(id);
    const name = tree.title(which).replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 40);
    download(`${name || 'conversation'}.json`, JSON.stringify(which, null, 1));
  },
  async remove(id) {
    const which = await find(id);
    running.stop(id, 'deleted');
    await store.forget(id);
    if (id === c.id) open(tree.create(c));
    else show();
    if (!which) return;
    // the states stay until the deletion can no longer be undone
    const states = setTimeout(() => tree.sessions(which).forEach((name) => api.deleteState(name, which.model).catch(() => {})), 9000);
    const restore = () => {
      clearTimeout(states);
      store.save(which);
      open(which);
    };
    toast(`Deleted “${tree.title(which)}”.`, { label: 'Undo', run: restore });
  },
  states: () => dialogs.states.open(),
  settings: () => dialogs.settings.open(),
  failed: (error, retry) => composer.askKey(retry),
  toast,
};

dialogs.settings = settingsDialog(() => c, model, () => store.save(c));
dialogs.states = statesDialog(() => c, actions);
composer.connect(actions);
composer.onModel((name) => {
  c.model = name;
  store.save(c);
  show();
});
composer.onKey(api.setKey);
conversations.onSearch(showList);
keys.connect(actions);
byId('new').addEventListener('click', actions.create);
byId('states-open').addEventListener('click', actions.states);
byId('settings-open').addEventListener('click', actions.settings);
byId('aside-open').addEventListener('click', show);

conversations.onUpload((text) => {
  try {
    open(tree.parse(text));
    touch();
  } catch (error) {
    toast(error.message);
  }
});

store.onProblem((text) => toast(text));
store.onChange(async (id) => {
  const changed = id === c.id && !running.has(id) && (await store.load(id));
  if (changed) c = changed;
  show();
});
await store.open();
open((await store.load(store.value('current'))) ?? (await store.load(store.list()[0]?.id)) ?? c);
loadModels();
for (const { id, isOpen } of store.list()) if (isOpen && id !== c.id) store.load(id).then((which) => which && resume(which));
// on a touch screen the focus would open the keyboard
if (matchMedia('(hover: hover)').matches) composer.focus();
