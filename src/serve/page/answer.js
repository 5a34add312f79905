// Requests one answer and fills its node while chunks arrive.

import * as api from './api.js';
import { messages, session } from './tree.js';

const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p', 'presence_penalty', 'frequency_penalty', 'repeat_penalty', 'max_tokens', 'seed'];

/** Returns the body of the request for `node`. Throws if the JSON schema of the settings is not JSON. */
export const request = (c, node) => {
  const body = { messages: messages(c, node.parent), stream: true, stream_options: { include_usage: true }, session_id: session(c, node) };
  if (c.model) body.model = c.model;
  if (c.state) body.state = c.state;
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

/** Adds a chunk to the node. Returns whether the chunk has text, which is a token in most cases. */
const addChunk = (node, chunk) => {
  node.model = chunk.model ?? node.model;
  node.usage = chunk.usage ?? node.usage;
  node.timings = chunk.timings ?? node.timings;
  const choice = chunk.choices?.[0];
  if (!choice) return false;
  const delta = choice.delta ?? {};
  if (delta.content) node.content += delta.content;
  if (delta.reasoning_content) node.reasoning = (node.reasoning ?? '') + delta.reasoning_content;
  for (const part of delta.tool_calls ?? []) addToolCall(node, part);
  node.finish = choice.finish_reason ?? node.finish;
  node.seed = choice.seed ?? chunk.seed ?? node.seed;
  return Boolean(delta.content || delta.reasoning_content || delta.tool_calls?.length);
};

/** Returns the tokens per second of decoding: the server's times if the answer has them, otherwise the page's. */
const rate = (node, texts, seconds) => {
  const tokens = node.usage?.completion_tokens ?? texts;
  const decode = node.timings?.decode_ms / 1000 || seconds;
  return decode > 0 && tokens > 1 ? tokens / decode : null;
};

/**
 * Fills `node` until the answer ends, `signal` aborts it or an error occurs. The node's `finish` is then the server's reason, `stopped` or
 * `error`. `changed(text)` is called after each chunk; `text` is the new part of the content. Returns the error, or `null`.
 */
export const fill = async (c, node, { signal, changed, token }) => {
  let texts = 0;
  let first = 0;
  try {
    const body = request(c, node);
    node.session = body.session_id;
    for await (const chunk of api.chat(body, signal)) {
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
