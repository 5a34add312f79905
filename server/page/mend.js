// Completes the end of a growing Markdown text for the time until the rest arrives: a half-written table is a table, and marks do not flash.

// a model that repeats a mark for ever must not make the page slow
const LONGEST = 5000;

// a line of backticks or tildes that begins or ends a code block, also in a list or a quotation
const FENCE = /^[\s>]*(?:(?:[-*+]|\d+[.)])\s+)?(`{3,}|~{3,})([^`]*)$/;

/** Returns the mark of the code block that is open at the end of the lines, or `null`. */
const openFence = (lines) => {
  let fence = null;
  for (const line of lines) {
    const found = FENCE.exec(line);
    if (!found) continue;
    if (!fence) fence = found[1];
    else if (found[1].startsWith(fence) && !found[2].trim()) fence = null;
  }
  return fence;
};

const cells = (row) => row.trim().replace(/^\||\|$/g, '').replace(/\\\|/g, '').split('|').length;
const rule = (row) => `|${'---|'.repeat(cells(row))}`;

/** Completes the rule below the head of a table. Returns `null` if the lines do not begin a table, or already have rows. */
const table = (lines) => {
  const [head, below, ...rows] = lines;
  if (!head.trim().startsWith('|') || head.trim().length < 3 || rows.length) return null;
  if (below === undefined) return [head, rule(head)];
  return /^[\s|:-]*$/.test(below) ? [head, rule(head)] : null;
};

/** Closes marks that are open at the end of a paragraph. */
const marks = (text) => {
  // an unfinished link shows its label only, and a mark at the end is hidden until text follows
  text = text.replace(/!?\[([^\]\n]*)\]\([^)\n]*$/, '$1').replace(/(^|\s)(\*{1,3}|_{1,2}|~~|`{1,2})$/, '$1');
  const plain = text.replace(/(`+)[^`]+\1(?!`)/g, '');
  const tick = /`+/.exec(plain)?.[0];
  if (tick) return plain.endsWith('`') ? text : `${text}${tick}`;
  if ((plain.match(/\*\*/g)?.length ?? 0) % 2 === 0) return text;
  return text.endsWith('*') ? `${text}*` : `${text.trimEnd()}**`;
};

/** Returns the text with its end completed. */
export const mend = (text) => {
  const lines = text.split('\n');
  const last = lines.at(-1);
  const fence = openFence(lines);
  if (fence) return openFence(lines.slice(0, -1)) && /^ {0,3}[`~]+$/.test(last) ? lines.slice(0, -1).join('\n') : text;
  const from = lines.findLastIndex((line) => !line.trim() || FENCE.test(line)) + 1;
  const paragraph = lines.slice(from);
  if (!paragraph.length || paragraph.join('\n').length > LONGEST) return text;
  const done = table(paragraph) ?? marks(paragraph.join('\n')).split('\n');
  return [...lines.slice(0, from), ...done].join('\n');
};
