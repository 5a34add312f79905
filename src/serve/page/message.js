// Shows one message of the thread: text, thoughts, tool calls, error, numbers and buttons.

import { el, icon, iconButton } from './dom.js';
import { textView } from './text.js';

const number = (n) => Number(n).toLocaleString('en');
const count = (n, noun) => `${number(n)} ${noun}${Number(n) === 1 ? '' : 's'}`;

const ENDINGS = { stopped: 'stopped', length: 'token limit reached', tool_calls: 'tool call', content_filter: 'filtered' };

/** Returns the line of numbers below an answer. */
const numbers = (node) => {
  const { usage } = node;
  const words = [ENDINGS[node.finish] ?? (node.finish ? null : 'interrupted')];
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    words.push(count(usage.completion_tokens, 'token'), `prompt ${number(usage.prompt_tokens)}, ${number(cached)} cached`);
  }
  if (node.rate > 0) words.push(`${Number(node.rate).toFixed(1)} tokens/s`);
  return words.filter(Boolean);
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
  navigator.clipboard &&
  iconButton('copy', 'Copy', async (event) => {
    const button = event.currentTarget;
    await navigator.clipboard.writeText(node.content);
    button.classList.add('done');
    setTimeout(() => button.classList.remove('done'), 1200);
  });

/** Makes the editor of a user message. `done(text)` receives the new text, or `null` if the user cancels. */
const editor = (text, done) => {
  const field = el('textarea', { 'aria-label': 'Edit the message', rows: '3', value: text });
  const submit = () => field.value.trim() && done(field.value);
  field.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      done(null);
    } else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    }
  });
  const buttons = el(
    'div',
    { class: 'row end' },
    el('button', { class: 'plain', type: 'button', onclick: () => done(null) }, 'Cancel'),
    el('button', { class: 'solid', type: 'button', onclick: submit }, 'Send as a new branch'),
  );
  return { element: el('div', { class: 'editor' }, field, buttons), field };
};

/**
 * Makes the view of a node: `{element, update, edit}`. `update({position, count, running, head})` shows the node's current content; `position`
 * of `count` is its place among its siblings.
 */
export const messageView = (node, actions) => {
  const answer = node.role === 'assistant';
  const text = textView();
  const thoughts = textView();
  const summary = el('summary', {}, 'Thoughts');
  const details = el('details', { class: 'thoughts', hidden: true }, summary, thoughts.element);
  const tools = el('div', { class: 'tools' });
  const failure = el('div', { class: 'failure', hidden: true });
  const meta = el('p', { class: 'meta' });
  const waiting = el('p', { class: 'waiting', hidden: true }, el('span', { class: 'hidden' }, 'Waiting for the answer'));
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
  const again = answer && iconButton('again', 'Regenerate', () => actions.regenerate(node));
  const here = answer && iconButton('branch', 'Continue from here in a new branch', () => actions.continueFrom(node));
  const change = !answer && iconButton('edit', 'Edit', () => edit(), { 'data-edit': true });
  const copy = copyButton(node);
  const buttons = el('span', { class: 'buttons' }, again, change, here, copy);
  const bar = el('div', { class: 'bar' }, answer ? [branches, buttons, meta] : [buttons, branches]);
  const main = el('div', { class: 'content' }, answer ? [waiting, details, text.element, tools, failure] : text.element);
  const element = el(
    'article',
    { class: node.role, 'data-node': node.id, 'aria-label': answer ? 'Answer' : 'Your message' },
    answer && el('span', { class: 'mark', 'aria-hidden': 'true' }, icon('wing')),
    main,
    bar,
  );

  const edit = () => {
    const { element: form, field } = editor(node.content, (changed) => {
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
    if (!node.error || failure.childElementCount) return;
    failure.append(
      el('p', {}, String(node.error.message)),
      el('p', { class: 'fine' }, errorDetails(node.error).join(' · ')),
      el('button', { class: 'plain', type: 'button', onclick: () => actions.resend(node) }, 'Send again'),
    );
  };

  const update = ({ position, count: all, running, head }) => {
    text.set(node.content);
    element.classList.toggle('running', running);
    element.setAttribute('aria-busy', String(running));
    if (answer) {
      const thinks = running && !node.content;
      thoughts.set(node.reasoning ?? '');
      details.hidden = !node.reasoning;
      summary.textContent = thinks ? 'Thinking…' : 'Thoughts';
      waiting.hidden = !running || Boolean(node.content || node.reasoning || node.tools?.length);
      showTools();
      showFailure();
      meta.replaceChildren(...(running ? [] : numbers(node).map((word) => el('span', {}, word))));
      meta.title = node.seed === undefined || node.seed === null ? '' : `seed ${node.seed}`;
      again.hidden = running;
      if (copy) copy.hidden = running || !node.content;
      here.hidden = running || head || Boolean(node.error);
    }
    branches.hidden = all < 2;
    place.textContent = `${position}/${all}`;
    // a button that disappears would lose the focus, so both buttons stay focusable
    previous.setAttribute('aria-disabled', String(position === 1));
    next.setAttribute('aria-disabled', String(position === all));
  };

  return { element, update, edit };
};
