// Holds the models of one thread: a worker, or the only thread of an environment without workers (Node, Deno, service workers).

import { InputError } from './errors.js';
import { Hosted } from './hosted.js';

const METHODS = new Set(['tokenize', 'detokenize', 'states', 'export_state', 'import_state', 'fork_state', 'delete_state', 'stats', 'info', 'drain']);

export class Host {
  models = new Map();
  loading = new Map();

  async load(id, source, options, assets, progress) {
    const controller = new AbortController();
    this.loading.set(id, controller);
    const hosted = new Hosted();
    try {
      const info = await hosted.load(source, options, { assets, progress, signal: controller.signal });
      this.models.set(id, hosted);
      return info;
    } finally {
      this.loading.delete(id);
    }
  }

  abort(id) {
    this.loading.get(id)?.abort();
  }

  get(id) {
    const hosted = this.models.get(id);
    if (!hosted) throw new InputError('the model was freed', { kind: 'usage', hint: 'load it again' });
    return hosted;
  }

  async run(id, request, model, send) {
    return this.get(model).run(id, request, send);
  }

  cancel(id) {
    for (const hosted of this.models.values()) hosted.cancel(id);
  }

  call(model, method, args) {
    if (!METHODS.has(method)) throw new InputError(`unknown method ${method}`, { kind: 'usage' });
    return this.get(model).call(method, args);
  }

  async free(id) {
    const hosted = this.models.get(id);
    this.models.delete(id);
    await hosted?.free();
  }
}
