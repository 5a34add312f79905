// The dialog of the system prompt and the sampler settings. Each change is stored with the conversation. An empty field uses the value of the
// preset, or the model's default, and shows it.

import { backend } from './backend.js';
import { byId, el } from './dom.js';
import * as store from './store.js';

// sampler presets of the server, by the architecture of the model; the last ones need a chat format with thoughts
const PRESETS = [
  { fits: () => true, names: ['greedy', 'creative', 'precise'] },
  { fits: ({ architecture }) => architecture === 'glm4_moe_lite', names: ['glm-4.7', 'glm-4.7-tools'] },
  { fits: ({ architecture }) => architecture.startsWith('glm') && architecture !== 'glm4_moe_lite', names: ['glm'] },
  { fits: ({ architecture }) => /^rwkv\d/.test(architecture), names: ['pip', 'demo', 'chat', 'world', 'qa'] },
  { fits: ({ architecture }, thinking) => /^rwkv\d/.test(architecture) && thinking.length > 1, names: ['g1', 'g1-think', 'g1-fast', 'g1-tools'] },
];

const THINKING = ['off', 'fast', 'on', 'short', 'long'];

/** Returns the presets that fit a model, or all presets if the backend does not describe the model. */
const presets = (model, thinking) =>
  PRESETS.filter(({ fits }) => !model?.architecture || fits(model, thinking)).flatMap(({ names }) => names);

const FIELDS = [
  { name: 'system', label: 'System prompt', kind: 'text', hint: 'Text before the first message.' },
  { name: 'temperature', label: 'Creativity', min: 0, hint: 'The temperature: 0 always takes the likeliest token, 1 follows the model.' },
  { name: 'max_tokens', label: 'Length', min: 1, step: 1, hint: 'Most tokens of an answer.' },
  { name: 'thinking', label: 'Thinking', kind: 'choice', values: (model, thinking) => thinking, hint: 'How much the model thinks before it answers.' },
  { name: 'preset', label: 'Preset', kind: 'choice', values: presets, isAdvanced: true, hint: 'Named sampler settings. Other fields override it.' },
  { name: 'top_p', label: 'Top-p', min: 0, max: 1, isAdvanced: true, hint: 'Keeps the likeliest tokens up to this total probability.' },
  { name: 'top_k', label: 'Top-k', min: 0, step: 1, isAdvanced: true, hint: 'Keeps this many of the likeliest tokens.' },
  { name: 'min_p', label: 'Min-p', min: 0, max: 1, isAdvanced: true, hint: 'Keeps tokens at least this fraction as likely as the likeliest.' },
  { name: 'presence_penalty', label: 'Presence penalty', isAdvanced: true, hint: 'Subtracted from logits of tokens that occurred.' },
  { name: 'frequency_penalty', label: 'Frequency penalty', isAdvanced: true, hint: 'Subtracted once per occurrence.' },
  { name: 'repeat_penalty', label: 'Repeat penalty', min: 0, isAdvanced: true, hint: 'Divides logits of tokens that occurred; 1 is off.' },
  { name: 'seed', label: 'Seed', step: 1, isAdvanced: true, hint: 'The same seed and settings give the same answer.' },
  { name: 'schema', label: 'JSON schema', kind: 'text', code: true, isAdvanced: true, hint: 'Answers are JSON that matches this schema.' },
];

// maps the name of a model to its defaults, which the backend reports
const known = new Map();

const load = async (model) => {
  if (!known.has(model)) known.set(model, await backend.defaults(model).catch(() => null));
  // no answer, perhaps because the model still loads: the next `load` asks again
  if (!known.get(model)) known.delete(model);
};

const round = (value) => (typeof value === 'number' ? Number(value.toPrecision(6)) : value);

/** Returns the placeholder of an empty field: the value that applies, if the backend reports it. */
const effective = (c, name) => {
  if (name === 'seed') return 'random';
  if (c.settings.preset) return 'value of the preset';
  const value = known.get(c.model)?.[name];
  return value === undefined ? 'default' : `default ${round(value)}`;
};

const value = (c, name) => (name === 'system' ? c.system : (c.settings[name] ?? ''));

const input = (field, described) => {
  const common = { id: `set-${field.name}`, 'aria-describedby': described };
  if (field.kind === 'text') {
    return el('textarea', { ...common, dir: field.code ? 'ltr' : 'auto', rows: field.code ? '4' : '3', spellcheck: field.code ? 'false' : null, class: field.code ? 'mono' : null });
  }
  if (field.kind === 'choice') {
    return el('select', common);
  }
  return el('input', { ...common, type: 'number', min: field.min, max: field.max, step: field.step ?? 'any', placeholder: 'default', inputmode: 'decimal' });
};

/** Fills a select with the values that the model supports and the conversation's own value. Returns whether the user has a choice. */
const showChoices = (field, control, c, model) => {
  const own = value(c, field.name);
  const reported = known.get(c.model);
  // no choices before the backend has answered, because some would disappear again; all choices if the backend does not report them
  const values = field.values(model, reported ? (reported.thinking ?? THINKING) : []);
  const options = values.map((name) => el('option', { value: name }, name));
  if (own && !values.includes(own)) options.push(el('option', { value: own }, `${own} (not for this model)`));
  control.replaceChildren(el('option', { value: '' }, 'default'), ...options);
  control.value = own;
  return values.length > 1 || Boolean(own);
};

/** Returns what is wrong with a field, or an empty text. */
const problem = (field, control) => {
  if (field.name !== 'schema') return control.validationMessage ?? '';
  if (!control.value.trim()) return '';
  try {
    const schema = JSON.parse(control.value);
    return schema && typeof schema === 'object' ? '' : 'A schema is a JSON object.';
  } catch (error) {
    return `Not JSON: ${error.message}`;
  }
};

/**
 * Makes the dialog. `conversation()` returns the current conversation, `model()` its model; `changed()` is called after each change. Returns
 * `{open, isValid}`; `isValid` opens the dialog at the first field with a problem.
 */
export const settingsDialog = (conversation, model, changed) => {
  const dialog = byId('settings');
  const advanced = byId('advanced');
  const rows = FIELDS.map((field) => {
    const hint = el('p', { class: 'hint', id: `hint-${field.name}` }, field.hint);
    const wrong = el('p', { class: 'problem', id: `wrong-${field.name}`, role: 'alert', hidden: true });
    const control = input(field, `${hint.id} ${wrong.id}`);
    const element = el(
      'div',
      { class: field.kind === 'text' ? 'field wide' : 'field' },
      el('label', { for: control.id }, field.label),
      control,
      hint,
      wrong,
    );
    const check = () => {
      const message = problem(field, control);
      wrong.textContent = message;
      wrong.hidden = !message;
      control.setAttribute('aria-invalid', String(Boolean(message)));
      return !message;
    };
    control.addEventListener('input', () => {
      const c = conversation();
      if (field.name === 'system') c.system = control.value;
      else if (control.value === '') delete c.settings[field.name];
      else c.settings[field.name] = control.value;
      changed();
      if (field.name === 'preset') showAll();
      // a message while the user still types a schema would only disturb
      if (!wrong.hidden || field.kind === undefined) check();
    });
    control.addEventListener('change', check);
    const fill = () => {
      control.value = value(conversation(), field.name);
      return check();
    };
    const showKnown = () => {
      if (field.kind === 'choice') element.hidden = !showChoices(field, control, conversation(), model());
      if (!field.kind) control.placeholder = effective(conversation(), field.name);
    };
    return { element, control, isAdvanced: Boolean(field.isAdvanced), fill, showKnown };
  });
  const showAll = () => rows.forEach((row) => row.showKnown());
  for (const row of rows) byId(row.isAdvanced ? 'advanced-fields' : 'fields').append(row.element);
  advanced.addEventListener('toggle', () => store.setValue('advanced', advanced.open));
  const fill = () => rows.map((row) => row.fill());
  byId('settings-reset').addEventListener('click', () => {
    const c = conversation();
    c.system = '';
    c.settings = {};
    showAll();
    fill();
    changed();
    rows[0].control.focus();
  });
  const open = () => {
    advanced.open = Boolean(store.value('advanced'));
    showAll();
    fill();
    load(conversation().model).then(showAll);
    if (!dialog.open) dialog.showModal();
  };
  const isValid = () => {
    const wrong = fill().indexOf(false);
    if (wrong >= 0) {
      open();
      advanced.open ||= rows[wrong].isAdvanced;
      rows[wrong].control.focus();
    }
    return wrong < 0;
  };
  return { open, isValid };
};
