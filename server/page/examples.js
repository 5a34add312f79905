// Shows examples of first messages in an empty conversation.

import { backend } from './backend.js';
import { byId, el } from './dom.js';

const EXAMPLES = [
  'Explain in three sentences why the sky is blue.',
  'Write a Python function that finds the longest word of a text.',
  'Compare tea, coffee and water in a table.',
  'Solve x² − 5x + 6 = 0 step by step.',
];

// a smaller model is the embedded one, with 2 million parameters
const TINY = 10_000_000;
const TINY_EXAMPLES = ['Tell me a story about a fox.', 'What is 7 plus 6?', 'What is the opposite of hot?', 'Give me a record of a cat as JSON.'];

const NOTES = {
  tiny: 'This tiny model knows a small world: stories, small sums, opposites, colours, animals.',
  state: (name) => `The model continues after the saved state ${name}.`,
};

/** Shows the examples for a conversation and its model. `send(text)` sends one. */
export const showExamples = (c, model, send) => {
  const isTiny = Boolean(model?.parameters && model.parameters < TINY);
  byId('empty-note').textContent = c.state ? NOTES.state(c.state) : isTiny ? NOTES.tiny : backend.place;
  const texts = c.state || !model ? [] : isTiny ? TINY_EXAMPLES : EXAMPLES;
  byId('examples').replaceChildren(...texts.map((text) => el('button', { class: 'plain', type: 'button', onclick: () => send(text) }, text)));
};
