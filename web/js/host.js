// Holds the WebAssembly module and the models: in a worker, or in place where there is none (Node, Deno, service workers).

import init, * as wasm from './wingbeat.js';
import { find, open } from './sources.js';
import { alone } from './cache.js';
import { AbortError, DeviceError, InputError, MemoryError, WingbeatError, unpacked } from './errors.js';
import { refusal, wrong } from './selftest.js';
import { useModule } from './sha256.js';
import { settled } from './gpu.js';
import { isNode, nodeModule } from './node.js';

let started = null;

/** Compiles the module once. `location` is its address. */
const start = (location) => {
  started ??= (async () => {
    if (isNode && String(location).startsWith('file:')) {
      const { readFile } = await nodeModule('fs/promises');
      const { fileURLToPath } = await nodeModule('url');
      await init({ module_or_path: await readFile(fileURLToPath(location)) });
    } else {
      await init({ module_or_path: location });
    }
    useModule(wasm);
  })().catch((cause) => {
    started = null;
    throw new InputError(`the module ${location} cannot be loaded: ${cause?.message ?? cause}`, { kind: 'file', cause, hint: 'serve wingbeat_bg.wasm beside the package, or name its address with `wasm`' });
  });
  return started;
};

const unpack = async (location) => {
  if (isNode && String(location).startsWith('file:')) {
    const { readFile } = await nodeModule('fs/promises');
    const { fileURLToPath } = await nodeModule('url');
    const { gunzipSync } = await nodeModule('zlib');
    return new Uint8Array(gunzipSync(await readFile(fileURLToPath(location))));
  }
  const response = await fetch(location);
  if (!response.ok) throw new InputError(`${location}: the vocabulary of World models cannot be loaded: ${response.status}`, { kind: 'file' });
  const bytes = new Uint8Array(await response.arrayBuffer());
  // a server may have unpacked it on the way
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(unpacked).arrayBuffer());
};

const thrown = (error, failure) => {
  if (failure) return failure;
  if (error instanceof WingbeatError) return error;
  if (error?.kind) return unpacked({ message: error.message, kind: error.kind, field: error.field ?? null, hint: error.hint ?? null });
  if (error instanceof WebAssembly.RuntimeError) {
    const isMemory = /memory|allocat/i.test(error.message);
    const Class = isMemory ? MemoryError : WingbeatError;
    return new Class(`the module stopped: ${error.message}`, { kind: isMemory ? 'memory' : 'internal', cause: error, hint: 'load the model again' });
  }
  return error;
};

/** Models of up to this size run on the CPU if the GPU cannot be trusted. */
const SMALL_BYTES = 500e6;

const isLost = (error) => error?.kind === 'device';

/** The options of `load` that the module takes. */
const MODEL_OPTIONS = ['device', 'class', 'quant', 'dtype', 'state_dtype', 'cache_dtype', 'context', 'chunk', 'deterministic', 'slots', 'max_tokens', 'format', 'prefix_cache'];

/** A model with all that is needed to load it again. */
class Hosted {
  async load(source, options, { assets, progress, signal }) {
    Object.assign(this, { given: source, options, assets, progress, running: new Map(), reloads: 0 });
    await start(assets.wasm);
    wasm.log_level(options.log ?? 'warn');
    for (const [name, value] of Object.entries(options.variables ?? {})) wasm.set_variable(name, value);
    await this.open(signal);
    return this.described();
  }

  async open(signal) {
    const { options, assets, progress } = this;
    const found = await find(this.given, { signal, endpoint: options.endpoint, sideFiles: options.sideFiles, headers: options.headers });
    const urls = found.files.filter((file) => file.url).map((file) => file.url);
    await settled(options.device);
    const device = await this.trusted(found, signal);
    this.model = await alone(options.cache === false ? [] : urls, signal, async () => {
      const files = await open(found, {
        signal,
        cache: options.cache,
        integrity: options.integrity,
        pieceBytes: options.pieceBytes,
        headers: options.headers,
        world: () => unpack(assets.world),
        onDownload: progress,
      });
      const asked = Object.fromEntries(MODEL_OPTIONS.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]));
      if (device) asked.device = device;
      try {
        const model = await wasm.Model.load(files.source, JSON.stringify(asked), (stage, loaded, total) => {
          if (signal?.aborted) return;
          progress?.({ stage, loaded, total });
        });
        if (signal?.aborted) {
          model.free();
          throw new AbortError();
        }
        await files.complete();
        return model;
      } catch (error) {
        throw thrown(error, signal?.aborted ? new AbortError() : files.failure);
      } finally {
        await files.close();
      }
    });
  }

  /** Returns the device in place of the one that was asked for: the CPU if the GPU computes wrongly and the model is small. */
  async trusted(found, signal) {
    const { device = 'auto', selfTest = true, quant, class: kernels } = this.options;
    if (device === 'cpu' || selfTest === false) return null;
    this.progress?.({ stage: 'check', loaded: 0, total: 1 });
    const problem = await wrong({ class: kernels, quant, signal }).catch((error) => {
      throw thrown(error);
    });
    this.progress?.({ stage: 'check', loaded: 1, total: 1 });
    if (!problem) return null;
    const bytes = found.files.reduce((sum, { size, blob, bytes }) => sum + (size ?? blob?.size ?? bytes?.length ?? 0), 0);
    if (device !== 'auto' || bytes > SMALL_BYTES) throw refusal(problem);
    this.note = `the GPU computes wrongly and is not used: ${problem}`;
    return 'cpu';
  }

  described() {
    const info = JSON.parse(this.model.info());
    if (this.note) info.notes.push(this.note);
    return info;
  }

  /** The model, after a lost device is replaced. */
  async ready() {
    if (this.reloading) await this.reloading;
    if (!this.model) throw new InputError('the model was freed', { kind: 'usage', hint: 'load it again' });
    return this.model;
  }

  /** Loads the model again after its device was lost, once. States in memory are lost. */
  reload() {
    this.reloading ??= (async () => {
      this.reloads += 1;
      const old = this.model;
      await this.open();
      old?.free();
    })().finally(() => {
      this.reloading = null;
    });
    this.reloading.catch(() => {});
  }

  /** Runs a request, and calls `send` with each event. Resolves at its end. */
  async run(id, request, send) {
    const model = await this.ready();
    let generation;
    try {
      generation = model.submit(JSON.stringify(request));
    } catch (error) {
      throw thrown(error);
    }
    this.running.set(id, generation);
    try {
      for (;;) {
        const event = await generation.next();
        if (event === undefined) break;
        await send(JSON.parse(event));
      }
      if (this.freed) throw new AbortError('the model was freed while it wrote', { hint: 'load it again' });
    } catch (error) {
      const known = thrown(error);
      if (isLost(known) && !this.freed) {
        const again = this.reloads < 1;
        if (again) this.reload();
        const hint = again ? 'the model is loaded again: send the request again' : 'load the model again';
        throw new DeviceError(known.message, { kind: 'device', cause: known, retry: again, hint });
      }
      throw known;
    } finally {
      this.running.delete(id);
      generation.free();
    }
  }

  cancel(id) {
    this.running.get(id)?.cancel();
  }

  async free() {
    this.freed = true;
    for (const generation of this.running.values()) generation.cancel();
    const model = this.model;
    this.model = null;
    // a generation that is being polled needs the module until its end
    while (this.running.size) await new Promise((done) => setTimeout(done, 1));
    model?.free();
  }

  async call(method, args) {
    const model = await this.ready();
    try {
      return await model[method](...args);
    } catch (error) {
      throw thrown(error);
    }
  }
}

const METHODS = new Set(['tokenize', 'detokenize', 'states', 'export_state', 'import_state', 'fork_state', 'delete_state', 'stats', 'info', 'drain']);

/** The models of one place. */
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
