// Requests one answer and fills its node while chunks arrive. A lost connection is opened again where the backend keeps the answer.
//
// While an answer is incomplete, its node has `answer`, the server's id, and `after`, the number of the last event in the node. Both are stored with
// the text, so a reload continues after exactly this event.

import { backend } from './backend.js';
import { continued, messages, newSession } from './tree.js';

const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p', 'presence_penalty', 'frequency_penalty', 'repeat_penalty', 'max_tokens', 'seed'];

/** Milliseconds before each attempt to connect again. */
const WAITS = [300, 1000, 2000, 4000, 8000];

/**
 * Returns the messages of a request and the names of its states. For a session, the server finds the state by the text of the messages. In a
 * conversation that began in a saved state, the page lacks the text before that state. So it names the state and sends only the later messages.
 */
const memory = (c, node, previous) => {
  const name = previous?.session ?? newSession(c, node);
  if (!c.state) return { messages: messages(c, node.parent), session_id: name };
  return { messages: messages(c, node.parent, previous), state: previous ? name : c.state, save_state: name };
};

/** Like `memory`, for a request that extends the answer `node`. The server may have no state that ends within an answer, so all messages are sent. */
const memoryWithin = (c, node) => {
  const name = node.session ?? newSession(c, node);
  const list = messages(c, node.id);
  return c.state ? { messages: list, state: c.state, save_state: name } : { messages: list, session_id: name };
};

const settings = (c) => {
  const body = {};
  if (c.model) body.model = c.model;
  for (const name of NUMBERS) {
    const value = c.settings[name] ?? '';
    if (value !== '') body[name] = Number(value);
  }
  if (c.settings.preset) body.preset = c.settings.preset;
  if (c.settings.thinking) body.thinking = c.settings.thinking;
  if (c.settings.schema?.trim()) {
    body.response_format = { type: 'json_schema', json_schema: { name: 'answer', schema: JSON.parse(c.settings.schema) } };
  }
  return body;
};

/** Returns the body of a request. Older servers ignore the last two fields. */
const request = (c, part) => ({
  ...part,
  ...settings(c),
  stream: true,
  stream_options: { include_usage: true },
  return_progress: true,
  ...(backend.resumes && { resumable: true }),
});

const addToolCall = (node, part) => {
  node.tools ??= [];
  const index = part.index ?? node.tools.length;
  const call = (node.tools[index] ??= { id: '', type: 'function', function: { name: '', arguments: '' } });
  call.id = part.id ?? call.id;
  call.function.name += part.function?.name ?? '';
  call.function.arguments += part.function?.arguments ?? '';
};

const addThought = (node, text) => {
  node.reasoning = (node.reasoning ?? '') + text;
  node.thought ??= { from: Date.now() };
};

/** Adds a chunk to the node. Returns whether the chunk has text. Such a chunk is usually one token. */
const addChunk = (node, chunk) => {
  node.model = chunk.model ?? node.model;
  node.usage = chunk.usage ?? node.usage;
  const choice = chunk.choices?.[0];
  node.timings = choice?.timings ?? chunk.timings ?? node.timings;
  if (!choice) return false;
  const delta = choice.delta ?? {};
  if (delta.reasoning_content) addThought(node, delta.reasoning_content);
  if (delta.content) node.content += delta.content;
  for (const part of delta.tool_calls ?? []) addToolCall(node, part);
  node.finish = choice.finish_reason ?? node.finish;
  node.seed = choice.seed ?? chunk.seed ?? node.seed;
  if (node.thought && (node.content || node.finish)) node.thought.to ??= Date.now();
  return Boolean(delta.content || delta.reasoning_content || delta.tool_calls?.length);
};

/** Returns the tokens per second of decoding. Uses the server's times if the answer has them, otherwise the times that the page measured. */
const rate = (node, texts, seconds) => {
  const tokens = node.usage?.completion_tokens ?? texts;
  const decode = node.timings?.decode_ms / 1000 || seconds;
  return decode > 0 && tokens > 1 ? tokens / decode : null;
};

/** Yields the events of a new answer. If the server no longer has the state of the session, begins a new session. */
async function* begun(c, node, signal) {
  const previous = continued(c, node);
  for (const from of previous && c.state ? [previous, null] : [previous]) {
    const part = memory(c, node, from);
    node.session = part.session_id ?? part.save_state;
    try {
      yield* backend.chat(request(c, part), signal);
      return;
    } catch (error) {
      if (!from || error.code !== 'state_not_found') throw error;
    }
  }
}

async function* extended(c, node, signal) {
  const part = memoryWithin(c, node);
  node.session = part.session_id ?? part.save_state;
  yield* backend.chat(request(c, part), signal);
}

const SOURCES = {
  begin: begun,
  extend: extended,
  resume: (c, node, signal) => backend.rest(node.answer, node.after, signal),
};

const pause = (ms, signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', () => (clearTimeout(timer), done()), { once: true });
  });

/**
 * Ends a connection. A resumable answer would continue without its connection, so it is cancelled by its id. The id comes with the first event, so
 * the connection stays open until then.
 */
const leave = async (connection, node, next) => {
  if (backend.resumes && !node.answer) {
    const { value } = await next.catch(() => ({}));
    if (value?.chunk.id) backend.cancel(value.chunk.id).catch(() => {});
  }
  connection.abort();
};

/** Yields the events of a source. Throws at once when `signal` aborts. */
async function* received(source, c, node, signal) {
  const connection = new AbortController();
  const events = source(c, node, connection.signal);
  const stopped = new Promise((_, failed) => signal.addEventListener('abort', () => failed(new DOMException('stopped', 'AbortError')), { once: true }));
  stopped.catch(() => {});
  for (;;) {
    const next = events.next();
    try {
      const { value, done } = await Promise.race([next, stopped]);
      if (done) return;
      yield value;
    } catch (error) {
      if (signal.aborted) leave(connection, node, next);
      throw error;
    }
  }
}

/** Yields the events of an answer. After a lost connection, connects again; `live.isLost` is true until the next event. */
async function* reliable(source, c, node, { signal, live, changed }) {
  for (let attempt = 0; ; attempt += 1) {
    let lost;
    try {
      for await (const event of received(source, c, node, signal)) {
        [attempt, live.isLost] = [0, false];
        yield event;
      }
      return;
    } catch (error) {
      if (!error.isLost || signal.aborted) throw error;
      lost = error;
    }
    live.isLost = Boolean(node.answer);
    changed('');
    // waits even before it throws: when a page is closed, its connections end just before the page, and no error must be stored then
    await pause(WAITS[Math.min(attempt, WAITS.length - 1)], signal);
    if (signal.aborted) throw new DOMException('stopped', 'AbortError');
    if (!node.answer || attempt >= WAITS.length) throw lost;
    source = SOURCES.resume;
  }
}

const COUNTS = ['usage', 'timings', 'rate'];
const ENDING = ['finish', 'error', ...COUNTS];

/** Removes the fields that describe the end of an answer. Returns their values, which `fill` restores if the answer cannot be extended. */
const prepare = (node, how) => {
  const before = Object.fromEntries(ENDING.map((name) => [name, node[name]]));
  if (how === 'resume') delete node.error;
  else for (const name of [...ENDING, 'answer', 'after']) delete node[name];
  if (node.thought && !node.content) delete node.thought.to;
  return before;
};

const fail = (node, error) => {
  node.finish = 'error';
  const { message, status = 0, code, type, param, requestId, retryAfter } = error;
  node.error = { message, status, code, type, param, requestId, retryAfter };
};

/**
 * Fills `node` until the answer ends, `signal` aborts it or an error occurs. `how` is `begin`, `extend` (an answer that was cut) or `resume` (an
 * answer that the server still has). The node's `finish` is then the server's reason, `stopped`, `lost` (the server no longer has the answer) or
 * `error`. `changed(text)` is called after each chunk; `text` is the new part of the content. `live` receives the progress; its
 * `addsNothing` becomes true if the model adds no text to an answer that it should extend. Returns the error, or `null`. An answer that cannot be
 * extended stays as it was.
 */
export const fill = async (c, node, how, hooks) => {
  const { signal, live, changed, token } = hooks;
  let texts = 0;
  let first = 0;
  const before = prepare(node, how);
  try {
    for await (const { id, chunk } of reliable(SOURCES[how], c, node, hooks)) {
      const before = node.content.length;
      live.progress = chunk.prompt_progress ?? live.progress;
      if (id !== null) [node.answer, node.after] = [chunk.id ?? node.answer, Number(id)];
      if (addChunk(node, chunk)) {
        live.progress = null;
        texts += 1;
        node.texts = (node.texts ?? 0) + 1;
        // the usage counts only the tokens of the last request, so the page then shows `texts`
        if (how === 'extend') node.extended = true;
        first ||= performance.now();
        token();
      }
      changed(node.content.slice(before));
    }
    node.finish ??= 'stop';
    if (how === 'extend' && !texts) {
      live.addsNothing = node.finish === 'stop';
      // no text was added, so the numbers of the old text are still right
      for (const name of COUNTS) node[name] = before[name];
    }
    return null;
  } catch (error) {
    if (signal.aborted) {
      // otherwise the server would decode the answer to its end
      if (node.answer) backend.cancel(node.answer).catch(() => {});
      node.finish = 'stopped';
      return null;
    }
    if (error.status === 404 && node.answer) {
      node.finish = 'lost';
      return null;
    }
    if (how === 'extend' && !texts && before.finish) {
      Object.assign(node, before);
      return error;
    }
    fail(node, error);
    // keeps the id of the answer: after the user has entered a key, or the server is back, the answer can be resumed
    if (error.status === 401 || error.isLost) return error;
    delete node.answer;
    return error;
  } finally {
    if (node.finish !== 'error') [node.answer, node.after] = [undefined, undefined];
    if (node.thought) node.thought.to ??= Date.now();
    if (texts) node.rate = rate(node, texts, first ? (performance.now() - first) / 1000 : 0);
  }
};
