// The way to the place where the models run: a worker of this page, or this place itself.

import { InputError, WingbeatError, unpacked } from './errors.js';

/** Calls that wait for an answer, and the listeners of their events. */
class Link {
  constructor(port) {
    this.port = port;
    this.calls = new Map();
    this.n = 0;
    port.onmessage = ({ data }) => this.hear(data);
  }

  hear({ id, result, error, event, progress }) {
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
    const id = ++this.n;
    const result = new Promise((resolve, reject) => this.calls.set(id, { resolve, reject, onEvent, onProgress }));
    try {
      this.port.postMessage({ id, call, args }, transfer);
    } catch (cause) {
      this.calls.delete(id);
      throw new InputError(`this cannot be sent to the worker: ${cause.message}`, { kind: 'usage', cause });
    }
    return { id, result };
  }

  call(name, args, options) {
    return this.begin(name, args, options).result;
  }

  /** Ends all calls with an error. */
  fail(error) {
    for (const { reject } of this.calls.values()) reject(error);
    this.calls.clear();
  }
}

const inPlace = async () => {
  globalThis.wingbeatInPlace = true;
  const { serve } = await import('./worker.js');
  const { port1, port2 } = new PairOfPorts();
  serve(port2);
  return new Link(port1);
};

/** Two ports in one place. Unlike a MessageChannel, they copy nothing and do not keep Node alive. */
class PairOfPorts {
  port1 = { postMessage: (data) => queueMicrotask(() => this.port2.onmessage?.({ data })) };
  port2 = { postMessage: (data) => queueMicrotask(() => this.port1.onmessage?.({ data })) };
}

const inWorker = async (address) => {
  let url = address;
  if (!url) {
    const { default: text } = await import('./worker-text.js');
    url = URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
  }
  const worker = new Worker(url, { type: 'module', name: 'wingbeat' });
  const link = new Link(worker);
  worker.onerror = (event) => {
    event.preventDefault?.();
    const hint = address ? 'check the address in `worker`' : 'a content security policy may forbid it: allow `worker-src blob:`, or name the address of the package\'s worker.js with `worker`';
    link.fail(new WingbeatError(`the worker cannot run: ${event.message ?? 'it was not loaded'}`, { kind: 'internal', hint }));
    links.delete(address ?? '');
  };
  return link;
};

/** The links of this page, by the address of their worker. */
const links = new Map();

/** Returns the link to the worker at `address`. `false` means in place. Without an address, the worker comes from the package. */
export const linkTo = (address) => {
  const hasWorkers = typeof Worker !== 'undefined' && typeof document !== 'undefined';
  const key = address === false || !hasWorkers ? 'in place' : String(address ?? '');
  if (!links.has(key)) links.set(key, key === 'in place' ? inPlace() : inWorker(address ? String(address) : ''));
  return links.get(key);
};
