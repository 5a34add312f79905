// Every case of the quick self test, in all formats and both classes of kernels, in Chromium. For `make test-all`, because it takes minutes.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { launch, open } from './browser.mjs';
import { root } from './models.mjs';
import { serve } from './server.mjs';

for (const [kernels, formats] of [
  ['lanes', 'f16,f32,i8,i4,nf4,i8rc'],
  ['groups', 'f16,i8,i4'],
]) {
  test(`${kernels}: ${formats}`, async () => {
    const server = await serve({ '/pkg': join(root, 'web/pkg') });
    const browser = await launch();
    try {
      const page = await open(browser, server.url);
      const run = async (kernels, formats) => {
        const wasm = await import('/pkg/wingbeat.js');
        await wasm.default();
        return JSON.parse(await wasm.self_test(kernels, formats, false, () => {}));
      };
      const { cases, wrong } = await page.evaluate(run, kernels, formats);
      console.log(`  ${cases} cases`);
      assert.ok(cases > 40);
      assert.deepEqual(wrong, []);
    } finally {
      await browser.close();
      await server.close();
    }
  });
}
