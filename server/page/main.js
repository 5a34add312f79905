// Connects the parts of the page, and holds the current conversation.

import { backend, use } from './backend.js';
import * as composer from './composer.js';
import * as conversations from './conversations.js';
import { byId, download } from './dom.js';
import { showExamples } from './examples.js';
import * as keys from './keys.js';
import * as map from './map.js';
import { messageActions } from './messages.js';
import { closeOver } from './panels.js';
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

const showModels = () => {
  // the only model answers every request, also of a conversation that another model began
  if (!backend.chooses && models.length) c.model = models[0].id;
  composer.showModels(models, c.model);
};

const showList = () => conversations.show(c.id, running, actions);

const show = () => {
  thread.show(c, running.of(c.id), actions);
  map.show(c, (id) => {
    actions.select(id);
    closeOver();
    thread.reveal(id);
  });
  showList();
  composer.setRunning(running.has(c.id));
  const title = tree.title(c);
  const rename = byId('rename');
  rename.textContent = title;
  rename.disabled = !c.nodes.length;
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
    models = await backend.models();
    if (models.some((entry) => entry.status === 'loading')) setTimeout(loadModels, 2000);
    sweep(models);
  } catch (error) {
    if (error.status === 401) composer.askKey(loadModels);
    else if (error.status === 503) setTimeout(loadModels, 2000);
    else toast(error.message, { label: 'Try again', run: loadModels });
  }
  showModels();
  showExamples(c, model(), actions.send);
};

/** The part of the page that the actions on messages use. */
const current = {
  get c() {
    return c;
  },
  show,
  touch,
  open: (next) => open(next),
  isValid: () => dialogs.settings.isValid(),
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

/** Receives the rest of an answer that was incomplete when the page was closed. */
const resume = async (which) => {
  const [node] = tree.openAnswers(which);
  if (node && backend.resumes && !running.has(which.id)) await running.run(which, node, 'resume', page);
};

/**
 * Returns the conversation `id`: the object in use if it is shown or receives an answer, else a copy from the storage, or `null` if it is unknown.
 */
const find = async (id) => (id === c.id ? c : (running.of(id)?.c ?? (await store.load(id))));

const open = (next) => {
  c = next;
  store.setValue('current', c.id);
  speed.begin();
  showModels();
  show();
  resume(c);
  if (closeOver()) composer.focus();
};

const dialogs = {};

const actions = {
  ...messageActions(current, page),
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
    composer.focus();
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
    const states = setTimeout(() => tree.sessions(which).forEach((name) => backend.states.delete(name, which.model).catch(() => {})), 9000);
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

/** Starts the page on a backend. Returns `{refresh}`, which asks the backend for its models again and shows the page. */
export const start = async (given) => {
  use(given);
  dialogs.settings = settingsDialog(() => c, model, () => store.save(c));
  dialogs.states = statesDialog(() => c, actions);
  composer.connect(actions);
  composer.onModel((name) => {
    c.model = name;
    store.save(c);
    showModels();
    show();
  });
  if (backend.hasKey) composer.onKey(backend.setKey);
  conversations.onSearch(showList);
  conversations.onTitle(() => c, actions);
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
  composer.focus();
  return { refresh: () => loadModels().then(show) };
};
