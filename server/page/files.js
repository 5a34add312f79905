// Text files that join the next message: chosen in a dialog, or dropped on the page.

import { backend } from './backend.js';
import { byId, el, icon, iconButton } from './dom.js';
import { count, size } from './numbers.js';

/** Bytes of the largest file. */
const MOST = 1_000_000;

/** Bytes of an average token, for an estimate until the backend has counted the tokens, or if it cannot. */
const TOKEN = 4;

let files = [];
let changed = () => {};

/** Returns the text of a file. Throws an error that says why the file is refused. */
const read = async (file) => {
  if (file.size > MOST) throw new Error(`${file.name} is too large: ${size(file.size)}, at most ${size(MOST)}.`);
  const bytes = await file.arrayBuffer().catch(() => null);
  if (!bytes) throw new Error(`${file.name} cannot be read.`);
  let text = '\0';
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    // not UTF-8: `text` is still a zero, so the next line refuses the file
  }
  if (text.includes('\0')) throw new Error(`${file.name} is not a text file in UTF-8.`);
  if (!text.trim()) throw new Error(`${file.name} is empty.`);
  return text;
};

/** Makes the chip of a file `{name, size, tokens, isExact}`. `remove()` removes the file; without it the chip has no button. */
export const fileChip = (file, remove = null) =>
  el(
    'li',
    { class: 'file' },
    icon('file'),
    el('span', { class: 'name', title: file.name, dir: 'auto' }, file.name),
    el('span', { class: 'fine' }, [size(file.size ?? 0), file.tokens && `${file.isExact ? '' : 'about '}${count(file.tokens, 'token')}`].filter(Boolean).join(' · ')),
    remove && iconButton('close', `Remove ${file.name}`, remove, { class: 'quiet small' }),
  );

const list = byId('files');

const show = () => {
  const remove = (file) => () => {
    const at = files.indexOf(file);
    files = files.filter((other) => other !== file);
    show();
    (list.querySelectorAll('button')[Math.min(at, files.length - 1)] ?? byId('attach')).focus();
  };
  list.replaceChildren(...files.map((file) => fileChip(file, remove(file))));
  list.hidden = !files.length;
  changed();
};

const refuse = (text) => {
  byId('files-problem').textContent = text;
  byId('files-problem').hidden = !text;
};

const countTokens = async (file) => {
  const tokens = await backend.count?.(file.text, byId('model').value).catch(() => null);
  if (!tokens) return;
  Object.assign(file, { tokens, isExact: true });
  if (files.includes(file)) show();
};

const add = async (given) => {
  const problems = [];
  for (const file of given) {
    try {
      const text = await read(file);
      const entry = { name: file.name, size: file.size, text, tokens: Math.ceil(file.size / TOKEN), isExact: false };
      files.push(entry);
      countTokens(entry);
    } catch (error) {
      problems.push(error.message);
    }
  }
  refuse(problems.join(' '));
  show();
};

/** Returns the files of the next message: `{name, size, text, tokens, isExact}` of each. */
export const current = () => files;

export const hasFiles = () => files.length > 0;

/** Removes all files, after a message has taken them. */
export const clear = () => {
  files = [];
  refuse('');
  show();
};

/** Connects the button and the area on which files are dropped. `f` is called when the files change. */
export const connect = (area, f) => {
  changed = f;
  const chooser = byId('attach-file');
  byId('attach').addEventListener('click', () => chooser.click());
  chooser.addEventListener('change', () => {
    const chosen = [...chooser.files];
    // otherwise the browser reports no change if the user chooses the same file again
    chooser.value = '';
    add(chosen);
  });
  const mark = (isOver) => byId('composer').classList.toggle('drops', isOver);
  /** Handles an event that has files. Otherwise the browser would open a file in place of the page. */
  const on = (name, handle) =>
    area.addEventListener(name, (event) => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      event.stopPropagation();
      handle(event);
    });
  on('dragover', ({ dataTransfer }) => {
    dataTransfer.dropEffect = 'copy';
    mark(true);
  });
  on('dragleave', ({ relatedTarget }) => area.contains(relatedTarget) || mark(false));
  on('drop', ({ dataTransfer }) => {
    mark(false);
    add([...dataTransfer.files]);
  });
};
