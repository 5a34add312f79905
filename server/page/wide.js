// Blocks that may be wider than the thread: code and tables. A wide block scrolls, has a shadow where more text follows, and a button that wraps its
// lines.

import { el } from './dom.js';

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const box = target.closest('.scrolls');
    if (!box) continue;
    const area = box.querySelector(':scope > :is(pre, .table)');
    const isWide = area.scrollWidth > area.clientWidth + 1;
    box.querySelector('.wrap').hidden = !isWide && !('wraps' in box.dataset);
  }
});

const toggle = ({ currentTarget: button }) => {
  const wraps = button.closest('.scrolls').toggleAttribute('data-wraps');
  button.setAttribute('aria-pressed', String(wraps));
};

/** Makes the button of a block, hidden until the block is wide. With `data-view`, the user's choice survives new text (see morph.js). */
export const wrapButton = (name) =>
  el('button', { class: 'quiet wrap', type: 'button', hidden: true, 'aria-label': `Wrap ${name}`, 'aria-pressed': 'false', 'data-view': true, onclick: toggle }, 'Wrap');

/** Watches the part of a block that scrolls, and its content: code or a table. */
export const watch = (area, content) => {
  sizes.observe(area);
  sizes.observe(content);
};
