// The field for messages, the model and its choice, and the form for the API key.

import { byId, el } from './dom.js';
import * as files from './files.js';
import { compact } from './numbers.js';

const input = byId('input');

// on a touch screen the focus opens the keyboard, which covers half of the thread
const touch = matchMedia('(hover: none) and (any-pointer: coarse)');

/** Focuses the field, but not on a touch screen. */
export const focus = () => {
  if (!touch.matches) input.focus();
};

const fit = () => {
  // not `disabled`: a button that has the focus keeps it
  byId('send').setAttribute('aria-disabled', String(!input.value.trim() && !files.hasFiles()));
  input.style.height = 'auto';
  input.style.height = `${Math.min(input.scrollHeight, innerHeight * 0.4)}px`;
};

/** Connects the field to `actions`: `send(text, files)` returns whether it took the message, `editLast()` whether an editor opened; `stop()`. */
export const connect = (actions) => {
  const submit = () => {
    if (byId('send').getAttribute('aria-disabled') === 'true' || !actions.send(input.value, files.current())) return;
    input.value = '';
    files.clear();
  };
  files.connect(byId('app'), fit);
  byId('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    submit();
  });
  input.addEventListener('keydown', (event) => {
    // an input method's Enter ends its composition
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    } else if (event.key === 'ArrowUp' && !input.value) {
      if (actions.editLast()) event.preventDefault();
    }
  });
  input.addEventListener('input', fit);
  byId('stop').addEventListener('click', () => {
    actions.stop();
    focus();
  });
};

/** Shows the button to stop, or the button to send. Focus moves from the button that disappears to the field, or on a touch screen to the other button. */
export const setRunning = (running) => {
  const [send, stop] = [byId('send'), byId('stop')];
  const lost = document.activeElement === (running ? send : stop);
  send.hidden = running;
  stop.hidden = !running;
  if (lost) (touch.matches ? (running ? stop : send) : input).focus();
};

/** Returns the size, the number format and the device of a model, if the backend reports them. */
const facts = ({ parameters, dtype, device }) => [[parameters && compact(parameters), dtype].filter(Boolean).join(' '), device].filter(Boolean).join(' · ');

/** Shows the models and chooses `chosen`, or the first. A single model is no choice, so only its name is shown. */
export const showModels = (models, chosen) => {
  const known = models.find((model) => model.id === chosen);
  const options = models.map((model) =>
    el('option', { value: model.id }, model.status && model.status !== 'ready' ? `${model.id} (${model.status})` : model.id));
  if (chosen && !known) options.unshift(el('option', { value: chosen }, `${chosen} (not available)`));
  if (!options.length) options.push(el('option', { value: '' }, 'no model'));
  const select = byId('model');
  select.replaceChildren(...options);
  select.value = chosen || models[0]?.id || '';
  select.hidden = options.length < 2;
  byId('model-name').hidden = !select.hidden;
  byId('model-name').textContent = options[0].textContent;
  const model = known ?? (chosen ? null : models[0]);
  for (const attribute of ['textContent', 'title']) byId('model-facts')[attribute] = model ? facts(model) : '';
};

/** Connects the choice of the model. */
export const onModel = (f) => byId('model').addEventListener('change', (event) => f(event.target.value));

let retry = null;
let tried = false;

/** Shows the form for the API key. `then` is called, without arguments, after the user has entered a key. */
export const askKey = (then) => {
  retry = then;
  byId('key').hidden = false;
  if (tried) byId('key-note').textContent = 'The server does not accept this key. Enter another key.';
  byId('key-field').focus();
};

/** Connects the form for the key. `f` receives the key. */
export const onKey = (f) =>
  byId('key').addEventListener('submit', (event) => {
    event.preventDefault();
    const field = byId('key-field');
    byId('key').hidden = true;
    f(field.value);
    field.value = '';
    tried = true;
    focus();
    retry?.();
    retry = null;
  });
