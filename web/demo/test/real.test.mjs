// The demo with the real package: the tiny model answers in the browser, also without a network.

import assert from 'node:assert/strict';
import { ask, loadTiny, real, see, tests } from './demo.mjs';

const check = tests({ isReal: true });
const skip = real ? false : 'run `tools/web.sh` first';

/** Makes answers short and the same each time. */
const settle = async (page) => {
  await page.click('#settings-open');
  for (const [field, value] of [['temperature', '0'], ['max_tokens', '24']]) await page.type(`#set-${field}`, value);
  await page.click('#settings [data-close]');
};

check('the tiny model answers, keeps states, and does so offline after a reload', { skip }, async ({ page, server }) => {
  await see(page, '#start-check', /GPU|runs?/);
  await loadTiny(page);
  await settle(page);
  const first = await ask(page, 'Tell me a story.');
  assert.ok(first.length > 20, first);
  await see(page, 'article.assistant .meta', /token limit reached/);
  await page.click('article.assistant [aria-haspopup=menu]');
  await see(page, '.figures', /24 tokens.*tokens\/s/s);
  await page.keyboard.press('Escape');
  await page.click('#states-open');
  await page.type('#state-name', 'mine');
  await page.click('#state-save button');
  await see(page, '#state-list', /mine\s+\d+ tokens/);
  await page.click('#states [data-close]');
  await page.click('#new');
  assert.equal(await ask(page, 'Tell me a story.'), first, 'greedy answers are equal');

  await page.waitForFunction(() => navigator.serviceWorker.controller?.state === 'activated');
  const kept = await page.evaluate(async () => (await Promise.all((await caches.keys()).map(async (name) => (await caches.open(name)).keys()))).flat().map(({ url }) => url));
  assert.ok(kept.some((url) => url.endsWith('/wingbeat/wingbeat_bg.wasm')));
  assert.deepEqual(kept.filter((url) => /\/models\/|\.(safetensors|pth|gguf)/.test(url)), []);
  server.isDown = true;
  await page.reload();
  await page.waitForSelector('#start-models button');
  await see(page, '#start-models li:first-child', /Small world.*last used.*downloaded/s);
  await loadTiny(page);
  await page.click('#new');
  assert.equal(await ask(page, 'Tell me a story.'), first, 'without a network');
  await page.click('#states-open');
  await see(page, '#state-list', /mine\s+\d+ tokens/);
  await page.click('[aria-label="Begin a conversation from mine"]');
  await see(page, '#from', /from state mine/);
  assert.ok((await ask(page, 'water')).length > 5);
  assert.ok((await ask(page, 'fire')).length > 5);
  await see(page, '#device', /Small world/);
});

check('on the GPU, a long answer is stopped, and an address that is missing says what to do', { skip }, async ({ page }) => {
  await page.type('#start-url', 'absent.safetensors');
  await page.keyboard.press('Enter');
  await see(page, '#start-error', /404.*\n+.*[Cc]heck/s);
  await page.select('#start-device', 'gpu');
  await loadTiny(page);
  assert.match(await page.$eval('#device', (element) => element.textContent), /Small world · f16 · on (?!the CPU)/);
  await page.type('#input', 'Tell me a story about a fox.');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('article.assistant .content')?.innerText.length > 10);
  await page.click('#stop');
  await page.waitForSelector('#send', { visible: true });
  assert.ok((await ask(page, 'Tell me a story.')).length > 5, 'the slot is free again');
});
