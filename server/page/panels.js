// The side bar and the panel of branches: beside the thread on wide windows, above it (one at a time) on narrow ones. The panel of branches opens
// only when the user opens it.

import { byId } from './dom.js';

const scrim = byId('scrim');
const main = byId('main');

const panel = (name, query, opensByItself) => {
  const element = byId(name);
  const toggle = byId(`${name}-open`);
  const wide = matchMedia(query);
  let shown = wide.matches && opensByItself;
  const apply = () => {
    const covers = shown && !wide.matches;
    element.classList.toggle('open', shown);
    element.classList.toggle('over', covers);
    // a closed panel leaves the tab order
    element.inert = !shown;
    toggle.setAttribute('aria-expanded', String(shown));
    return covers;
  };
  return {
    element,
    toggle,
    wide,
    apply,
    opensByItself,
    set: (value) => (shown = value),
    get shown() {
      return shown;
    },
  };
};

const panels = [panel('side', '(min-width: 820px)', true), panel('aside', '(min-width: 1180px)', false)];

const refresh = () => {
  const covered = panels.map((p) => p.apply()).some(Boolean);
  scrim.hidden = !covered;
  main.inert = covered;
  for (const p of panels) if (covered && !p.element.classList.contains('over')) p.element.inert = true;
};

/** Closes the panel that covers the thread. Returns false if no panel covers the thread. */
export const closeOver = () => {
  const over = panels.find((p) => p.element.classList.contains('over'));
  if (!over) return false;
  over.set(false);
  refresh();
  over.toggle.focus();
  return true;
};

const setUp = (p) => {
  p.toggle.addEventListener('click', () => {
    p.set(!p.shown);
    refresh();
    if (p.element.classList.contains('over')) p.element.querySelector('button, [tabindex="0"]')?.focus();
  });
  p.wide.addEventListener('change', () => {
    p.set(p.wide.matches && p.opensByItself);
    refresh();
  });
  byId(`${p.element.id}-close`).addEventListener('click', closeOver);
};

panels.forEach(setUp);
scrim.addEventListener('click', closeOver);
refresh();
