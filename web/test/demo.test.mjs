// The demo: choosing a model, the chat page on a model in the browser, offline, files, accessibility.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { launch, open } from './browser.mjs';
import { root } from './models.mjs';
import { serve } from './server.mjs';

const dist = join(import.meta.dirname, '../demo/dist');
const axe = readFileSync(join(import.meta.dirname, '../node_modules/axe-core/axe.min.js'), 'utf8');
let browser, server, context;

before(async () => {
  browser = await launch();
  server = await serve({ '/some/folder': dist });
});
after(async () => {
  await browser?.close();
  await server?.close();
});

const url = () => `${server.url}/some/folder/index.html`;
const fresh = async () => {
  await context?.close();
  context = await browser.createBrowserContext();
  return open(browser, url(), context);
};
/** Chooses the tiny model, and waits for the chat. */
const choose = async (page) => {
  await page.waitForSelector('#start-models button');
  const buttons = await page.$$('#start-models button');
  for (const button of buttons) {
    if (!(await button.evaluate((element) => element.textContent)).includes('Tiny')) continue;
    await button.click();
    break;
  }
  await page.waitForSelector('#app:not([hidden]) #input', { timeout: 120_000 });
};
const say = async (page, text) => {
  await page.type('#input', text);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('#stop').hidden && document.querySelectorAll('#thread article, #thread .message').length >= 2, { timeout: 120_000 });
  return page.evaluate(() => document.querySelector('#thread').innerText);
};
const violations = (page) =>
  page.evaluate(async (axe) => {
    if (!globalThis.axe) new Function(axe)();
    const { violations } = await globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice'] });
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 90)).join(' | ')}`);
  }, axe);

test('the interface has two implementations with the same exports', () => {
  const exported = (path) => [...readFileSync(path, 'utf8').matchAll(/^export (?:async )?(?:const|class|function\*?) ?\*? ?(\w+)/gm)].map(([, name]) => name).sort();
  const [server, local] = [exported(join(root, 'src/serve/page/api.js')), exported(join(root, 'web/demo/local.js'))];
  assert.deepEqual(local.filter((name) => name !== 'use'), server);
});

test('a model is chosen, answers, and is there offline', async () => {
  const page = await fresh();
  assert.match(await page.$eval('#start-check', (element) => element.textContent.length > 20 && element.textContent), /GPU|run/);
  await choose(page);
  const thread = await say(page, 'light');
  assert.ok(thread.length > 20, thread);
  assert.deepEqual(page.failures, []);
  // after the first load, neither the page nor the model needs the network
  await page.evaluate(() => navigator.serviceWorker.ready);
  await page.waitForFunction(async () => (await caches.keys()).length && (await (await caches.open((await caches.keys())[0])).keys()).length > 40, { timeout: 60_000 });
  const cached = await page.evaluate(async () => (await (await caches.open((await caches.keys())[0])).keys()).map(({ url }) => url));
  assert.ok(!cached.some((url) => url.includes('/models/') || url.includes('safetensors')), 'no weights in the cache of the page');
  await page.reload();
  await page.waitForFunction(() => navigator.serviceWorker.controller);
  server.fault = () => ({ status: 503 });
  try {
    await page.reload();
    await choose(page);
    await page.evaluate(() => document.querySelector('#new').click());
    assert.ok((await say(page, 'In the beginning')).length > 20);
  } finally {
    server.fault = null;
  }
  await page.close();
});

test('states are saved, and conversations begin from them', async () => {
  const page = await fresh();
  await choose(page);
  await say(page, 'light');
  await page.click('#states-open');
  await page.type('#state-name', 'mine');
  await page.click('#state-save button[type=submit]');
  await page.waitForFunction(() => /mine/.test(document.querySelector('#state-list').innerText), { timeout: 30_000 });
  await page.evaluate(() => [...document.querySelectorAll('#state-list button')].find((button) => button.textContent === 'Begin').click());
  await page.waitForSelector('#from:not([hidden])');
  assert.ok((await say(page, 'water')).length > 5);
  assert.deepEqual(page.failures, []);
  await page.close();
});

test('files of the user, errors and cancelling', async () => {
  const page = await fresh();
  await page.waitForSelector('#start-models button');
  await page.type('#start-url', 'absent.safetensors');
  await page.click('#start-address button');
  await page.waitForSelector('#start-error:not([hidden])', { timeout: 30_000 });
  assert.match(await page.$eval('#start-error', (element) => element.textContent), /404.*Check|404.*check/s);
  const input = await page.$('#start-files');
  await input.uploadFile(join(dist, 'models/tiny/tiny-rwkv7.safetensors'), join(dist, 'models/tiny/vocab.txt'));
  await page.waitForSelector('#app:not([hidden]) #input', { timeout: 120_000 });
  await page.close();
});

for (const width of [360, 1280]) {
  test(`no violations of accessibility at ${width} pixels`, async () => {
    const page = await fresh();
    await page.setViewport({ width, height: 800 });
    await page.waitForSelector('#start-models button');
    for (const scheme of ['light', 'dark']) {
      await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
      // colours change gradually
      await new Promise((done) => setTimeout(done, 500));
      assert.deepEqual(await violations(page), [], `start, ${scheme}`);
    }
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'no horizontal scrolling');
    await choose(page);
    await say(page, 'light');
    assert.deepEqual(await violations(page), [], 'chat');
    await page.close();
  });
}
