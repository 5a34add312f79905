// Connects the caller with the thread where the models run: a worker of this page, or the caller's own thread.

import { InputError, WingbeatError, unpacked } from './errors.js';

/** A connection to the thread where models run. `calls` has the calls that wait for a result, with the listeners of their events. */
class Link {
  calls = new Map();
  n = 0;
  users = 0;
  /** The error that ended the connection, or null. */
  dead = null;

  constructor(port, onEnd) {
    this.port = port;
    this.onEnd = onEnd;
    port.onmessage = ({ data }) => this.hear(data);
  }

  hear({ id, result, error, event, progress, fatal }) {
    if (fatal) {
      const error = unpacked(fatal);
      // the next load starts a new worker; the caller's own thread cannot start the module again
      if (!this.onEnd) error.hint = 'start the page or the program again';
      return this.fail(error);
    }
    const call = this.calls.get(id);
    if (!call) return;
    if (event !== undefined) return call.onEvent?.(event);
    if (progress !== undefined) return call.onProgress?.(progress);
    this.calls.delete(id);
    if (error) call.reject(unpacked(error));
    else call.resolve(result);
  }

  /** Sends a call. Returns its number and a promise of its result. */
  begin(call, args, { onEvent, onProgress, transfer = [] } = {}) {
    if (this.dead) throw this.dead;
    const id = ++this.n;
    const result = new Promise((resolve, reject) => this.calls.set(id, { resolve, reject, onEvent, onProgress }));
    try {
      this.port.postMessage({ id, call, args }, transfer);
    } catch (cause) {
      this.calls.delete(id);
      throw new InputError(`this cannot be sent to the worker: ${cause.message}`, { kind: 'usage', cause, hint: 'use plain values, files and bytes' });
    }
    return { id, result };
  }

  async call(name, args, options) {
    return this.begin(name, args, options).result;
  }

  /** Counts one more model that uses the connection. */
  hold() {
    this.users += 1;
  }

  /** Counts one model less. A worker without models ends, because the memory of WebAssembly never shrinks. */
  release() {
    this.users -= 1;
    if (this.users === 0 && !this.dead && this.onEnd) this.fail(new InputError('the model was freed', { kind: 'usage', hint: 'load it again' }));
  }

  /** Ends all calls with an error, and ends a worker. The next load then starts a new worker. */
  fail(error) {
    this.dead ??= error;
    for (const { reject } of this.calls.values()) reject(error);
    this.calls.clear();
    this.onEnd?.();
  }
}

let serve = null;

/** Sets the function `serve` of serve.js, for environments that cannot import it later. */
export const useServe = (given) => {
  serve = given;
};

/** Two connected ports in one thread. Unlike the ports of a MessageChannel, they copy nothing and do not keep Node alive. */
class PairOfPorts {
  port1 = { postMessage: (data) => queueMicrotask(() => this.port2.onmessage?.({ data })) };
  port2 = { postMessage: (data) => queueMicrotask(() => this.port1.onmessage?.({ data })) };
}

const inPlace = async () => {
  serve ??= (await import('./serve.js')).serve;
  const { port1, port2 } = new PairOfPorts();
  serve(port2);
  return new Link(port1);
};

const ofPolicy = "a content security policy may forbid it: allow `worker-src blob:`, or name the address of the package's worker.js with `worker`";

const inWorker = async (address) => {
  let url = address;
  if (!url) {
    const { default: text } = await import('./worker-text.js');
    url = URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
  }
  let worker;
  const cannot = (cause) => new WingbeatError(`the worker cannot run: ${cause ?? 'it was not loaded'}`, { kind: 'internal', hint: address ? 'check the address in `worker`' : ofPolicy });
  try {
    worker = new Worker(url, { type: 'module', name: 'wingbeat' });
  } catch (error) {
    throw cannot(error.message);
  }
  const link = new Link(worker, () => {
    worker.terminate();
    links.delete(address);
  });
  worker.onerror = (event) => {
    event.preventDefault?.();
    link.fail(cannot(event.message));
  };
  return link;
};

/** Promises of the links of this page, by the address of their worker, or `false` for the link to the page's own thread. */
const links = new Map();

/**
 * Returns the link to the worker at `address`. With `false`, models run in the caller's thread. Without an address, the worker comes from the
 * package.
 */
export const linkTo = (address) => {
  const hasWorkers = typeof Worker !== 'undefined' && typeof document !== 'undefined';
  const key = address === false || !hasWorkers ? false : String(address ?? '');
  if (!links.has(key)) {
    const link = key === false ? inPlace() : inWorker(key);
    links.set(key, link);
    link.catch(() => links.delete(key));
  }
  return links.get(key);
};
