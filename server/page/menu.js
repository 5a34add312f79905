// The menu of actions that have no button of their own. One element serves all buttons, and is filled when it opens.

import { el, icon, iconButton } from './dom.js';

const list = el('div', { role: 'menu' });
const figures = el('ul', { class: 'figures', id: 'menu-figures' });
// a popover is in the top layer, so no scrolled area cuts it off
const panel = el('div', { class: 'menu', popover: 'manual', tabindex: '-1' }, list, figures);

// the button of the open menu
let opener = null;

const place = () => {
  const at = opener.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = panel;
  const fitsBelow = at.bottom + 4 + height <= innerHeight;
  panel.style.left = `${Math.max(8, Math.min(at.left, innerWidth - width - 8))}px`;
  panel.style.top = `${fitsBelow ? at.bottom + 4 : Math.max(8, at.top - height - 4)}px`;
};

const close = () => {
  if (!opener) return;
  opener.setAttribute('aria-expanded', 'false');
  opener = null;
  panel.remove();
};

const items = () => [...list.children];

const itemOf = ({ name, label, run }) => {
  const chosen = () => {
    const button = opener;
    close();
    // before `run`, which may move the focus elsewhere
    button.focus();
    run();
  };
  return el('button', { role: 'menuitem', type: 'button', tabindex: '-1', onclick: chosen }, icon(name), label);
};

const open = (button, label, { actions, notes = [] }, first = 0) => {
  close();
  opener = button;
  button.setAttribute('aria-expanded', 'true');
  list.setAttribute('aria-label', label);
  list.replaceChildren(...actions.map(itemOf));
  figures.replaceChildren(...notes.map((note) => el('li', {}, note)));
  figures.hidden = !notes.length;
  // screen readers read the figures with the menu
  if (notes.length) list.setAttribute('aria-describedby', figures.id);
  else list.removeAttribute('aria-describedby');
  button.after(panel);
  panel.showPopover();
  place();
  items().at(first).focus();
};

panel.addEventListener('keydown', (event) => {
  const all = items();
  const at = all.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at < 0 ? -1 : at - 1, Home: 0, End: -1 }[event.key];
  if (event.key === 'Escape' || event.key === 'Tab') {
    opener.focus();
    close();
    // the browser handles Tab and moves the focus on from the button
    if (event.key === 'Tab') return;
  } else if (to === undefined) return;
  else all.at(to % all.length).focus();
  event.preventDefault();
  event.stopPropagation();
});
panel.addEventListener('focusout', ({ relatedTarget }) => relatedTarget && relatedTarget !== opener && !panel.contains(relatedTarget) && close());
document.addEventListener('pointerdown', ({ target }) => opener && !panel.contains(target) && !opener.contains(target) && close(), true);
addEventListener('resize', close);
// the menu stays at its button
document.addEventListener('scroll', ({ target }) => opener && !panel.contains(target) && place(), { capture: true, passive: true });

/** Makes a button that opens a menu. `contents()` returns `{actions: [{name, label, run}], notes}`; `name` is an icon, `notes` are short texts below. */
export const menuButton = (label, contents, attributes = {}) => {
  const button = iconButton('dots', label, () => (opener === button ? close() : open(button, label, contents())), {
    'aria-haspopup': 'menu',
    'aria-expanded': 'false',
    ...attributes,
  });
  button.addEventListener('keydown', (event) => {
    const first = { ArrowDown: 0, ArrowUp: -1 }[event.key];
    if (first === undefined) return;
    event.preventDefault();
    open(button, label, contents(), first);
  });
  return button;
};
