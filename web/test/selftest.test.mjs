// The GPU is compared with the CPU before a model trusts it.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { launch, open } from './browser.mjs';
import { root } from './models.mjs';
import { serve } from './server.mjs';

let browser, server;

before(async () => {
  browser = await launch();
  server = await serve({ '/pkg': join(root, 'web/pkg'), '/tiny': join(root, 'web/pkg-tiny') });
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** Loads the tiny model twice. Returns the stages of both loads, the device, the notes and the error. */
const loads = async ({ isHardware, ...options }) => {
  const context = await browser.createBrowserContext();
  const page = await open(browser, server.url, context);
  const found = await page.evaluate(async (options, isHardware) => {
    if (isHardware) {
      // makes the software adapter of this browser look like a GPU
      const info = { vendor: 'maker', architecture: 'chip', device: '', description: '', isFallbackAdapter: false, subgroupMinSize: 4, subgroupMaxSize: 4 };
      Object.defineProperty(GPUAdapter.prototype, 'info', { get: () => info });
      Object.defineProperty(GPUAdapter.prototype, 'isFallbackAdapter', { get: () => false });
    }
    const wingbeat = await import('/pkg/index.js');
    const files = ['/tiny/small-world.safetensors', '/tiny/vocab.txt'].map((path) => location.origin + path);
    const times = [];
    const cases = [];
    let info = null;
    for (let i = 0; i < 2; i++) {
      let began = 0;
      const onProgress = ({ stage, loaded, total }) => {
        if (stage !== 'check') return;
        cases.push([loaded, total]);
        if (!loaded) began = performance.now();
        else if (loaded === total) times.push(performance.now() - began);
      };
      try {
        const model = await wingbeat.load(files, { cache: false, worker: false, onProgress, ...options });
        info = { backend: model.info.device.backend, notes: model.info.notes, why: model.info.device.why, name: model.info.device.name };
        await model.free();
      } catch (error) {
        info = { name: error.name, message: error.message, hint: error.hint };
      }
    }
    return { times, cases, ...info };
  }, options, isHardware);
  await context.close();
  return found;
};

test('a right GPU passes, and is tested once', async () => {
  const { times, cases, backend, message } = await loads({ device: 'gpu' });
  assert.equal(backend, 'webgpu', message);
  console.log(`  tested in ${(times[0] / 1000).toFixed(1)} s, remembered in ${times[1].toFixed(1)} ms`);
  assert.ok(times[1] < times[0]);
  // the progress of the first test goes from case to case
  const [, total] = cases[1];
  assert.ok(total > 5, JSON.stringify(cases));
  assert.deepEqual(cases.slice(1, total + 1), Array.from({ length: total }, (_, i) => [i + 1, total]));
});

test('auto takes the CPU at once if there is only a software adapter', async () => {
  const { cases, backend, why } = await loads({});
  assert.deepEqual([backend, cases], ['cpu', []]);
  assert.match(why, /^cpu, because only a software adapter was found \(.*swiftshader.*\), which is slower; `device: "gpu"` uses it$/i);
});

test('a test of the GPU can be stopped', async () => {
  const page = await open(browser, server.url, await browser.createBrowserContext());
  const found = await page.evaluate(async () => {
    const wingbeat = await import('/pkg/index.js');
    const files = ['/tiny/small-world.safetensors', '/tiny/vocab.txt'].map((path) => location.origin + path);
    const controller = new AbortController();
    let last = 0;
    const onProgress = ({ stage, loaded, total }) => {
      if (stage === 'check' && loaded) [last] = [loaded / total, controller.abort()];
    };
    const name = await wingbeat.load(files, { device: 'gpu', cache: false, signal: controller.signal, onProgress }).catch((error) => error.name);
    return { name, last };
  });
  await page.browserContext().close();
  assert.equal(found.name, 'AbortError');
  assert.ok(found.last < 0.5, String(found.last));
});

test('a GPU that computes wrongly is refused; auto takes the CPU for a small model', async () => {
  // in a browser, shaders that naga rewrites compute wrong results, as a faulty GPU would
  const variables = { WINGBEAT_WGSL: 'naga' };
  const refused = await loads({ device: 'gpu', variables });
  assert.equal(refused.name, 'DeviceError', JSON.stringify(refused));
  assert.match(refused.message, /computes wrongly: .*expected an error of at most/);
  const replaced = await loads({ variables, isHardware: true });
  assert.equal(replaced.backend, 'cpu', JSON.stringify(replaced));
  assert.match(replaced.notes.join(), /computes wrongly and is not used/);
  assert.equal(replaced.why, 'cpu, because the GPU computes wrongly');
});
