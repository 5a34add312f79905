// The service worker: the page opens without a network, a new version waits for the user, and no other request is touched.

import assert from 'node:assert/strict';
import { appendFileSync, cpSync } from 'node:fs';
import { join } from 'node:path';
import { ask, build, loadTiny, scratch, see, serve, tests } from './demo.mjs';

const check = tests();

/** Waits until the worker keeps the files and answers for this page. */
const kept = (page) => page.waitForFunction(() => navigator.serviceWorker.controller?.state === 'activated');
const again = async (page) => {
  await page.reload();
  await page.waitForSelector('#start-models button');
};
const cachesOf = (page) =>
  page.evaluate(async () => Object.fromEntries(await Promise.all((await caches.keys()).map(async (name) => [name, (await (await caches.open(name)).keys()).map(({ url }) => url)]))));

check('the page opens, loads a model and answers without a network', {}, async ({ page, server, url }) => {
  await kept(page);
  server.isDown = true;
  await again(page);
  await loadTiny(page);
  assert.match(await ask(page, '# apples\n'), /You wrote/);
  // the page also opens by the name of its file, and with a query
  for (const address of ['index.html', '?from=mail']) {
    await page.goto(url + address);
    await page.waitForSelector('#start-models button');
  }
});

check('exactly the files of the page are kept, and no weights', {}, async ({ page, url }) => {
  await kept(page);
  const all = await cachesOf(page);
  const [name] = Object.keys(all);
  assert.match(name, /^wingbeat-demo \/some\/deep\/folder\/ [0-9a-f]{16}$/);
  const paths = all[name].map((address) => address.slice(url.length));
  for (const path of ['index.html', 'page/main.js', 'page/lib/maths.js', 'demo/local.js', 'wingbeat/index.js', 'models.json']) assert.ok(paths.includes(path), path);
  assert.deepEqual(paths.filter((path) => /^models\/|safetensors|^sw\.js|licences/.test(path)), []);
  // the page has requested no file that is not kept
  const used = await page.evaluate(() => performance.getEntriesByType('resource').map(({ name }) => name));
  assert.deepEqual(used.map((address) => address.slice(url.length)).filter((path) => !paths.includes(path) && path !== 'sw.js'), []);
});

check('other requests pass by: other files, ranges, other methods, queries, other origins', {}, async ({ page, server, url }) => {
  const other = await serve({ '/': join(scratch, 'fake') });
  await kept(page);
  await again(page);
  server.log.length = 0;
  /** Returns the status, and whether the worker answered. */
  const request = async (address, options) => {
    // the event of a response may come after the promise of its fetch
    const [response, status] = await Promise.all([
      page.waitForResponse((response) => response.url() === address),
      page.evaluate(async (address, options) => (await fetch(address, options)).status, address, options),
    ]);
    return [status, response.fromServiceWorker()];
  };
  assert.deepEqual(await request(`${url}page/main.js`), [200, true]);
  assert.equal(server.log.length, 0, 'a file of the page is not fetched');
  const requests = [
    [`${url}models/tiny/vocab.txt`, {}],
    [`${url}sw.js`, {}],
    [`${url}v1/chat/completions`, { method: 'POST', body: '{}' }],
    [`${url}page/main.js?other`, {}],
    [`${url}page/tree.js`, { method: 'POST', body: 'x' }],
    [`${url}page/dom.js`, { headers: { range: 'bytes=0-9' } }],
    [`${server.origin}/source/http.js`, {}],
    [`${other.origin}/page/main.js`, {}],
  ];
  for (const [address, options] of requests) {
    const [, isFromWorker] = await request(address, options);
    assert.equal(isFromWorker, false, address);
  }
  assert.equal(server.log.length, requests.length - 1);
  assert.equal(other.count('/page/main.js'), 1);
  await other.close();
  const before = Object.values(await cachesOf(page)).flat().length;
  await again(page);
  assert.equal(Object.values(await cachesOf(page)).flat().length, before, 'nothing was added');
});

check('a new version waits for the user, replaces the old one, and leaves other caches alone', {}, async ({ page, server }) => {
  const prefix = '/some/deep/folder/';
  const old = server.folders[prefix];
  try {
    await kept(page);
    await page.evaluate(() => caches.open('of another page'));
    const [first] = Object.keys(await cachesOf(page));
    const next = join(scratch, 'next');
    cpSync(old, next, { recursive: true });
    appendFileSync(join(next, 'page/dates.js'), '// changed\n');
    server.folders[prefix] = next;
    // the host has only a part of the new files, so a hash differs, and the old version stays
    appendFileSync(join(next, 'sw.js'), '// changed\n');
    await again(page);
    await page.evaluate(async () => (await navigator.serviceWorker.ready).update().catch(() => {}));
    await new Promise((done) => setTimeout(done, 1000));
    assert.equal(await page.evaluate(async () => Boolean((await navigator.serviceWorker.ready).waiting)), false);
    assert.ok((await cachesOf(page))[first].length > 40);
    // now the host has the complete new version
    const complete = build('fake-next', { extra: '// another version' });
    server.folders[prefix] = complete;
    await again(page);
    await see(page, '#toast', /A new version of this page is ready/);
    const loaded = page.waitForNavigation();
    await page.click('#toast button');
    await loaded;
    await page.waitForSelector('#start-models button');
    await page.waitForFunction(async (first) => !(await caches.keys()).includes(first), {}, first);
    assert.equal(Object.keys(await cachesOf(page)).length, 2);
    assert.match(await page.evaluate(async () => (await fetch('wingbeat/index.js')).text()), /another version/);
  } finally {
    server.folders[prefix] = old;
  }
});
