// Formulas in Markdown: $…$, $$…$$, \(…\) and \[…\]. Finds them in a text, and makes MathML elements.

import { el } from './dom.js';

const INLINE = [
  { open: '$$', close: '$$', display: true },
  { open: '\\[', close: '\\]', display: true },
  { open: '\\(', close: '\\)', display: false },
];

/** Returns the end of `$…$` at `pos`, or -1. In prices such as `$5 and $10`, a space precedes the second dollar or a digit follows it. */
const endOfDollars = (src, pos) => {
  const found = /\$(?![\s$])(?:\\.|[^$\\\n])*?(?<!\s)\$(?!\d)/y;
  found.lastIndex = pos;
  return found.exec(src) ? found.lastIndex : -1;
};

const inline = (state, silent) => {
  const { src, pos } = state;
  if (src[pos] !== '$' && src[pos] !== '\\') return false;
  const kind = INLINE.find(({ open }) => src.startsWith(open, pos));
  let [from, to, end] = [0, 0, 0];
  if (kind) {
    from = pos + kind.open.length;
    to = src.indexOf(kind.close, from);
    end = to + kind.close.length;
  } else if (src[pos] === '$') {
    from = pos + 1;
    end = endOfDollars(src, pos);
    to = end - 1;
  }
  if (to <= from || end > state.posMax || !src.slice(from, to).trim()) return false;
  if (!silent) {
    const token = state.push('formula', '', 0);
    token.content = src.slice(from, to);
    token.meta = { display: Boolean(kind?.display), open: false };
  }
  state.pos = end;
  return true;
};

/** Reads a display formula that shares its lines with no other text. Accepts a missing end only while the text grows: the end may still arrive. */
const block = (state, start, end, silent) => {
  const line = (n) => state.src.slice(state.bMarks[n] + state.tShift[n], state.eMarks[n]);
  if (state.sCount[start] - state.blkIndent >= 4) return false;
  const kind = INLINE.find(({ open, display }) => display && line(start).startsWith(open));
  if (!kind) return false;
  const lines = [];
  let open = true;
  let at = start;
  for (let rest = line(start).slice(kind.open.length); ; rest = line(at)) {
    const found = rest.indexOf(kind.close);
    at += 1;
    lines.push(found < 0 ? rest : rest.slice(0, found));
    if (found >= 0) {
      // text in the same line makes it an inline formula
      if (rest.slice(found + kind.close.length).trim()) return false;
      open = false;
      break;
    }
    if (at >= end || (line(at) && state.sCount[at] < state.blkIndent)) break;
  }
  if (open && !state.env.growing) return false;
  if (silent) return true;
  const token = state.push('formula', '', 0);
  token.block = true;
  token.content = lines.join('\n');
  token.map = [start, at];
  token.meta = { display: true, open };
  state.line = at;
  return true;
};

/** Adds the rules to a Markdown parser. */
export const addFormulas = (md) => {
  md.inline.ruler.before('escape', 'formula', inline);
  md.block.ruler.before('fence', 'formula', block, { alt: ['paragraph', 'reference', 'blockquote', 'list'] });
};

/** Makes the element of a formula: MathML, or its source while it is incomplete or wrong. `need(name)` returns a library or `null`. */
export const formula = (tex, { display, open }, need) => {
  const source = () => el('code', { class: 'tex', dir: 'ltr' }, tex.trim());
  // a wide formula scrolls, so keyboards must reach it
  const scrolls = display ? { tabindex: '0', role: 'group', 'aria-label': 'Formula' } : {};
  const holder = el('span', { class: display ? 'formula display' : 'formula', dir: 'ltr', ...scrolls });
  const maths = open ? null : need('maths');
  if (!maths) {
    holder.append(source());
    return holder;
  }
  try {
    maths.render(tex, holder, { displayMode: display, throwOnError: true, trust: false, maxExpand: 500, maxSize: [20, 1000], annotate: false });
  } catch {
    holder.replaceChildren(source());
  }
  return holder;
};
