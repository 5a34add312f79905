// Shows one message of the thread: text, files, thoughts, tool calls, error and buttons.

import { complete } from './dates.js';
import { copyText, el, icon, iconButton } from './dom.js';
import { fileChip } from './files.js';
import { markdownView } from './markdown.js';
import { menuButton } from './menu.js';
import { count, number } from './numbers.js';
import { textView } from './text.js';
import { thoughtsView } from './thoughts.js';
import { waitingView } from './waiting.js';

const ENDINGS = { stopped: 'stopped', lost: 'interrupted', edited: 'edited', length: 'token limit reached', tool_calls: 'tool call', content_filter: 'filtered' };

/** Returns how an answer ended, or an empty text for a complete answer. */
const ending = (node) => ENDINGS[node.finish] ?? (node.finish ? '' : 'interrupted');

/** Returns the figures of a message: tokens, speed, prompt, seed, date. */
const figures = (node) => {
  const { usage } = node;
  const words = [];
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    words.push(count(node.extended ? node.texts : usage.completion_tokens, 'token'));
    words.push(`prompt ${number(usage.prompt_tokens)}, ${number(cached)} cached`);
  }
  if (node.rate > 0) words.push(`${Number(node.rate).toFixed(1)} tokens/s`);
  if (node.seed !== undefined && node.seed !== null) words.push(`seed ${node.seed}`);
  if (node.created) words.push(complete(node.created));
  return words;
};

const errorDetails = (error) =>
  [
    error.status ? `status ${error.status}` : null,
    error.code,
    error.param ? `field ${error.param}` : null,
    error.retryAfter ? `try again after ${error.retryAfter} s` : null,
    error.requestId ? `request ${error.requestId}` : null,
  ].filter(Boolean);

const copyButton = (node) =>
  iconButton('copy', 'Copy', async (event) => {
    const button = event.currentTarget;
    await copyText(node.content);
    button.classList.add('done');
    setTimeout(() => button.classList.remove('done'), 1200);
  });

/**
 * Makes the editor of a message. `done(text)` receives the new text, or `null` if the user cancels. `isAnswer`: Enter begins a new line.
 * `hasFiles`: the text may be empty.
 */
const editor = (text, isAnswer, hasFiles, done) => {
  const field = el('textarea', { 'aria-label': isAnswer ? 'Edit the answer' : 'Edit the message', dir: 'auto', rows: isAnswer ? '10' : '3', value: text });
  const submit = () => (hasFiles || field.value.trim()) && done(field.value);
  field.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      done(null);
    } else if (event.key === 'Enter' && !event.isComposing && (isAnswer ? event.ctrlKey || event.metaKey : !event.shiftKey)) {
      event.preventDefault();
      submit();
    }
  });
  const buttons = el(
    'div',
    { class: 'row end' },
    el('button', { class: 'plain', type: 'button', onclick: () => done(null) }, 'Cancel'),
    el('button', { class: 'solid', type: 'button', onclick: submit }, isAnswer ? 'Keep as a new branch' : 'Send as a new branch'),
  );
  return { element: el('div', { class: 'editor' }, field, buttons), field };
};

const isCut = (node) => Boolean(node.content || node.reasoning) && !['stop', 'edited', 'tool_calls'].includes(node.finish);

/** Returns the contents of a message's menu: the rare actions, then the figures. */
const menuOf = (node, isAnswer, actions) => ({
  actions: [
    isAnswer && { name: 'more', label: 'Continue the answer', run: () => actions.continueAnswer(node) },
    isAnswer && { name: 'branch', label: 'Continue from here in a new branch', run: () => actions.continueFrom(node) },
    { name: 'delete', label: 'Delete the message and all after it', run: () => actions.removeMessage(node) },
  ].filter(Boolean),
  notes: figures(node),
});

/** Makes the buttons of a message. Rare actions are in the menu, so that all answers have the same buttons. */
const buttonsOf = (node, isAnswer, actions, edit) => [
  copyButton(node),
  isAnswer && iconButton('again', 'Regenerate', () => actions.regenerate(node)),
  iconButton('edit', 'Edit', edit, { 'data-edit': true }),
  menuButton('More actions and figures', () => menuOf(node, isAnswer, actions)),
];

/**
 * Makes the view of a node: `{element, update, edit, wake}`. `update({position, count, running, live, isLast})` shows the node's current content;
 * `position` of `count` is its place among its siblings, `live` the progress of a running answer. `isLast` is true for the last node of the branch.
 * `wake()` renders the Markdown of an answer, which is plain text before.
 */
export const messageView = (node, actions) => {
  const answer = node.role === 'assistant';
  const text = answer ? markdownView() : textView();
  const thoughts = thoughtsView();
  const waiting = waitingView();
  const tools = el('div', { class: 'tools' });
  const failure = el('div', { class: 'failure', hidden: true });
  const files = el('ul', { class: 'files', 'aria-label': 'Files of the message', hidden: !node.files?.length }, (node.files ?? []).map((file) => fileChip(file)));
  const meta = el('p', { class: 'meta' });
  const more = el('button', { class: 'plain more', type: 'button', onclick: () => actions.continueAnswer(node) }, icon('more'), 'Continue');
  const place = el('span', { class: 'place' });
  const step = (by) => () => actions.step(node, by);
  const branches = el(
    'span',
    { class: 'branches', role: 'group', 'aria-label': 'Branches of this message', hidden: true },
    iconButton('left', 'Previous branch', step(-1), { 'data-step': '-1' }),
    place,
    iconButton('right', 'Next branch', step(1), { 'data-step': '1' }),
  );
  const [previous, next] = branches.querySelectorAll('button');
  const buttons = el('span', { class: 'buttons' }, buttonsOf(node, answer, actions, () => edit()));
  const bar = el('div', { class: 'bar' }, answer ? [buttons, more, branches, meta] : [branches, buttons]);
  const offer = el('button', { class: 'plain offer', type: 'button', hidden: true, onclick: () => actions.generate(node) }, icon('again'), 'Generate an answer');
  const main = el('div', { class: 'content' }, answer ? [thoughts.element, text.element, tools, waiting.element, failure] : [files, text.element]);
  const element = el(
    'article',
    { class: node.role, 'data-node': node.id, 'aria-label': answer ? 'Answer' : 'Your message' },
    answer && el('span', { class: 'mark', 'aria-hidden': 'true' }, icon('wing')),
    main,
    bar,
    !answer && offer,
  );

  const edit = () => {
    const { element: form, field } = editor(node.content, answer, Boolean(node.files), (changed) => {
      form.remove();
      main.hidden = bar.hidden = false;
      if (changed === null) bar.querySelector('[data-edit]').focus();
      else actions.edit(node, changed);
    });
    main.hidden = bar.hidden = true;
    main.after(form);
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  };

  const showTools = () => {
    const calls = node.tools ?? [];
    while (tools.children.length > calls.length) tools.lastChild.remove();
    calls.forEach((call, i) => {
      if (!tools.children[i]) tools.append(el('pre', { tabindex: '0', role: 'group', 'aria-label': 'Tool call' }, el('code')));
      tools.children[i].firstChild.textContent = `${call?.function?.name ?? ''}(${call?.function?.arguments ?? ''})`;
    });
  };

  const showFailure = () => {
    failure.hidden = !node.error;
    if (!node.error) return failure.replaceChildren();
    if (failure.childElementCount) return;
    failure.append(
      el('p', {}, String(node.error.message)),
      el('p', { class: 'fine' }, errorDetails(node.error).join(' · ')),
      el('button', { class: 'plain', type: 'button', onclick: () => actions.resend(node) }, 'Send again'),
    );
  };

  const update = ({ position, count: all, running, live, isLast }) => {
    text.set(node.content, running);
    element.classList.toggle('running', running);
    element.setAttribute('aria-busy', String(running));
    if (answer) {
      thoughts.update(node, running && !node.content);
      waiting.update(running && !(node.content || node.reasoning || node.tools?.length), live);
      showTools();
      showFailure();
      more.hidden = running || !isCut(node);
      meta.textContent = running ? '' : ending(node);
    }
    buttons.hidden = running;
    // a user's message is the last one only if its answer was deleted
    offer.hidden = !isLast;
    branches.hidden = all < 2;
    place.textContent = `${position}/${all}`;
    // a button that disappears would lose the focus, so both buttons stay focusable
    previous.setAttribute('aria-disabled', String(position === 1));
    next.setAttribute('aria-disabled', String(position === all));
  };

  return { element, update, edit, wake: () => text.wake?.() };
};
