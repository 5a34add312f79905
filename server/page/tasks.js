// Task lists in Markdown: an item that begins with `[ ]` or `[x]` gets a checkbox.

import { el } from './dom.js';

const MARK = /^\[([ xX])\]\s+(?=\S)/;

const mark = (state) => {
  state.tokens.forEach((token, i, all) => {
    const text = token.children?.[0];
    if (token.type !== 'inline' || text?.type !== 'text' || all[i - 1]?.type !== 'paragraph_open' || all[i - 2]?.type !== 'list_item_open') return;
    const found = MARK.exec(text.content);
    if (!found) return;
    text.content = text.content.slice(found[0].length);
    const task = new state.Token('task', '', 0);
    task.meta = { done: found[1] !== ' ' };
    token.children.unshift(task);
    all[i - 2].meta = { task: true };
  });
};

/** Adds the rule to a Markdown parser. */
export const addTasks = (md) => md.core.ruler.after('inline', 'task', mark);

/** Makes the checkbox of a task. Only the model changes its text, so the checkbox is disabled. */
export const checkbox = ({ done }) => el('input', { type: 'checkbox', disabled: true, checked: done, 'aria-label': done ? 'Done' : 'To do' });
