// Requests one answer and fills its node while chunks arrive.

import * as api from './api.js';
import { continued, messages, newSession } from './tree.js';

const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p', 'presence_penalty', 'frequency_penalty', 'repeat_penalty', 'max_tokens', 'seed'];

/**
 * Returns the messages of a request and the names of its states. For a session, the server finds the state by the text of the messages. In a
 * conversation that began in a saved state, the page lacks the text before that state. So it names the state and sends only the later messages.
 */
const memory = (c, node, previous) => {
  const name = previous?.session ?? newSession(c, node);
  if (!c.state) return { messages: messages(c, node.parent), session_id: name };
  return { messages: messages(c, node.parent, previous), state: previous ? name : c.state, save_state: name };
};

/** Returns the body of the request for `node`. The request continues the session of the answer `previous`, unless `previous` is `null`. */
export const request = (c, node, previous) => {
  const body = { ...memory(c, node, previous), stream: true, stream_options: { include_usage: true } };
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

const addToolCall = (node, part) => {
  node.tools ??= [];
  const index = part.index ?? node.tools.length;
  const call = (node.tools[index] ??= { id: '', type: 'function', function: { name: '', arguments: '' } });
  call.id = part.id ?? call.id;
  call.function.name += part.function?.name ?? '';
  call.function.arguments += part.function?.arguments ?? '';
};

/** Adds a chunk to the node. Returns whether the chunk has text. Such a chunk is usually one token. */
const addChunk = (node, chunk) => {
  node.model = chunk.model ?? node.model;
  node.usage = chunk.usage ?? node.usage;
  const choice = chunk.choices?.[0];
  node.timings = choice?.timings ?? chunk.timings ?? node.timings;
  if (!choice) return false;
  const delta = choice.delta ?? {};
  if (delta.content) node.content += delta.content;
  if (delta.reasoning_content) node.reasoning = (node.reasoning ?? '') + delta.reasoning_content;
  for (const part of delta.tool_calls ?? []) addToolCall(node, part);
  node.finish = choice.finish_reason ?? node.finish;
  node.seed = choice.seed ?? chunk.seed ?? node.seed;
  return Boolean(delta.content || delta.reasoning_content || delta.tool_calls?.length);
};

/** Returns the tokens per second of decoding. Uses the server's times if the answer has them, otherwise the times that the page measured. */
const rate = (node, texts, seconds) => {
  const tokens = node.usage?.completion_tokens ?? texts;
  const decode = node.timings?.decode_ms / 1000 || seconds;
  return decode > 0 && tokens > 1 ? tokens / decode : null;
};

/** Yields the chunks of the answer. If the server no longer has the state of the session, begins a new session. */
async function* chunks(c, node, signal) {
  const previous = continued(c, node);
  for (const from of previous && c.state ? [previous, null] : [previous]) {
    const body = request(c, node, from);
    node.session = body.session_id ?? body.save_state;
    try {
      yield* api.chat(body, signal);
      return;
    } catch (error) {
      if (!from || error.code !== 'state_not_found') throw error;
    }
  }
}

/**
 * Fills `node` until the answer ends, `signal` aborts it or an error occurs. The node's `finish` is then the server's reason, `stopped` or
 * `error`. `changed(text)` is called after each chunk; `text` is the new part of the content. Returns the error, or `null`.
 */
export const fill = async (c, node, { signal, changed, token }) => {
  let texts = 0;
  let first = 0;
  try {
    for await (const chunk of chunks(c, node, signal)) {
      const before = node.content.length;
      if (addChunk(node, chunk)) {
        texts += 1;
        first ||= performance.now();
        token();
      }
      changed(node.content.slice(before));
    }
    node.finish ??= 'stop';
    return null;
  } catch (error) {
    if (signal.aborted) {
      node.finish = 'stopped';
      return null;
    }
    node.finish = 'error';
    const { message, status = 0, code, type, param, requestId, retryAfter } = error;
    node.error = { message, status, code, type, param, requestId, retryAfter };
    return error;
  } finally {
    node.rate = rate(node, texts, first ? (performance.now() - first) / 1000 : 0);
  }
};
