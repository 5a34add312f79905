// The texts of the package in Firefox, whose WebGPU is wgpu. For `make test-web L=long`, because it takes minutes and CI has no Firefox.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { firefox, launchFirefox } from './browser.mjs';
import { continued, folder, models } from './models.mjs';
import { serve } from './server.mjs';

const N = 24;
let browser, server;

if (firefox) {
  before(async () => {
    browser = await launchFirefox();
    server = await serve({ '/pkg': join(import.meta.dirname, '../pkg'), '/models': folder });
  });
  after(async () => {
    await browser?.close();
    await server?.close();
  });
}

for (const model of models) {
  for (const device of ['gpu', 'cpu']) {
    test(`${model.name} on the ${device.toUpperCase()} has the official text`, { skip: !firefox && 'no Firefox (Debian: apt-get install firefox-esr)' }, async () => {
      const n = Math.min(N, model.greedy.length);
      const { tokens, error, device: used } = await continued(browser, server.url, model, { device, ...model.options }, n);
      assert.equal(error, undefined);
      assert.deepEqual(tokens, model.greedy.slice(0, n));
      assert.equal(used.backend, device === 'gpu' ? 'webgpu' : 'cpu');
    });
  }
}
