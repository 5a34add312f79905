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
const loads = async (options) => {
  const context = await browser.createBrowserContext();
  const page = await open(browser, server.url, context);
  const found = await page.evaluate(async (options) => {
    const wingbeat = await import('/pkg/index.js');
    const files = ['/tiny/tiny-rwkv7.safetensors', '/tiny/vocab.txt'].map((path) => location.origin + path);
    const times = [];
    let info = null;
    for (let i = 0; i < 2; i++) {
      let began = 0;
      const onProgress = ({ stage, loaded }) => {
        if (stage !== 'check') return;
        if (loaded) times.push(performance.now() - began);
        else began = performance.now();
      };
      try {
        const model = await wingbeat.load(files, { cache: false, worker: false, onProgress, ...options });
        info = { backend: model.info.device.backend, notes: model.info.notes };
        await model.free();
      } catch (error) {
        info = { name: error.name, message: error.message, hint: error.hint };
      }
    }
    return { times, ...info };
  }, options);
  await context.close();
  return found;
};

test('a right GPU passes, and is tested once', async () => {
  const { times, backend, message } = await loads({ device: 'gpu' });
  assert.equal(backend, 'webgpu', message);
  console.log(`  tested in ${(times[0] / 1000).toFixed(1)} s, remembered in ${times[1].toFixed(1)} ms`);
  assert.ok(times[1] < times[0]);
});

test('a GPU that computes wrongly is refused; auto takes the CPU for a small model', async () => {
  // naga's WGSL reads the wrong weights
  const variables = { WINGBEAT_WGSL: 'naga' };
  const refused = await loads({ device: 'gpu', variables });
  assert.equal(refused.name, 'DeviceError', JSON.stringify(refused));
  assert.match(refused.message, /computes wrongly: .*expected an error of at most/);
  const replaced = await loads({ variables });
  assert.equal(replaced.backend, 'cpu', JSON.stringify(replaced));
  assert.match(replaced.notes.join(), /computes wrongly and is not used/);
});
