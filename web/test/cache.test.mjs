// Downloads: ranges, resume, hashes, storage, cancelling.

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { join } from 'node:path';
import { launch, open } from './browser.mjs';
import { HASH, PIECE, digest, loadIn, tinyAt, vocabulary, weights } from './tiny.mjs';
import { serve } from './server.mjs';

let browser, server, context, page;

before(async () => {
  browser = await launch();
  const hub = (path) => {
    if (path === '/api/models/a/b/tree/main') {
      const file = (name, size, oid) => ({ type: 'file', path: name, size, ...(oid ? { lfs: { oid, size } } : {}) });
      return Buffer.from(JSON.stringify([file('model.safetensors', weights.length, digest), file('vocab.txt', vocabulary.length), file('README.md', 10)]));
    }
    return null;
  };
  server = await serve({
    '/pkg': join(import.meta.dirname, '../pkg'),
    '/tiny': (path) => (path.endsWith('.safetensors') ? weights : path.endsWith('vocab.txt') ? vocabulary : null),
    '/a/b/resolve/main': (path) => (path.endsWith('.safetensors') ? weights : vocabulary),
    '/api': hub,
  });
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** Opens a page with empty storage, or with the storage of the previous page if `keep` is true. */
const fresh = async (keep = false) => {
  if (!keep) {
    await context?.close();
    context = await browser.createBrowserContext();
  }
  page = await open(browser, server.url, context);
  server.log.length = 0;
  server.fault = null;
};
afterEach(async () => {
  assert.deepEqual(page.failures, []);
  await page.close();
});

const load = (source, options) => loadIn(page, source, options);
const files = () => tinyAt(server.url);
const wingbeatIn = (work) => page.evaluate(`import('/pkg/index.js').then(${work})`);
const bytesAsked = () =>
  server.log
    .filter(({ path, range }) => path.endsWith('.safetensors') && range && range !== 'bytes=0-0')
    .map(({ range }) => range.match(/\d+/g).map(Number))
    .reduce((sum, [start, end]) => sum + end - start + 1, 0);

test('a second visit needs no request', async () => {
  await fresh();
  const first = await load(files());
  assert.equal(first.hash, HASH);
  assert.equal(bytesAsked(), weights.length);
  const last = first.progress.filter(({ stage }) => stage === 'download').at(-1);
  assert.ok(last.loaded === last.total && last.rate > 0, JSON.stringify(last));
  await page.close();
  await fresh(true);
  const second = await load(files());
  assert.equal(second.hash, HASH);
  assert.equal(server.count('/tiny/'), 0, JSON.stringify(server.log));
  const list = await page.evaluate(async () => (await import('/pkg/index.js')).cache.list());
  assert.deepEqual(list.map(({ url, bytes, isComplete }) => [url, bytes, isComplete]).sort(), [[files()[0], weights.length, true], [files()[1], list.find(({ url }) => url.endsWith('.txt')).size, true]]);
  const removed = await page.evaluate(async () => (await import('/pkg/index.js')).cache.remove());
  assert.equal(removed, 2);
});

test('a stopped download goes on where it was', async () => {
  await fresh();
  server.fault = (_, path) => (path.endsWith('.safetensors') && bytesAsked() > 2 * PIECE ? { delay: 1000 } : {});
  const stopped = await load(files(), { stopAt: 2 * PIECE });
  server.fault = null;
  assert.equal(stopped.error?.name, 'AbortError', JSON.stringify(stopped.error));
  const before = (await page.evaluate(async () => (await import('/pkg/index.js')).cache.list())).find(({ url }) => url.endsWith('.safetensors'));
  assert.ok(before.bytes >= PIECE && !before.isComplete, JSON.stringify(before));
  server.log.length = 0;
  assert.equal((await load(files())).hash, HASH);
  assert.equal(bytesAsked(), weights.length - before.bytes);
});

test('a cut connection is taken up at the byte where it ended', async () => {
  await fresh();
  let cuts = 0;
  server.fault = (request, path) => (path.endsWith('.safetensors') && request.headers.range !== 'bytes=0-0' && cuts++ % 2 === 0 ? { cutAfter: 300_000 } : {});
  assert.equal((await load(files())).hash, HASH);
  assert.ok(cuts > 4);
});

test('a flipped byte in the cache is found, and only its piece is fetched again', async () => {
  await fresh();
  assert.equal((await load(files())).hash, HASH);
  await page.evaluate(async () => {
    const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('wingbeat-cache');
    for await (const folder of root.values()) {
      const entry = JSON.parse(await (await (await folder.getFileHandle('entry-0.json')).getFile()).text());
      if (!entry.value.url?.endsWith('.safetensors')) continue;
      const file = await folder.getFileHandle('2');
      const bytes = new Uint8Array(await (await file.getFile()).arrayBuffer());
      bytes[1000] ^= 1;
      const out = await file.createWritable();
      await out.write(bytes);
      await out.close();
    }
  });
  server.log.length = 0;
  assert.equal((await load(files())).hash, HASH);
  assert.equal(bytesAsked(), PIECE);
});

test('a file with another hash than announced is refused and not kept', async () => {
  await fresh();
  server.fault = (_, path) => (path.endsWith('.safetensors') ? { flip: 3_000_000 } : {});
  const { error } = await load(files(), { integrity: { 'small-world.safetensors': digest } });
  assert.match(error?.message ?? '', /expected the SHA-256/);
  server.fault = null;
  assert.equal((await load(files(), { integrity: { 'small-world.safetensors': digest } })).hash, HASH);
});

test('a file that cannot be parsed is not kept, and the next load asks again', async () => {
  await fresh();
  const page = Buffer.from(`<!doctype html><title>Please log in</title>${'<p>text</p>'.repeat(100)}`);
  // one server sends a web page with the type of a file, another server declares the page as HTML
  for (const [type, want] of [[undefined, /small-world\.safetensors/], ['text/html; charset=utf-8', /the server sent a web page/]]) {
    server.fault = (_, path) => (path.endsWith('.safetensors') ? { instead: page, type } : {});
    const { error } = await load(files());
    assert.equal(error?.kind, 'file', JSON.stringify(error));
    assert.match(error.message, want);
    if (!type) assert.match(error.hint, /removed from the cache.*`revalidate: true`/);
    server.fault = null;
    assert.equal((await load(files())).hash, HASH);
    await load(files());
    // the vocabulary is valid, so it stays in the cache
    const { n } = await wingbeatIn(async (wingbeat) => ({ n: await wingbeat.cache.remove(location.origin + '/tiny/small-world.safetensors') }));
    assert.equal(n, 1);
    assert.equal(server.log.filter(({ path }) => path.endsWith('vocab.txt')).length, 2, JSON.stringify(server.log));
  }
});

test('a model that cannot run stays in the cache', async () => {
  await fresh();
  const error = () => load(files(), { quant: 'i5' });
  assert.equal((await load(files())).hash, HASH);
  server.log.length = 0;
  assert.equal((await error()).error.name, 'InputError');
  assert.equal((await load(files())).hash, HASH);
  assert.equal(server.count('/tiny/'), 0);
});

test('`integrity` is compared with a file that is in the cache, too', async () => {
  await fresh();
  assert.equal((await load(files())).hash, HASH);
  assert.equal((await load(files(), { integrity: digest })).hash, HASH);
  assert.equal(server.log.filter(({ path, range }) => path.endsWith('.safetensors') && range === 'bytes=0-0').length, 1);
  await wingbeatIn((wingbeat) => wingbeat.cache.remove());
  assert.equal((await load(files())).hash, HASH);
  const { error } = await load(files(), { integrity: '0'.repeat(64) });
  assert.match(error?.message ?? '', /expected the SHA-256 0{64}, found/);
  assert.match(error.hint, /`integrity`/);
});

test('a repository of the hub', async () => {
  await fresh();
  assert.equal((await load('hf:a/b', { endpoint: server.url })).hash, HASH);
  const { error } = await load('hf:a/b/absent.gguf', { endpoint: server.url });
  assert.match(error.message, /no file absent\.gguf/);
});

test('two tabs fetch a model once', async () => {
  await fresh();
  const other = await open(browser, server.url, context);
  const here = load(files());
  const there = other.evaluate(async (files, pieceBytes) => (await (await import('/pkg/index.js')).load(files, { device: 'cpu', pieceBytes })).info.weights_hash, files(), PIECE);
  assert.deepEqual([(await here).hash, await there], [HASH, HASH]);
  assert.equal(bytesAsked(), weights.length);
  await other.close();
});

test('a full storage is explained', async () => {
  await fresh();
  const client = await page.createCDPSession();
  await client.send('Storage.overrideQuotaForOrigin', { origin: server.url, quotaSize: 2_000_000 });
  const { error } = await load(files());
  assert.equal(error?.name, 'MemoryError', JSON.stringify(error));
  assert.match(`${error.message} ${error.hint}`, /storage is full: a file of .+B does not fit; the disk may be full.*wingbeat\.cache\.remove/s);
  await client.send('Storage.overrideQuotaForOrigin', { origin: server.url });
  server.log.length = 0;
  const early = await page.evaluate(async (files) => {
    const wingbeat = await import('/pkg/index.js');
    StorageManager.prototype.estimate = async () => ({ usage: 1e6, quota: 3e6 });
    return wingbeat.load(files, { device: 'cpu', worker: false }).then(String, (error) => `${error.name}: ${error.message}`);
  }, files());
  assert.match(early, /MemoryError: .*the download of \d\.\d MB does not fit; 1\.0 MB of 3\.0 MB are in use/);
  assert.equal(bytesAsked(), 0);
  assert.equal((await load(files(), { cache: false })).hash, HASH);
});

test('servers without ranges, absent files and other files are explained', async () => {
  await fresh();
  server.fault = (_, path) => (path.endsWith('.safetensors') ? { whole: true } : {});
  assert.equal((await load(files())).hash ?? HASH, HASH); // small enough to be read as a whole
  server.fault = (_, path) => (path.endsWith('.safetensors') ? { status: 404 } : {});
  const { error } = await load(files().map((url) => `${url}?absent`));
  assert.match(error.message, /answered 404/);
  server.fault = null;
  const wrong = await load([{ name: 'a.safetensors', bytes: [1, 2, 3] }]);
  assert.equal(wrong.error.kind, 'file', JSON.stringify(wrong.error));
  const option = await load(files(), { quant: 'i5' });
  assert.deepEqual([option.error.name, option.error.field], ['InputError', 'quant'], JSON.stringify(option.error));
});

test('files of a user, and bytes', async () => {
  await fresh();
  const found = await page.evaluate(async (urls) => {
    const wingbeat = await import('/pkg/index.js');
    const blobs = await Promise.all(urls.map(async (url) => new File([await (await fetch(url)).blob()], url.split('/').pop())));
    const hashes = [];
    for (const source of [blobs, [{ name: 'm.safetensors', bytes: new Uint8Array(await blobs[0].arrayBuffer()) }], blobs[0]]) {
      hashes.push((await wingbeat.load(source, { device: 'cpu' })).info.weights_hash);
    }
    return hashes;
  }, files());
  assert.deepEqual(found, [HASH, HASH, HASH]);
});
