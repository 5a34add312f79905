// Holds a conversation as a tree of messages. Data and functions only; a conversation is what the browser's storage and downloaded files contain.
//
// A branch is a path from a root to a leaf. Each answer has a `session`: the name under which the server keeps the state after the answer.

const id = () => Array.from(crypto.getRandomValues(new Uint8Array(10)), (byte) => (byte % 36).toString(36)).join('');

/** Returns an empty conversation that begins with the model, system prompt and settings of `like`, and after the saved state `state`. */
export const create = (like = null, state = null) => ({
  version: 1,
  id: id(),
  title: '',
  created: Date.now(),
  updated: Date.now(),
  model: like?.model ?? '',
  system: state ? '' : (like?.system ?? ''),
  settings: { ...like?.settings },
  state,
  next: 1,
  head: null,
  nodes: [],
});

// long conversations have thousands of nodes, and a path looks up each of its nodes
const indexes = new WeakMap();
const byId = (c) => {
  let known = indexes.get(c.nodes);
  if (known?.size !== c.nodes.length) indexes.set(c.nodes, (known = new Map(c.nodes.map((node) => [node.id, node]))));
  return known;
};

export const get = (c, id) => byId(c).get(id) ?? null;
export const children = (c, id) => c.nodes.filter((node) => node.parent === id);
export const siblings = (c, node) => children(c, node.parent);

/** Returns the nodes from the root to the node `id`. */
export const path = (c, id = c.head) => {
  const nodes = [];
  for (let node = get(c, id); node; node = get(c, node.parent)) nodes.push(node);
  return nodes.reverse();
};

/** Appends a message to the node `parent` (`null`: a root) and makes it the head. */
export const add = (c, parent, role, content) => {
  const node = { id: `n${c.next++}`, parent, role, content, created: Date.now() };
  c.nodes.push(node);
  c.head = node.id;
  visit(c);
  return node;
};

/** Removes a node and everything below it. If the head is removed, the node's parent becomes the head. */
export const remove = (c, id) => {
  const gone = new Set([id]);
  for (const node of c.nodes) if (gone.has(node.parent)) gone.add(node.id);
  const parent = get(c, id)?.parent ?? null;
  c.nodes = c.nodes.filter((node) => !gone.has(node.id));
  if (gone.has(c.head)) c.head = parent;
};

/** Adds removed nodes again, and makes `head` the head. */
export const restore = (c, nodes, head) => {
  const kept = new Set(nodes);
  c.nodes = [...nodes, ...c.nodes.filter((node) => !kept.has(node))];
  c.head = head;
};

/** Returns the answers that the server may still be generating: the page was closed before it received their end. */
export const openAnswers = (c) => c.nodes.filter((node) => node.role === 'assistant' && !node.finish && node.answer);

export const isOpen = (c) => openAnswers(c).length > 0;

/** Returns whether any message has more than one successor, or the conversation more than one root. */
export const hasBranches = (c) => new Set(c.nodes.map((node) => node.parent)).size < c.nodes.length;

const visit = (c) => {
  for (const node of path(c)) {
    const parent = get(c, node.parent);
    if (parent) parent.last = node.id;
  }
};

/** Makes a branch through the node `id` current. Below this node, follows the branch that was visited last. */
export const select = (c, id) => {
  let node = get(c, id);
  for (;;) {
    const below = children(c, node.id);
    if (!below.length) break;
    node = below.find((child) => child.id === node.last) ?? below.at(-1);
  }
  c.head = node.id;
  visit(c);
};

/** Returns the sibling `step` places after the node, or `null`. */
export const sibling = (c, node, step) => {
  const all = siblings(c, node);
  return all[all.indexOf(node) + step] ?? null;
};

/** Returns a file as a block of code, with a fence that the file does not contain. */
const fenced = ({ name, text }) => {
  let fence = '```';
  while (text.includes(fence)) fence += '`';
  return `File ${name}:\n${fence}\n${text.trimEnd()}\n${fence}`;
};

/** Returns the text of a user's message for the model. Files come before the question, so another question about them reuses their prefill. */
const whole = ({ content, files = [] }) => (files.length ? [...files.map(fenced), content].join('\n\n').trimEnd() : content);

/**
 * Returns the messages of the branch that ends at `id`, as the API takes them. Answers without content are left out, except a last answer that
 * has only a thought. With `after`, only the messages after this node.
 */
export const messages = (c, id, after = null) => {
  const list = c.system.trim() && !after ? [{ role: 'system', content: c.system }] : [];
  const nodes = path(c, id);
  for (const node of nodes.slice(nodes.indexOf(after) + 1)) {
    if (node.role === 'user') list.push({ role: 'user', content: whole(node) });
    else if (node.content || node.tools?.length || (node.id === id && node.reasoning)) {
      list.push({
        role: 'assistant',
        content: node.content,
        ...(node.reasoning && { reasoning_content: node.reasoning }),
        ...(node.tools?.length && { tool_calls: node.tools }),
      });
    }
  }
  return list;
};

/** Returns whether the server's state of the node's session ends with this answer. */
export const isTip = (c, node) =>
  Boolean(node?.session && node.finish && !['stopped', 'lost', 'error'].includes(node.finish)) &&
  !c.nodes.some((other) => other.session === node.session && c.nodes.indexOf(other) > c.nodes.indexOf(node));

/** Returns the previous answer if the state of its session ends with it, otherwise `null`. A new answer can then continue this session. */
export const continued = (c, answer) => {
  const before = path(c, answer.parent).findLast((node) => node.role === 'assistant');
  return before && isTip(c, before) ? before : null;
};

/** Returns the name of the session that an answer begins. Each answer has its own name, so the other branches keep their sessions and states. */
export const newSession = (c, answer) => `page-${c.id}-${answer.id}`;

/** Returns the id of the conversation for which a state is kept, or `null` if the state is not a session of this page. */
export const ownerOf = (session) => /^page-([a-z0-9]+)-/.exec(session)?.[1] ?? null;

/** Returns the names of all sessions. */
export const sessions = (c) => [...new Set(c.nodes.map((node) => node.session).filter(Boolean))];

/** Returns the title: the user's, or the beginning of the first message. */
export const title = (c) => {
  if (c.title) return c.title;
  const [first] = c.nodes;
  const text = (first?.content.trim() || first?.files?.[0].name || '').replace(/\s+/g, ' ');
  return text ? (text.length > 60 ? `${text.slice(0, 59)}…` : text) : 'New conversation';
};

/** Returns the conversation of a file's text under a new id. Throws an error that names what is wrong. */
export const parse = (text) => {
  let c;
  try {
    c = JSON.parse(text);
  } catch {
    throw new Error('The file is not JSON. Choose a file that this page downloaded.');
  }
  const text_or_none = (value) => value === undefined || value === null || typeof value === 'string';
  const files_or_none = (value = []) => Array.isArray(value) && value.every((file) => typeof file?.name === 'string' && typeof file.text === 'string');
  const known = new Set();
  const fits =
    c?.version === 1 &&
    Array.isArray(c.nodes) &&
    [c.title, c.model, c.system, c.state].every(text_or_none) &&
    c.nodes.every((node) => {
      const good =
        typeof node?.id === 'string' &&
        !known.has(node.id) &&
        (node.parent === null || known.has(node.parent)) &&
        ['user', 'assistant'].includes(node.role) &&
        typeof node.content === 'string' &&
        text_or_none(node.reasoning) &&
        files_or_none(node.files);
      known.add(node?.id);
      return good;
    });
  if (!fits) throw new Error('The file is not a conversation of wingbeat. Choose a file that this page downloaded.');
  const head = known.has(c.head) ? c.head : (c.nodes.at(-1)?.id ?? null);
  const number = (id) => Number(/^n(\d+)$/.exec(id)?.[1] ?? 0);
  const nodes = c.nodes.map(({ session, answer, after, ...node }) => ({ ...node, tools: Array.isArray(node.tools) ? node.tools : undefined }));
  const next = 1 + Math.max(0, ...nodes.map((node) => number(node.id)));
  const settings = c.settings && typeof c.settings === 'object' ? c.settings : {};
  return { ...create({ model: c.model, settings }, c.state ?? null), system: c.system ?? '', title: c.title ?? '', next, head, nodes };
};
