// Faults: lost devices, a module that stops, texts that nobody reads, loads that are stopped at any moment, broken packages.

import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { join } from 'node:path';
import { launch, open, watchDevices } from './browser.mjs';
import { serve } from './server.mjs';
import { HASH, PIECE, tiny, tinyAt } from './tiny.mjs';

let browser, server, page;

before(async () => {
  browser = await launch();
  // a worker that traps when the page asks, as a panic of the module does
  const trap = Buffer.from(`import '/pkg/worker.js'; new BroadcastChannel('trap').onmessage = () => Promise.reject(new WebAssembly.RuntimeError('unreachable'));`);
  server = await serve({ '/pkg': join(import.meta.dirname, '../pkg'), '/tiny': tiny, '/trap.js': () => trap, '/nothing': () => null });
});
after(async () => {
  await browser?.close();
  await server?.close();
});
beforeEach(async () => {
  await page?.close();
  page = await open(browser, server.url);
  server.fault = null;
  await page.evaluate(async (files) => {
    globalThis.wingbeat = await import('/pkg/index.js');
    globalThis.files = files;
    globalThis.endless = { prompt: 'Once upon a time', max_tokens: -1, ignore_eos: true, temperature: 0 };
    globalThis.failed = async (work) => {
      try {
        return { result: await work() };
      } catch (error) {
        return { name: error.name, message: error.message, hint: error.hint, kind: error.kind, retry: error.retry };
      }
    };
  }, tinyAt(server.url));
});

const run = async (work, ...args) => {
  const found = await page.evaluate(work, ...args);
  assert.deepEqual(page.failures, []);
  return found;
};

test('all requests of a lost device say that they can be sent again', async () => {
  await watchDevices(page);
  const found = await run(async () => {
    const model = await wingbeat.load(files, { device: 'gpu', worker: false, slots: 2, selfTest: false });
    const ask = () => model.generate({ prompt: 'Once upon', max_tokens: 4, temperature: 0 }).text();
    const before = await ask();
    const texts = [0, 1].map(() =>
      failed(async () => {
        for await (const event of model.generate(endless)) if (event.type === 'text') devices.at(-1).destroy();
      }),
    );
    const errors = await Promise.all(texts);
    const after = await ask();
    const again = await failed(async () => {
      for await (const event of model.generate(endless)) if (event.type === 'text') devices.at(-1).destroy();
    });
    return { before, after, errors, again, n: devices.length };
  });
  assert.equal(found.after, found.before);
  assert.deepEqual(found.errors.map(({ name, retry }) => [name, retry]), [['DeviceError', true], ['DeviceError', true]], JSON.stringify(found.errors));
  // a device that is lost twice in a short time is not replaced again
  assert.deepEqual([found.again.name, found.again.retry, found.n], ['DeviceError', false, 2]);
});

test('a module that stops ends its calls, and the next load gets a new worker', async () => {
  const found = await run(async () => {
    const model = await wingbeat.load(files, { device: 'cpu', worker: '/trap.js' });
    const channel = new BroadcastChannel('trap');
    const text = await failed(async () => {
      for await (const event of model.generate(endless)) if (event.type === 'text') channel.postMessage(0);
    });
    const later = await failed(() => model.tokenize('a'));
    const free = await failed(() => model.free());
    const other = await wingbeat.load(files, { device: 'cpu', worker: '/trap.js' });
    return { text, later, free, alive: (await other.tokenize('a')).length };
  });
  assert.match(found.text.message, /the module stopped/);
  assert.equal(found.text.hint, 'load the model again');
  assert.match(found.later.message, /the module stopped/);
  assert.equal(found.free.message, undefined);
  assert.equal(found.alive, 1);
});

test('free() ends a text that nobody reads', async () => {
  const found = await run(async () => {
    const model = await wingbeat.load(files, { device: 'cpu' });
    const answer = model.generate(endless);
    // long enough for more events than are sent ahead of the reader
    await new Promise((done) => setTimeout(done, 1000));
    await model.free();
    await model.free();
    return failed(() => answer.text());
  });
  assert.match(found.message, /freed while it wrote/);
});

test('a worker without models ends, and the memory with it', async () => {
  const workers = () => page.workers().length;
  const load = () =>
    run(async () => {
      globalThis.models = [await wingbeat.load(files, { device: 'cpu' }), await wingbeat.load(files, { device: 'cpu' })];
      await failed(() => wingbeat.load(files, { device: 'cpu', quant: 'i5' }));
      return models[1].tokenize('a');
    });
  const free = (i) => run((i) => models[i].free(), i);
  await load();
  assert.equal(workers(), 1);
  await free(0);
  assert.equal(workers(), 1);
  await free(1);
  await free(1);
  for (let i = 0; i < 100 && workers(); i++) await new Promise((done) => setTimeout(done, 20));
  assert.equal(workers(), 0);
  assert.match((await run(() => failed(() => models[1].tokenize('a')))).message, /was freed/);
  await load();
  assert.equal(workers(), 1);
});

test('an answer that nobody reads waits, and goes on when it is read', async () => {
  const n = await run(async () => {
    const model = await wingbeat.load(files, { device: 'cpu' });
    const answer = model.generate({ ...endless, max_tokens: 300 });
    await new Promise((done) => setTimeout(done, 800));
    const done = await answer.done();
    await model.free();
    return done.tokens.length;
  });
  assert.equal(n, 300);
});

test('a load is stopped at any moment, and the next one works', async () => {
  const found = await run(async (pieceBytes) => {
    const names = [];
    for (const stage of ['at once', 'soon', 'download', 'weights']) {
      await wingbeat.cache.remove();
      const controller = new AbortController();
      const onProgress = (event) => event.stage === stage && controller.abort();
      if (stage === 'at once') controller.abort();
      if (stage === 'soon') setTimeout(() => controller.abort(), 0);
      const { name, result } = await failed(() => wingbeat.load(files, { device: 'cpu', pieceBytes, signal: controller.signal, onProgress }));
      names.push(name ?? typeof result);
    }
    const model = await wingbeat.load(files, { device: 'cpu', pieceBytes });
    return { names, hash: model.info.weights_hash, locks: (await navigator.locks.query()).held.length };
  }, PIECE);
  assert.deepEqual(found, { names: ['AbortError', 'AbortError', 'AbortError', 'AbortError'], hash: HASH, locks: 0 });
});

test('a missing module, worker or option is named', async () => {
  const found = await run(async () => [
    await failed(() => wingbeat.load(files, { device: 'cpu', wasm: '/nothing/a.wasm' })),
    await failed(() => wingbeat.load(files, { worker: '/nothing/worker.js' })),
    await failed(() => wingbeat.load(files, { qaunt: 'i8' })),
    await failed(() => wingbeat.load({ files: () => 1 })),
    await failed(async () => (await wingbeat.load(files, { device: 'cpu' })).info.weights_hash),
  ]);
  assert.match(found[0].message, /nothing\/a\.wasm cannot be loaded/);
  assert.match(found[1].hint, /check the address in `worker`/);
  assert.match(found[2].message, /unknown option qaunt/);
  assert.match(found[3].message, /cannot be sent to the worker/);
  assert.equal(found[4].result, HASH);
});

test('two tabs: the second one says that it waits', async () => {
  const other = await open(browser, server.url);
  const tell = async (tab) =>
    tab.evaluate(async (files, pieceBytes) => {
      const wingbeat = await import('/pkg/index.js');
      await wingbeat.cache.remove();
      const stages = new Set();
      const model = await wingbeat.load(files, { device: 'cpu', pieceBytes, onProgress: ({ stage }) => stages.add(stage) });
      return [model.info.weights_hash, stages.has('wait')];
    }, tinyAt(server.url), PIECE);
  const both = await Promise.all([tell(page), tell(other)]);
  await other.close();
  assert.deepEqual(both.map(([hash]) => hash), [HASH, HASH]);
});
