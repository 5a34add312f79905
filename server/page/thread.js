// Shows the current branch as a list of messages, and follows the end of a growing answer.

import * as composer from './composer.js';
import { byId, perFrame } from './dom.js';
import { messageView } from './message.js';
import { path, siblings } from './tree.js';

const scroll = byId('scroll');
const thread = byId('thread');
const toEnd = byId('to-end');

let views = new Map();
let shown = null;
let follows = true;
let growing = null;

const atEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
const calm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

scroll.addEventListener('scroll', () => {
  follows = atEnd();
  toEnd.hidden = follows;
});

/** Scrolls to the end and follows it from then on. */
export const goToEnd = (smooth = false) => {
  follows = true;
  scroll.scrollTo({ top: scroll.scrollHeight, behavior: smooth && !calm() ? 'smooth' : 'instant' });
};

toEnd.addEventListener('click', () => {
  goToEnd(true);
  composer.focus();
});

// Code and formulas become larger when their libraries are loaded, and the composer grows with its text. The newest line stays in view.
const resized = new ResizeObserver(() => follows && goToEnd());
resized.observe(scroll);
resized.observe(thread);

// Answers far from the visible part are plain text until the user comes near, because Markdown of megabytes takes seconds.
const near = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
    near.unobserve(target);
    views.get(target.dataset.node)?.wake();
  }),
  { root: scroll, rootMargin: '1500px 0px' },
);

/** Characters at the end of a conversation whose Markdown is rendered before the first paint. */
const FIRST = 20_000;

const wakeLast = (nodes) => {
  let size = 0;
  for (const node of nodes.toReversed()) {
    if (size > FIRST) return;
    size += node.content.length;
    views.get(node.id).wake();
  }
};

const place = (c, node, answer) => {
  const all = siblings(c, node);
  return { position: all.indexOf(node) + 1, count: all.length, running: answer?.node === node, live: answer?.live, isLast: c.head === node.id };
};

/** Shows the current branch of `c`. `answer` is `{node, live}` of the answer that is being received, or `null`. Views of other messages stay. */
export const show = (c, answer, actions) => {
  const top = scroll.scrollTop;
  // if another tab has changed the conversation, `c` is a new object with the same id: the scroll position stays
  const isSame = shown?.id === c.id;
  if (shown !== c) {
    views.clear();
    thread.replaceChildren();
    shown = c;
    follows ||= !isSame;
  }
  growing = null;
  const nodes = path(c);
  const kept = new Map();
  nodes.forEach((node, i) => {
    const view = views.get(node.id) ?? messageView(node, actions);
    if (!views.has(node.id)) near.observe(view.element);
    view.update(place(c, node, answer));
    if (thread.children[i] !== view.element) thread.insertBefore(view.element, thread.children[i] ?? null);
    kept.set(node.id, view);
  });
  while (thread.children.length > nodes.length) thread.lastChild.remove();
  views = kept;
  if (follows) wakeLast(nodes);
  byId('empty').hidden = nodes.length > 0;
  if (follows) goToEnd();
  else if (isSame) scroll.scrollTop = top;
};

const grow = perFrame(() => {
  // the answer may have ended, or another conversation may be shown since the request for this frame
  if (!growing) return;
  const { c, node, live } = growing;
  views.get(node.id)?.update(place(c, node, { node, live }));
  if (follows) goToEnd();
});

/** Shows new text of the answer `node`. */
export const update = (c, node, live) => {
  // the answer of a conversation that is not shown must not replace a pending update
  if (shown !== c) return;
  growing = { c, node, live };
  grow();
};

/** Begins to edit a message. */
export const edit = (id) => views.get(id)?.edit?.();

/** Scrolls to a message. */
export const reveal = (id) => {
  follows = false;
  views.get(id)?.element.scrollIntoView({ block: 'start', behavior: calm() ? 'instant' : 'smooth' });
};

/** Focuses an element of a message's view, for example after its branch changed. */
export const focus = (id, selector) => views.get(id)?.element.querySelector(selector)?.focus();
