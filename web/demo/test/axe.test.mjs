// Tests accessibility in all views: rules of axe-core, narrow windows, and sizes of touch targets.

import assert from 'node:assert/strict';
import { ask, loadTiny, see, tests, violations } from './demo.mjs';

const check = tests();

const fake = {
  step: 400,
  files: [{ url: 'https://h.example/a.pth', size: 5e8, bytes: 5e8, isComplete: true }],
  check: { ok: false, verdict: 'This browser has no WebGPU.', hint: 'use a current browser' },
};

for (const width of [360, 1280]) {
  for (const scheme of ['light', 'dark']) {
    check(`no violations in the choice of a model: ${width} pixels, ${scheme}`, { width, scheme, fake }, async ({ page }) => {
      const clean = async (view) => {
        assert.deepEqual(await violations(page), [], view);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${view} scrolls sideways`);
      };
      await see(page, '#start-check', /no WebGPU/);
      await page.waitForSelector('#start-cache', { visible: true });
      await clean('choice');
      const small = await page.evaluate(() =>
        [...document.querySelectorAll('#start button, #start select, #start input')].filter((element) => element.checkVisibility()).map((element) => element.getBoundingClientRect()).filter(({ width, height }) => width < 24 || height < 24).length);
      assert.equal(small, 0, 'targets of at least 24 pixels');
      await page.click('[data-id="rwkv7-g1-0.1b"]');
      await see(page, '[data-stage="download"]', /MB/);
      await clean('progress');
      await page.evaluate(() => (globalThis.fake.fails = { message: 'https://h.example/a.very.long.address.of.a.model.safetensors: the server answered 404', kind: 'file', hint: 'check the address' }));
      await page.waitForSelector('#start-error', { visible: true });
      await clean('error');
    });

    check(`no violations in the chat: ${width} pixels, ${scheme}`, { width, scheme }, async ({ page }) => {
      await loadTiny(page);
      assert.deepEqual(await violations(page), [], 'empty');
      await ask(page, 'think');
      assert.deepEqual(await violations(page), [], 'answer');
      if (width < 800) await page.click('#side-open');
      await page.waitForSelector('#models-open', { visible: true });
      assert.deepEqual(await violations(page), [], 'side bar');
      await page.click('#models-open');
      await page.waitForSelector('#start-back', { visible: true });
      assert.deepEqual(await violations(page), [], 'change of the model');
    });
  }
}
