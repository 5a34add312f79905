// A model in the thread where it runs, with everything that is needed to load the model again after its device was lost.

import { alone } from './cache/lock.js';
import { AbortError, DeviceError, InputError } from './errors.js';
import { gpuName, settled, whyNot } from './gpu.js';
import { checkMemory } from './memory.js';
import { start, thrown, wasm, worldVocabulary } from './module.js';
import { refusal, wrong } from './selftest.js';
import { renamed } from './words.js';
import { find } from './sources/find.js';
import { open } from './sources/open.js';

/** Options of `load` for the WebAssembly module, then options for finding and reading files, then the remaining options. */
const MODEL_OPTIONS = ['device', 'class', 'quant', 'dtype', 'state_dtype', 'cache_dtype', 'activations', 'context', 'chunk', 'deterministic', 'slots', 'max_tokens', 'format', 'prefix_cache', 'speculate', 'draft_tokens'];
const SOURCE_OPTIONS = ['endpoint', 'sideFiles', 'headers', 'cache', 'revalidate', 'integrity', 'pieceBytes'];
const OTHER_OPTIONS = ['log', 'selfTest', 'variables'];

/** With `device: 'auto'`, a model of at most this size runs on the CPU if the GPU computes wrongly. */
const SMALL_BYTES = 500e6;

/** A device that is lost again within this time is not replaced again. */
const RELOAD_MS = 10 * 60_000;

const picked = (options, names) => Object.fromEntries(names.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]));

function checked(options) {
  const known = [...MODEL_OPTIONS, ...SOURCE_OPTIONS, ...OTHER_OPTIONS];
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown) throw new InputError(`unknown option ${unknown}`, { kind: 'usage', field: unknown, hint: `the options are ${known.join(', ')}, onProgress, signal, wasm, world and worker` });
}

const gone = () => new InputError('the model was freed', { kind: 'usage', hint: 'load it again' });

export class Hosted {
  running = new Map();
  stop = new AbortController();
  ending = new Promise((done) => this.stop.signal.addEventListener('abort', done, { once: true }));

  async load(source, options, { assets, progress, signal }) {
    checked(options);
    Object.assign(this, { given: source, options, assets, progress });
    await start(assets.wasm);
    wasm.log_level(options.log ?? 'warn');
    for (const [name, value] of Object.entries(options.variables ?? {})) wasm.set_variable(name, value);
    this.model = await this.open(signal);
    return this.described();
  }

  async open(signal) {
    const { options, progress } = this;
    await settled(options.device);
    const found = await find(this.given, { ...picked(options, SOURCE_OPTIONS), signal });
    this.device = await this.trusted(found, signal);
    const urls = options.cache === false ? [] : found.files.filter((file) => file.url).map((file) => file.url);
    const onWait = () => progress?.({ stage: 'wait', loaded: 0, total: 0 });
    return alone(urls, { signal, onWait }, () => this.openFiles(found, signal));
  }

  async openFiles(found, signal) {
    const { options, assets, progress } = this;
    const world = () => worldVocabulary(assets.world);
    const files = await open(found, { ...picked(options, SOURCE_OPTIONS), signal, world, onDownload: progress });
    let model = null;
    try {
      checkMemory(files.source.files, options.quant);
      const tell = (stage, loaded, total) => signal?.aborted || progress?.({ stage, loaded, total });
      const asked = { ...picked(options, MODEL_OPTIONS), ...(this.device && { device: this.device }) };
      model = await wasm.Model.load(files.source, JSON.stringify(asked), tell);
      if (signal?.aborted) throw new AbortError();
      await files.complete();
      return model;
    } catch (error) {
      model?.free();
      const known = thrown(error, { failure: files.failure, signal });
      const isParsed = Boolean(model || files.failure);
      throw isParsed || known?.kind !== 'file' ? known : await this.dropped(known, files);
    } finally {
      await files.close();
    }
  }

  /** Removes files that cannot be parsed from the cache: a server may have sent a web page, or an older file. Returns the error with a hint. */
  async dropped(error, files) {
    await files.close();
    const isGone = await files.forget(error.message).catch(() => false);
    const hint = 'the file was removed from the cache: check the address, and load it again; `revalidate: true` asks the server whether cached files have changed';
    if (isGone) error.hint = error.hint ? `${error.hint}; ${hint}` : hint;
    return error;
  }

  /**
   * Returns `cpu` if `auto` must not use the GPU: it is only a software adapter, or it computes wrongly and the model is small. Otherwise returns
   * null. Throws if the GPU computes wrongly, and the model is large or the caller chose the GPU.
   */
  async trusted(found, signal) {
    const { device = 'auto', selfTest = true, quant, class: kernels } = this.options;
    this.why = device === 'auto' && !kernels ? await whyNot() : null;
    if (this.why) return 'cpu';
    if (device === 'cpu' || selfTest === false) return null;
    this.progress?.({ stage: 'check', loaded: 0, total: 1 });
    const onCase = (loaded, total) => {
      if (signal?.aborted) throw new AbortError();
      this.progress?.({ stage: 'check', loaded, total });
    };
    const problem = await wrong({ class: kernels, quant, signal, onCase }).catch((error) => {
      throw thrown(error, { signal });
    });
    if (!problem) return null;
    const bytes = found.files.reduce((sum, { size, blob, bytes }) => sum + (size ?? blob?.size ?? bytes?.length ?? 0), 0);
    if (device !== 'auto' || bytes > SMALL_BYTES) throw refusal(problem);
    this.why = 'the GPU computes wrongly';
    this.note = `the GPU computes wrongly and is not used: ${problem}`;
    return 'cpu';
  }

  async described() {
    const info = JSON.parse(this.model.info());
    const { device } = info;
    if (this.note) info.notes.push(this.note);
    if (this.why) device.why = `cpu, because ${this.why}`;
    // in a browser, the module does not see the name of the GPU
    if (device.backend === 'webgpu' && !device.name) {
      device.name = await gpuName();
      device.why = device.why.replace(/^ \(/, `${device.name} (`);
    }
    info.notes = info.notes.map(renamed);
    info.vocab_hint &&= renamed(info.vocab_hint);
    return info;
  }

  /** Returns the model. Waits while a lost device is replaced. Throws if that failed, or if the model was freed. */
  async ready() {
    if (this.reloading) await this.reloading;
    if (this.lost) throw this.lost;
    if (!this.model) throw gone();
    return this.model;
  }

  /** Loads the model again after its device was lost. Returns false if the last reload was less than `RELOAD_MS` ago. States in memory are lost. */
  reload() {
    if (this.reloading) return true;
    if (performance.now() - (this.reloadedAt ?? -Infinity) < RELOAD_MS) return false;
    this.reloadedAt = performance.now();
    const work = async () => {
      const old = this.model;
      this.model = null;
      try {
        const model = await this.open(this.stop.signal);
        if (this.freed) model.free();
        else this.model = model;
      } catch (error) {
        this.lost = error;
        throw error;
      } finally {
        this.reloading = null;
        old?.free();
      }
    };
    this.reloading = work();
    this.reloading.catch(() => {});
    return true;
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
        await Promise.race([send(JSON.parse(event)), this.ending]);
      }
      if (this.freed) throw new AbortError('the model was freed while it wrote', { hint: 'load it again' });
    } catch (error) {
      throw this.ofRequest(thrown(error), model);
    } finally {
      this.running.delete(id);
      generation.free();
    }
  }

  /** Adds to the error of a lost device whether the request can be sent again. Returns other errors unchanged. */
  ofRequest(error, model) {
    if (error?.kind !== 'device' || this.freed) return error;
    // another request on the same device may already have begun the reload
    const again = this.model !== model ? !this.lost : this.reload();
    const hint = again ? 'the model is loaded again: send the request again; states that had names are lost' : 'load the model again';
    return new DeviceError(error.message, { kind: 'device', cause: error, retry: again, hint });
  }

  cancel(id) {
    this.running.get(id)?.cancel();
  }

  async free() {
    this.freed = true;
    this.stop.abort();
    for (const generation of this.running.values()) generation.cancel();
    // a request that waits for its next event needs the module until it ends
    while (this.running.size) await new Promise((done) => setTimeout(done, 1));
    await this.reloading?.catch(() => {});
    this.model?.free();
    this.model = null;
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
