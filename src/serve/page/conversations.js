// The list of conversations in the side bar: open, rename, download, delete.

import { byId, el, iconButton } from './dom.js';

const list = byId('list');

/** Replaces a row by a field for the title. */
const rename = (row, item, actions) => {
  const field = el('input', { 'aria-label': 'Title of the conversation', value: item.title, maxlength: '200' });
  let ended = false;
  const end = (title) => {
    if (ended) return;
    ended = true;
    // `show` keeps a field that has the focus
    field.remove();
    actions.rename(item.id, title);
    list.querySelector(`[data-id="${item.id}"] .rename`)?.focus();
  };
  field.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' && event.key !== 'Escape') return;
    event.preventDefault();
    event.stopPropagation();
    end(event.key === 'Enter' ? field.value.trim() : null);
  });
  field.addEventListener('blur', () => end(field.value.trim()));
  row.replaceChildren(field);
  field.focus();
  field.select();
};

/** Shows the list. `current` is the id of the open conversation; `running` has the ids of conversations that receive an answer. */
export const show = (items, current, running, actions) => {
  // a field for a title must survive an update
  if (list.querySelector('input') === document.activeElement && list.contains(document.activeElement)) return;
  const focused = list.contains(document.activeElement) ? document.activeElement : null;
  const [id, kind] = [focused?.closest('li')?.dataset.id, focused?.className];
  list.replaceChildren(
    ...items.map((item) => {
      const open = el(
        'button',
        { class: 'open', type: 'button', 'aria-current': item.id === current ? 'true' : null, onclick: () => actions.open(item.id) },
        item.title,
        running.has(item.id) && el('span', { class: 'hidden' }, ' (receives an answer)'),
      );
      const row = el('li', { 'data-id': item.id, class: running.has(item.id) ? 'busy' : null }, open);
      row.append(
        iconButton('edit', `Rename ${item.title}`, () => rename(row, item, actions), { class: 'quiet small rename' }),
        iconButton('down', `Download ${item.title}`, () => actions.download(item.id), { class: 'quiet small' }),
        iconButton('delete', `Delete ${item.title}`, () => actions.remove(item.id), { class: 'quiet small delete' }),
      );
      return row;
    }),
  );
  if (!id) return;
  const row = list.querySelector(`[data-id="${id}"]`);
  const again = [...(row?.querySelectorAll('button') ?? [])].find((button) => button.className === kind);
  (again ?? list.querySelector('button') ?? byId('new')).focus();
};

/** Connects the button that uploads a conversation. `f` receives the file's text. */
export const onUpload = (f) => {
  const file = byId('upload-file');
  byId('upload').addEventListener('click', () => file.click());
  file.addEventListener('change', async () => {
    const [chosen] = file.files;
    // the same file can be chosen again
    file.value = '';
    if (chosen) f(await chosen.text());
  });
};
