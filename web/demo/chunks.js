// Turns the events of the package into the chunks of the server's stream, which the page reads.

/** Request fields that only a server uses. Without `session_id`, the engine's prefix cache still finds the text of a conversation. */
const OF_SERVERS = new Set(['model', 'session_id', 'stream', 'stream_options', 'resumable']);

/** Returns the page's request without the fields that only a server uses. */
export const requestOf = (body) => Object.fromEntries(Object.entries(body).filter(([name]) => !OF_SERVERS.has(name)));

const deltaOf = (event) => {
  switch (event.type) {
    case 'text':
      return { content: event.text };
    case 'thought':
      return { reasoning_content: event.text };
    case 'call':
      return { tool_calls: [{ index: event.call, id: `call_${event.call}`, type: 'function', function: { name: event.name, arguments: '' } }] };
    case 'arguments':
      return { tool_calls: [{ index: event.call, function: { arguments: event.text } }] };
    default:
      return null;
  }
};

/** Returns a function that turns an event into a chunk, or into `null` if the page does not use the event. `model` is the name in the chunks. */
export const chunker = (model) => {
  const began = performance.now();
  return (event) => {
    if (event.type === 'progress') {
      const { processed_tokens: processed, prompt_tokens: total, cached_tokens: cache } = event;
      return { model, choices: [], prompt_progress: { processed, total, cache, time_ms: performance.now() - began } };
    }
    if (event.type === 'done') {
      const { index, finish_reason, seed, timings, usage } = event;
      return {
        model,
        choices: [{ index, delta: {}, finish_reason, seed, timings }],
        usage: { ...usage, prompt_tokens_details: { cached_tokens: usage.cached_tokens } },
      };
    }
    const delta = deltaOf(event);
    return delta && { model, choices: [{ index: event.index, delta, finish_reason: null }] };
  };
};
