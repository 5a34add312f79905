// The list of conversations in the side bar, by date: search, open, rename, download, delete. Also the title above the thread.

import { complete, period } from './dates.js';
import { byId, el } from './dom.js';
import { menuButton } from './menu.js';
import * as store from './store.js';

const list = byId('list');
const field = byId('search');
// the conversations that contain the searched words, or `null` without a search
let found = null;

/**
 * Makes a field for a title. `done(title, byKey)` receives the new title, or `null` if the title stays. `byKey` is true if Enter or Escape ended the
 * change. A conversation with an empty title shows the beginning of its first message.
 */
const titleField = (text, done) => {
  const title = el('input', { class: 'title', 'aria-label': 'Title of the conversation', value: text, maxlength: '200' });
  let ended = false;
  const end = (isTaken, byKey) => {
    if (ended) return;
    ended = true;
    const changed = title.value.trim();
    // `show` would keep a field that has the focus
    title.remove();
    done(isTaken && changed !== text ? changed : null, byKey);
  };
  title.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' && event.key !== 'Escape') return;
    event.preventDefault();
    event.stopPropagation();
    end(event.key === 'Enter', true);
  });
  title.addEventListener('blur', () => end(true, false));
  return title;
};

/** Replaces a row by a field for the title. */
const rename = (row, item, actions) => {
  const title = titleField(item.title, (text, byKey) => {
    actions.rename(item.id, text);
    if (byKey) list.querySelector(`[data-id="${item.id}"] .small`)?.focus();
  });
  row.replaceChildren(title);
  title.focus();
  title.select();
};

/** Connects the title above the thread. `current()` returns its conversation. */
export const onTitle = (current, actions) => {
  const button = byId('rename');
  button.addEventListener('click', () => {
    const { id } = current();
    const title = titleField(button.textContent, (text, byKey) => {
      button.hidden = false;
      actions.rename(id, text);
      if (byKey) button.focus();
    });
    button.hidden = true;
    button.after(title);
    title.focus();
    title.select();
  });
};

const rowOf = (item, current, running, actions) => {
  const open = el(
    'button',
    { class: 'open', type: 'button', title: complete(item.updated), 'aria-current': item.id === current ? 'true' : null, onclick: () => actions.open(item.id) },
    el('span', { class: 'name' }, item.title),
    found?.get(item.id) && el('span', { class: 'excerpt' }, found.get(item.id)),
    running.has(item.id) && el('span', { class: 'hidden' }, ' (receives an answer)'),
  );
  const row = el('li', { 'data-id': item.id, class: running.has(item.id) ? 'busy' : null }, open);
  const contents = () => ({
    actions: [
      // the list may have been made again since the row was made
      { name: 'edit', label: 'Rename', run: () => rename(list.querySelector(`[data-id="${item.id}"]`), item, actions) },
      { name: 'down', label: 'Download', run: () => actions.download(item.id) },
      { name: 'delete', label: 'Delete', run: () => actions.remove(item.id) },
    ],
  });
  row.append(menuButton(`Actions of ${item.title}`, contents, { class: 'quiet small' }));
  return row;
};

/** Makes a heading and a list for each period in `items`, which begin with the newest. */
const groups = (items, toRow) => {
  const parts = [];
  for (const item of items) {
    const name = period(item.updated);
    if (parts.at(-1)?.name !== name) parts.push({ name, rows: [] });
    parts.at(-1).rows.push(toRow(item));
  }
  return parts.flatMap(({ name, rows }, i) => [el('p', { class: 'when', id: `when-${i}` }, name), el('ul', { 'aria-labelledby': `when-${i}` }, rows)]);
};

/** Shows the list. `current` is the id of the open conversation; `running.has(id)` returns whether a conversation receives an answer. */
export const show = (current, running, actions) => {
  // a field for a title must survive an update
  if (list.querySelector('input') === document.activeElement && list.contains(document.activeElement)) return;
  const focused = list.contains(document.activeElement) ? document.activeElement : null;
  const [id, kind] = [focused?.closest('li')?.dataset.id, focused?.className];
  const all = store.list();
  const items = found ? all.filter((item) => found.has(item.id)) : all;
  byId('search-box').hidden = all.length < 2 && !found;
  list.replaceChildren(...groups(items, (item) => rowOf(item, current, running, actions)));
  if (found && !items.length) list.append(el('p', { class: 'fine when' }, 'No conversation contains these words.'));
  if (!id) return;
  const row = list.querySelector(`[data-id="${id}"]`);
  const again = [...(row?.querySelectorAll('button') ?? [])].find((button) => button.className === kind);
  (again ?? list.querySelector('button') ?? byId('new')).focus();
};

/** Connects the search field. `show()` is called when the search has another result. */
export const onSearch = (show) => {
  let timer = 0;
  const search = async () => {
    const query = field.value;
    const result = query.trim() ? await store.search(query) : null;
    // the user may have typed meanwhile
    if (query !== field.value) return;
    found = result;
    show();
  };
  field.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(search, 120);
  });
  field.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || !field.value) return;
    event.preventDefault();
    field.value = '';
    search();
  });
};

/** Connects the button that uploads a conversation. `f` receives the file's text. */
export const onUpload = (f) => {
  const file = byId('upload-file');
  byId('upload').addEventListener('click', () => file.click());
  file.addEventListener('change', async () => {
    const [chosen] = file.files;
    // otherwise the browser reports no change if the user chooses the same file again
    file.value = '';
    if (chosen) f(await chosen.text());
  });
};
