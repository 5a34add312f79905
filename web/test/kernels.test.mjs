// Tests that Chromium's WGSL compiler accepts every composed shader without a message. The variable WGSL_TEXTS names the file of the shaders, which
// the test shaders::every_shader_fits_the_default_limits_and_translates writes.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { launch, open } from './browser.mjs';
import { serve } from './server.mjs';

const texts = process.env.WGSL_TEXTS && JSON.parse(readFileSync(process.env.WGSL_TEXTS, 'utf8'));

test('every shader compiles without a message', { skip: !texts && 'no file WGSL_TEXTS' }, async () => {
  // no browser has cooperative matrices
  const all = texts.filter(({ text }) => !/coop_mat|enable wgpu_cooperative_matrix/.test(text));
  assert.ok(all.length > 700, String(all.length));
  const server = await serve({ '/texts': () => Buffer.from(JSON.stringify(all)) });
  const browser = await launch();
  try {
    const page = await open(browser, server.url);
    const found = await page.evaluate(async () => {
      const all = await (await fetch('/texts')).json();
      const adapter = await navigator.gpu.requestAdapter();
      const device = await adapter.requestDevice({ requiredFeatures: ['subgroups'] });
      const messages = [];
      for (let i = 0; i < all.length; i += 20) {
        const work = all.slice(i, i + 20).map(async ({ shader, modules, text }) => {
          device.pushErrorScope('validation');
          const info = device.createShaderModule({ code: text }).getCompilationInfo();
          const error = await device.popErrorScope();
          for (const { type, lineNum, message } of (await info).messages) messages.push(`${shader} ${modules} line ${lineNum}: ${type}: ${message}`);
          if (error) messages.push(`${shader}: ${error.message}`);
        });
        await Promise.all(work);
      }
      return messages;
    });
    console.log(`  ${all.length} shaders, ${all.filter(({ text }) => text.includes('enable subgroups')).length} with subgroups`);
    assert.deepEqual(found.slice(0, 5), []);
  } finally {
    await browser.close();
    await server.close();
  }
});
