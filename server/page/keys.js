// Keyboard shortcuts of the whole page, and the dialog that lists them.

import { byId, el } from './dom.js';
import { closeOver } from './panels.js';

const ALT = { KeyN: 'create', KeyR: 'regenerate', KeyE: 'editLast', KeyS: 'states', Comma: 'settings', Slash: 'help', BracketLeft: 'previous', BracketRight: 'next' };

const LIST = [
  [['Enter'], 'Send the message'],
  [['Shift', 'Enter'], 'New line'],
  [['Esc'], 'Stop the answer; close a panel'],
  [['↑'], 'Edit the last message (in an empty field)'],
  [['Alt', 'N'], 'New conversation'],
  [['Alt', 'R'], 'Regenerate the last answer'],
  [['Alt', 'E'], 'Edit the last message'],
  [['Alt', '['], 'Previous branch of the last answer'],
  [['Alt', ']'], 'Next branch of the last answer'],
  [['Alt', 'S'], 'States'],
  [['Alt', ','], 'Settings'],
  [['Alt', '/'], 'This list'],
];

/** Connects the shortcuts to `actions`. */
export const connect = (actions) => {
  const help = byId('help');
  byId('help-list').append(
    ...LIST.flatMap(([keys, meaning]) => [el('dt', {}, keys.flatMap((key, i) => [i ? ' + ' : '', el('kbd', {}, key)])), el('dd', {}, meaning)]),
  );
  const open = () => help.showModal();
  byId('help-open').addEventListener('click', open);

  for (const dialog of document.querySelectorAll('dialog')) {
    for (const button of dialog.querySelectorAll('[data-close]')) button.addEventListener('click', () => dialog.close());
    // a click on the backdrop has the dialog itself as its target
    dialog.addEventListener('pointerdown', (event) => {
      if (event.target !== dialog) return;
      const box = dialog.getBoundingClientRect();
      const inside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
      if (!inside) dialog.close();
    });
  }

  addEventListener('keydown', (event) => {
    if (document.querySelector('dialog[open]') || byId('app').hidden || event.defaultPrevented) return;
    if (event.key === 'Escape') {
      if (!closeOver()) actions.stop();
      return;
    }
    // AltGr is Ctrl+Alt on some systems and types characters
    if (!event.altKey || event.ctrlKey || event.metaKey || !(event.code in ALT)) return;
    event.preventDefault();
    ({ help: open, ...actions })[ALT[event.code]]();
  });
};
