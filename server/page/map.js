// Draws the tree of a conversation: one row per message, one column per branch. The picture is an ARIA tree: arrow keys move, Enter selects.

import { byId, svg } from './dom.js';
import { children, hasBranches, path } from './tree.js';

// a finger needs 44 pixels
const ROW = matchMedia('(pointer: coarse)').matches ? 44 : 30;
const COLUMN = 16;
const LEFT = 14;

/** Returns the rows `{node, row, column, level, parent}` in depth-first order. A later sibling has a column to the right of all earlier siblings. */
export const layout = (c) => {
  const rows = [];
  // an explicit stack, because a long conversation is deeper than the call stack
  const stack = children(c, null).map((node) => ({ node, level: 1, parent: null, first: true })).reverse();
  let free = 0;
  const byParent = new Map();
  for (const node of c.nodes) byParent.set(node.parent, [...(byParent.get(node.parent) ?? []), node]);
  while (stack.length) {
    const { node, level, parent, first } = stack.pop();
    const column = first && parent ? parent.column : free++;
    const row = { node, row: rows.length, column, level, parent };
    rows.push(row);
    const below = byParent.get(node.id) ?? [];
    stack.push(...below.map((child, i) => ({ node: child, level: level + 1, parent: row, first: i === 0 })).reverse());
  }
  return rows;
};

const x = (row) => LEFT + row.column * COLUMN;
const y = (row) => ROW / 2 + row.row * ROW;

const edge = (row, current) => {
  const { parent } = row;
  const bend = parent.column === row.column ? '' : `C${x(parent)} ${y(parent) + 14} ${x(row)} ${y(parent) + 6} ${x(row)} ${y(parent) + 22}`;
  return svg('path', { class: current ? 'edge current' : 'edge', d: `M${x(parent)} ${y(parent)}${bend}V${y(row)}` });
};

const excerpt = (node) => {
  const text = node.content || node.files?.[0].name || (node.error ? 'error' : node.tools?.length ? 'tool call' : '…');
  return text.replace(/`+/g, '').slice(0, 200).trim().replace(/\s+/g, ' ');
};

const pen = document.createElement('canvas').getContext('2d');

/** Returns the beginning of a text that fits into `width` pixels. */
const fit = (text, width) => {
  const letters = [...text].slice(0, 60);
  const whole = letters.length === [...text].length;
  if (whole && pen.measureText(text).width <= width) return text;
  while (letters.length && pen.measureText(`${letters.join('')}…`).width > width) letters.pop();
  return `${letters.join('').trimEnd()}…`;
};

/** Shows the tree of `c`, if it has branches. `selected(id)` is called when the user chooses a message. */
export const show = (c, selected) => {
  const map = byId('map');
  byId('branches').hidden = !hasBranches(c);
  if (!hasBranches(c)) return map.replaceChildren();
  const focused = map.contains(document.activeElement) ? document.activeElement.dataset.node : null;
  const rows = layout(c);
  const current = new Set(path(c).map((node) => node.id));
  const columns = 1 + Math.max(...rows.map((row) => row.column));
  const text = LEFT + columns * COLUMN;
  // the panel is 304 pixels wide, or 86% of a narrow window; its content is narrower by the padding
  const width = Math.max(Math.min(304, innerWidth * 0.86) - 42, text + 120);
  // the label of the head is bold, so all labels are measured in bold
  pen.font = `600 13px ${getComputedStyle(map).fontFamily}`;
  const items = rows.map((row) => {
    const { node } = row;
    const who = node.role === 'user' ? 'You' : 'Answer';
    const whole = excerpt(node);
    const shown = fit(whole, width - text - 8);
    const item = svg(
      'g',
      {
        role: 'treeitem',
        'aria-level': row.level,
        'aria-selected': String(node.id === c.head),
        'aria-label': `${who}: ${shown}`,
        'data-node': node.id,
        tabindex: node.id === c.head ? '0' : '-1',
        class: `${node.role}${current.has(node.id) ? ' current' : ''}${node.id === c.head ? ' head' : ''}`,
        onclick: () => selected(node.id),
      },
      svg('rect', { class: 'hit', x: 1, y: row.row * ROW + 1, width: width - 2, height: ROW - 2, rx: 7 }),
      svg('circle', { cx: x(row), cy: y(row), r: node.role === 'user' ? 4 : 5 }),
      svg('text', { x: text, y: y(row) + 4 }, shown),
      shown !== whole && svg('title', {}, whole),
    );
    return item;
  });
  const edges = rows.filter((row) => row.parent);
  // edges of the current branch are drawn last, above the others
  edges.sort((a, b) => current.has(a.node.id) - current.has(b.node.id));
  const picture = svg(
    'svg',
    { role: 'tree', 'aria-label': 'Branches of the conversation', width, height: rows.length * ROW, viewBox: `0 0 ${width} ${rows.length * ROW}` },
    svg('g', { 'aria-hidden': 'true' }, edges.map((row) => edge(row, current.has(row.node.id)))),
    items,
  );
  picture.addEventListener('keydown', (event) => move(event, rows, items, selected));
  map.replaceChildren(picture);
  revealHead(c, map, rows);
  if (focused) items.find((item) => item.dataset.node === focused)?.focus();
};

let revealed = '';

/** Scrolls to the head, once: the user may then look at other parts. A closed panel has no size, so it is scrolled when it opens. */
const revealHead = (c, map, rows) => {
  if (!map.clientHeight || revealed === `${c.id} ${c.head}`) return;
  revealed = `${c.id} ${c.head}`;
  const head = rows.find((row) => row.node.id === c.head);
  map.scrollTop = head ? y(head) - map.clientHeight / 2 : 0;
};

const move = (event, rows, items, selected) => {
  const at = items.indexOf(event.target.closest('[role=treeitem]'));
  if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
  const first = rows.findIndex((row) => row.parent === rows[at]);
  const to = {
    ArrowDown: at + 1,
    ArrowUp: at - 1,
    ArrowLeft: rows[at].parent?.row ?? at,
    ArrowRight: first < 0 ? at : first,
    Home: 0,
    End: items.length - 1,
  }[event.key];
  if (event.key === 'Enter' || event.key === ' ') selected(items[at].dataset.node);
  else if (to === undefined) return;
  event.preventDefault();
  if (items[to]) {
    items[at].setAttribute('tabindex', '-1');
    items[to].setAttribute('tabindex', '0');
    items[to].focus();
  }
};
