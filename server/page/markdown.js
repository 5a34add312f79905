// Shows a growing Markdown text. Finished blocks are neither parsed nor painted again; the last block changes in place.

import { updateCode } from './code.js';
import { el } from './dom.js';
import { addFormulas } from './formulas.js';
import { library } from './libraries.js';
import { mend } from './mend.js';
import { morph } from './morph.js';
import { codeOf, render } from './render.js';
import { addTasks } from './tasks.js';
import { textView } from './text.js';

let parser = null;

const parserOf = (MarkdownIt) => {
  if (parser) return parser;
  parser = new MarkdownIt({ html: false, linkify: true, breaks: true, typographer: false });
  parser.validateLink = (address) => /^(https?:|mailto:)/i.test(address.trim());
  // only complete addresses become links
  parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  addFormulas(parser);
  addTasks(parser);
  return parser;
};

/** Splits a text into its top-level blocks `{at, source, tokens}`; `at` is the block's place in the text. */
const blocks = (text, env) => {
  const starts = [0];
  for (let i = text.indexOf('\n'); i >= 0; i = text.indexOf('\n', i + 1)) starts.push(i + 1);
  const found = [];
  let depth = 0;
  for (const token of parser.parse(text, env)) {
    if (depth === 0 && token.nesting >= 0) found.push({ at: starts[token.map?.[0] ?? 0], tokens: [] });
    found.at(-1).tokens.push(token);
    depth += token.nesting;
  }
  found.forEach((block, i) => (block.source = text.slice(block.at, found[i + 1]?.at)));
  return found;
};

/**
 * Makes `{element, set, wake}`: `set(text, growing)` shows a text. A growing text should begin with the previous text. A text that does not
 * grow is plain until `wake` is called, so a long conversation opens quickly.
 */
export const markdownView = () => {
  const element = el('div', { class: 'body asleep' });
  const plain = textView();
  let [shown, last, grew, names, isAwake] = [[], null, false, 0, false];

  const wake = () => {
    if (isAwake) return;
    isAwake = true;
    element.classList.remove('asleep');
    refresh();
  };

  const need = (name) => library(name, refresh);

  const refresh = () => {
    if (last === null) return;
    // with a newly loaded library, the same source makes other elements
    for (const block of shown) block.source = null;
    const [text, growing] = [last, grew];
    last = null;
    set(text, growing);
  };

  const elementOf = (block) => render(block.tokens, el('div'), need).firstElementChild ?? el('p');

  /** Changes the element of a block that grows. Returns the element that is now in the document. */
  const changed = (element, block) => {
    const [token] = block.tokens;
    if (!['fence', 'code_block'].includes(token.type)) return morph(element, elementOf(block));
    if (updateCode(element, ...codeOf(token), need)) return element;
    const fresh = elementOf(block);
    element.replaceWith(fresh);
    return fresh;
  };

  /** Replaces the blocks from index `from` on. Keeps the elements of blocks whose source did not change. */
  const replace = (from, fresh) => {
    fresh.forEach((block, i) => {
      const old = shown[from + i];
      if (old?.source === block.source) block.element = old.element;
      else if (old) block.element = changed(old.element, block);
      else element.append((block.element = elementOf(block)));
      delete block.tokens;
    });
    for (const { element } of shown.splice(from + fresh.length)) element.remove();
    shown.splice(from, fresh.length, ...fresh);
  };

  const set = (raw, growing = false) => {
    // most calls are for messages that have not changed
    if (raw === last && growing === grew) return;
    const text = raw.replace(/\r\n?/g, '\n');
    if (text === last && growing === grew) return;
    if (growing) wake();
    const MarkdownIt = isAwake && library('markdown', refresh);
    if (!MarkdownIt) {
      plain.set(text);
      if (!plain.element.isConnected) element.replaceChildren(plain.element);
      [last, grew] = [text, growing];
      return;
    }
    parserOf(MarkdownIt);
    plain.element.remove();
    // A block that begins in the last, unfinished line may turn out to be a part of the block before it. Blocks before these two are finished.
    const end = (last ?? '').lastIndexOf('\n');
    const from = growing && grew && text.startsWith(last) ? Math.max(0, shown.findLastIndex((block) => block.at <= end)) : 0;
    const at = shown[from]?.at ?? 0;
    const begin = from ? at : 0;
    const tail = text.slice(begin);
    const env = { growing };
    const fresh = blocks(growing ? mend(tail) : tail, env).map((block) => ({ ...block, at: block.at + begin }));
    // the definition of a link also changes earlier blocks that use it
    const known = Object.keys(env.references ?? {}).length;
    if (!growing && known !== names) for (const block of shown) block.source = null;
    names = growing ? 0 : known;
    replace(from, fresh);
    [last, grew] = [text, growing];
  };

  return { element, set, wake };
};
