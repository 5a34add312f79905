// Holds the answers that are being received. An answer continues while another conversation is shown.

import { fill } from './answer.js';
import { sentences } from './announce.js';
import * as speed from './speed.js';
import * as store from './store.js';
import * as thread from './thread.js';

// maps the id of a conversation to `{c, node, controller, live}`
const running = new Map();

/** Returns `{c, node, live}` of the answer that a conversation receives, or `null`. `live` has `progress`, `isLost` and `addsNothing`. */
export const of = (id) => running.get(id) ?? null;

export const has = (id) => running.has(id);

export const stop = (id, reason = 'stopped') => running.get(id)?.controller.abort(reason);

const lock = (id, options, work) => navigator.locks.request(`wingbeat.answer.${id}`, options, work);

// Two tabs must not resume the same answer. A page without HTTPS has no locks; there, both tabs would store the same text.
const alone = (id, work) => (navigator.locks ? lock(id, { ifAvailable: true }, (own) => (own ? work() : null)) : work());

/** Keeps other tabs from resuming the answer until `end`. */
const hold = (id, end) => {
  if (navigator.locks) lock(id, { ifAvailable: true }, () => end);
  return end;
};

// A page that is closed loses its connections. This is not the end of its answers: the next page receives the rest.
let isClosing = false;
addEventListener('pagehide', () => {
  running.forEach(({ c }) => store.saveNow(c));
  isClosing = true;
});
addEventListener('pageshow', (event) => {
  if (event.persisted && running.size) location.reload();
  isClosing = false;
});

const ENDINGS = { stopped: 'Answer stopped.', length: 'Answer ended at the token limit.', lost: 'Answer interrupted.' };

const ending = (node, error) => {
  const tokens = node.usage?.completion_tokens;
  return error ? `Error: ${error.message}` : (ENDINGS[node.finish] ?? `End of the answer${tokens ? `, ${tokens} tokens` : ''}.`);
};

const receive = async (c, node, how, page) => {
  const controller = new AbortController();
  const live = { progress: null, isLost: false, addsNothing: false };
  running.set(c.id, { c, node, controller, live });
  page.began(c);
  if (page.isShown(c)) speed.begin();
  const spoken = sentences();
  // 0, so that the first event saves at once: the page then knows the id of the answer after a reload
  let saved = 0;
  const error = await fill(c, node, how, {
    signal: controller.signal,
    live,
    token: () => page.isShown(c) && speed.token(),
    changed: (text) => {
      thread.update(c, node, live);
      if (page.isShown(c)) spoken.add(text);
      // saves about once per second, so that a page that ends without warning keeps the text so far
      if (Date.now() - saved > 1000 && !isClosing) {
        saved = Date.now();
        store.save(c);
      }
    },
  });
  if (isClosing) return;
  running.delete(c.id);
  // the conversation was deleted meanwhile, so nothing is saved
  if (controller.signal.reason === 'deleted') return;
  c.updated = Date.now();
  store.saveNow(c);
  page.ended(c, node, error);
  if (!page.isShown(c)) return live;
  speed.end(node.rate);
  // a toast already says that the model adds nothing
  spoken.end(live.addsNothing ? '' : ending(node, error));
  return live;
};

/**
 * Receives an answer to its end. `how` as in `fill`. `page` has `isShown(c)`, `began(c)` and `ended(c, node, error)`. Resolves to the answer's `live`,
 * or to nothing if another tab receives the answer, or the conversation was deleted.
 */
export const run = (c, node, how, page) => {
  const work = () => receive(c, node, how, page);
  return how === 'resume' ? alone(c.id, work) : hold(c.id, work());
};
