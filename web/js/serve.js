// Runs models behind a port. Messages: `{id, call, args}` in, `{id, result | error}`, `{id, event | progress}` and `{fatal}` out.

import { Host } from './host.js';
import { packed } from './errors.js';
import { breakDown, isTrap } from './module.js';

/** The number of events of a request that are sent before the reader has taken any event. */
const AHEAD = 64;

/** Listens for traps of tasks for which no call waits, such as the module's scheduler. Reports them as `fatal`. */
function watch(port) {
  const hear = (event) => {
    const error = event.reason ?? event.error;
    if (!isTrap(error)) return;
    event.preventDefault?.();
    port.postMessage({ fatal: packed(breakDown(error)) });
  };
  for (const name of ['unhandledrejection', 'error']) globalThis.addEventListener?.(name, hear);
}

/** Answers the messages of a port. */
export function serve(port) {
  const host = new Host();
  const readers = new Map();
  watch(port);
  const calls = {
    load: (id, { model, source, options, assets }) => host.load(model, source, options, assets, (progress) => port.postMessage({ id, progress })),
    abort: (_, { model }) => host.abort(model),
    async run(id, { model, request }) {
      const reader = { left: AHEAD, wake: null };
      readers.set(id, reader);
      try {
        await host.run(id, request, model, async (event) => {
          port.postMessage({ id, event });
          reader.left -= 1;
          if (reader.left <= 0) await new Promise((wake) => (reader.wake = wake));
        });
      } finally {
        readers.delete(id);
      }
    },
    taken(_, { of, n }) {
      const reader = readers.get(of);
      if (!reader) return;
      reader.left += n;
      if (reader.left > 0) reader.wake?.();
    },
    cancel(_, { of }) {
      host.cancel(of);
      const reader = readers.get(of);
      if (reader) {
        reader.left = Infinity;
        reader.wake?.();
      }
    },
    call: (_, { model, method, args }) => host.call(model, method, args),
    free: (_, { model }) => host.free(model),
  };
  port.onmessage = async ({ data: { id, call, args } }) => {
    try {
      const result = await calls[call](id, args);
      const transfer = result instanceof Uint8Array || result instanceof Uint32Array ? [result.buffer] : [];
      port.postMessage({ id, result }, transfer);
    } catch (error) {
      port.postMessage(error?.isFatal ? { fatal: packed(error) } : { id, error: packed(error) });
    }
  };
}
