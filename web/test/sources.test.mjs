// Sources of models: servers with faults, other origins, manifests, indexes, the hub, folders. Then the same sources without a network.

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { join } from 'node:path';
import { launch, open } from './browser.mjs';
import { serve } from './server.mjs';
import { HASH, digest, loadIn, sha256, tiny, tinyAt, vocabulary, weights } from './tiny.mjs';

const json = (value) => Buffer.from(JSON.stringify(value));
const pkg = join(import.meta.dirname, '../pkg');
let browser, server, far, context, page;

/** Splits the weights into two safetensors files with an index, as trainers publish large models. */
const shards = (() => {
  const length = Number(weights.readBigUInt64LE(0));
  const header = JSON.parse(weights.subarray(8, 8 + length));
  const { __metadata__: metadata, ...tensors } = header;
  const names = Object.keys(tensors);
  const half = names.length >> 1;
  const files = {};
  const map = {};
  [names.slice(0, half), names.slice(half)].forEach((some, i) => {
    const name = `model-0000${i + 1}-of-00002.safetensors`;
    const own = metadata ? { __metadata__: metadata } : {};
    const parts = [];
    let at = 0;
    for (const each of some) {
      const [start, end] = tensors[each].data_offsets;
      own[each] = { ...tensors[each], data_offsets: [at, at + end - start] };
      parts.push(weights.subarray(8 + length + start, 8 + length + end));
      at += end - start;
      map[each] = name;
    }
    let text = JSON.stringify(own);
    text += ' '.repeat((8 - (text.length % 8)) % 8);
    const size = Buffer.alloc(8);
    size.writeBigUInt64LE(BigInt(text.length));
    files[name] = Buffer.concat([size, Buffer.from(text), ...parts]);
  });
  files['model.safetensors.index.json'] = json({ metadata: metadata ?? {}, weight_map: map });
  files['vocab.txt'] = vocabulary;
  return files;
})();
const manifest = json({ format: 'wingbeat-shards', version: 1, files: Object.entries(shards).map(([name, bytes]) => ({ name, bytes: bytes.length, sha256: sha256(bytes) })) });
const sharded = (path) => (path.endsWith('.manifest.json') ? manifest : (shards[path.split('/').pop()] ?? null));

/** A repository of the hub: the list of its files, and the files. */
const repository = (path) => {
  const file = (path, bytes, isLarge) => ({ type: 'file', path, size: bytes.length, ...(isLarge ? { lfs: { oid: sha256(bytes), size: bytes.length } } : {}) });
  if (path.startsWith('/api/')) return json([file('model.safetensors', weights, true), file('vocab.txt', vocabulary), { type: 'directory', path: 'more' }]);
  return tiny(path);
};

before(async () => {
  browser = await launch();
  const folders = { '/pkg': pkg, '/tiny': tiny, '/shards': sharded, '/a/b/resolve': repository, '/api': repository };
  server = await serve(folders);
  far = await serve(folders, { 'access-control-allow-origin': '*' });
});
after(async () => {
  await browser?.close();
  await server?.close();
  await far?.close();
});
const fresh = async (keep = false) => {
  if (!keep) {
    await context?.close();
    context = await browser.createBrowserContext();
  } else await page.close();
  page = await open(browser, server.url, context);
  for (const each of [server, far]) Object.assign(each, { fault: null, log: [] });
};
afterEach(async () => {
  assert.deepEqual(page.failures, []);
  await page.close();
});

const load = (source, options) => loadIn(page, source, options);
/** Flips a bit in a piece of the weights in the cache. */
const flip = (piece) =>
  page.evaluate(async (piece) => {
    const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('wingbeat-cache');
    for await (const folder of root.values()) {
      const file = await folder.getFileHandle(String(piece)).catch(() => null);
      if (!file) continue;
      const bytes = new Uint8Array(await (await file.getFile()).arrayBuffer());
      bytes[1000] ^= 1;
      const out = await file.createWritable();
      await out.write(bytes);
      await out.close();
    }
  }, piece);
const isWeights = (path) => path.endsWith('.safetensors');

test('another origin that hides its headers works, without a preflight', async () => {
  await fresh();
  for (const options of [{}, { cache: false }]) assert.equal((await load(tinyAt(far.url), options)).hash, HASH);
  assert.deepEqual(far.log.filter(({ method }) => method === 'OPTIONS'), []);
});

test('an origin that allows no other pages is named', async () => {
  await fresh();
  const closed = await serve({ '/tiny': tiny });
  const { error } = await load(tinyAt(closed.url));
  await closed.close();
  assert.equal(error?.kind, 'file');
  assert.match(error.hint, /CORS: Access-Control-Allow-Origin/);
});

test('a file that changes while it is downloaded is refused, and fetched anew next time', async () => {
  await fresh();
  let n = 0;
  server.fault = (_, path) => (isWeights(path) && n++ > 1 ? { etag: 2 } : {});
  const { error } = await load(tinyAt(server.url));
  assert.match(error?.message ?? '', /has changed since its download began/);
  server.fault = (_, path) => (isWeights(path) ? { etag: 2 } : {});
  assert.equal((await load(tinyAt(server.url))).hash, HASH);
});

test('a server that sends other bytes than asked for is refused', async () => {
  await fresh();
  server.fault = (request, path) => (isWeights(path) && !/=0-/.test(request.headers.range) ? { shift: 4 } : {});
  const { error } = await load(tinyAt(server.url));
  assert.match(error?.message ?? '', /expected bytes \d+ to \d+, the server sent bytes/);
  assert.match(error.hint, /no working ranges/);
});

test('a server without ranges sends the file once, and repairs it', async () => {
  await fresh();
  const sent = () => server.log.filter(({ path, range }) => isWeights(path) && !range).length;
  server.fault = () => ({ whole: true });
  const { hash, progress } = await load(tinyAt(server.url), { integrity: digest });
  assert.equal(hash, HASH);
  assert.equal(sent(), 1);
  const { loaded, total } = progress.filter(({ stage }) => stage === 'download').at(-1);
  assert.equal(loaded, total);
  server.log.length = 0;
  assert.equal((await load(tinyAt(server.url))).hash, HASH);
  assert.deepEqual(server.log.filter(({ path }) => !path.startsWith('/pkg')), []);
  await flip(2);
  await flip(1);
  assert.equal((await load(tinyAt(server.url))).hash, HASH);
  assert.ok(sent() <= 2);
  // a connection that is cut begins again
  await fresh();
  let n = 0;
  server.fault = (request, path) => ({ whole: true, ...(isWeights(path) && !request.headers.range && n++ === 0 && { cutAfter: 3_000_000 }) });
  assert.equal((await load(tinyAt(server.url))).hash, HASH);
  assert.equal(sent(), 2);
  assert.equal((await load(tinyAt(server.url), { cache: false })).hash, HASH);
});

test('a busy server is asked again, and one that stays busy is named', async () => {
  await fresh();
  let n = 0;
  server.fault = (_, path) => (isWeights(path) && n++ % 3 === 0 ? { status: 503, after: '0.01' } : {});
  assert.equal((await load(tinyAt(server.url))).hash, HASH);
  await fresh();
  server.fault = (_, path) => (isWeights(path) ? { status: 429 } : {});
  assert.match((await load(tinyAt(server.url))).error?.message ?? '', /answered 429/);
  server.fault = (_, path) => (isWeights(path) ? { status: 403 } : {});
  assert.match((await load(tinyAt(server.url))).error?.hint ?? '', /authorization/);
  for (const [status, hint] of [[500, 'the server failed: try again later'], [429, 'the server is busy: try again later'], [404, 'check the address']]) {
    server.fault = (_, path) => (isWeights(path) ? { status, after: '0.01' } : {});
    assert.equal((await load(tinyAt(server.url))).error?.hint, hint);
  }
});

test('near ranges are joined, and at most six requests run at once', async () => {
  await fresh();
  let [now, most] = [0, 0];
  server.fault = (request, path) => {
    if (!isWeights(path)) return {};
    most = Math.max(most, ++now);
    request.once('close', () => (now -= 1));
    return {};
  };
  assert.equal((await load(tinyAt(server.url), { cache: false })).hash, HASH);
  assert.ok(most <= 6, String(most));
});

/** Loads `source` twice. The second time, the server fails, so the files must come from the cache. */
const twice = async (source, options = {}) => {
  await fresh();
  const first = await load(source(server.url), options);
  assert.equal(first.hash, HASH, JSON.stringify(first.error));
  await fresh(true);
  server.fault = (_, path) => (path.startsWith('/pkg') ? {} : { status: 500 });
  const second = await load(source(server.url), options);
  assert.equal(second.hash, HASH, JSON.stringify(second.error));
  assert.deepEqual(server.log.filter(({ path }) => !path.startsWith('/pkg') && path !== '/' && path !== '/favicon.ico'), []);
  return [first, second];
};

test('a manifest of shards, and again without the server', async () => {
  await twice((url) => `${url}/shards/wingbeat.manifest.json`);
  await twice((url) => `${url}/shards/`);
});

test('an index of shards with the small files beside it, and again without the server', async () => {
  await twice((url) => `${url}/shards/model.safetensors.index.json`);
});

test('a file with the small files beside it, and again without the server', async () => {
  await twice((url) => `${url}/tiny/model.safetensors`);
});

test('a repository of the hub, and again without the server', async () => {
  await fresh();
  await twice(() => 'hf:a/b', { endpoint: server.url });
  await twice((url) => `${url}/a/b/resolve/main/model.safetensors`, { endpoint: server.url });
  assert.match((await load('hf:a/b/absent.gguf', { endpoint: server.url })).error?.message ?? '', /answered 500/);
});

test('`revalidate` asks again, and fetches a changed file', async () => {
  await fresh();
  assert.equal((await load(tinyAt(server.url))).hash, HASH);
  server.log.length = 0;
  assert.equal((await load(tinyAt(server.url), { revalidate: true })).hash, HASH);
  assert.ok(server.log.filter(({ path }) => isWeights(path)).every(({ range }) => range === 'bytes=0-0'), JSON.stringify(server.log));
  server.log.length = 0;
  server.fault = (_, path) => (isWeights(path) ? { etag: 2 } : {});
  assert.equal((await load(tinyAt(server.url), { revalidate: true })).hash, HASH);
  assert.ok(server.log.filter(({ path }) => isWeights(path)).length > 2);
});

test('a shard with another hash than its manifest says is refused and not kept', async () => {
  await fresh();
  server.fault = (_, path) => (path.includes('00002-of') ? { flip: 1_000_000 } : {});
  const source = `${server.url}/shards/wingbeat.manifest.json`;
  assert.match((await load(source)).error?.message ?? '', /00002-of-00002.*expected the SHA-256/);
  Object.assign(server, { fault: null, log: [] });
  assert.equal((await load(source)).hash, HASH);
  assert.equal(server.log.filter(({ path }) => path.includes('00001-of')).length, 0);
});

test('folders, file handles and lists of a user', async () => {
  await fresh();
  const found = await page.evaluate(async (urls) => {
    const wingbeat = await import('/pkg/index.js');
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('mine', { create: true });
    for (const url of urls) {
      const out = await (await folder.getFileHandle(url.split('/').pop(), { create: true })).createWritable();
      await out.write(await (await fetch(url)).blob());
      await out.close();
    }
    const buffer = await (await fetch(urls[0])).arrayBuffer();
    const files = new DataTransfer();
    for (const url of urls) files.items.add(new File([await (await fetch(url)).blob()], url.split('/').pop()));
    const sources = { folder, handle: await folder.getFileHandle('small-world.safetensors'), files: files.files, buffer, view: new DataView(buffer), set: new Set(urls), url: new URL(urls[0]), relative: '/tiny/small-world.safetensors', relatives: ['tiny/small-world.safetensors', { url: 'tiny/vocab.txt' }] };
    const hashes = {};
    for (const [name, source] of Object.entries(sources)) {
      const model = await wingbeat.load(source, { device: 'cpu', cache: false }).catch((error) => ({ info: { weights_hash: error.message } }));
      hashes[name] = model.info.weights_hash;
      await model.free?.();
    }
    return hashes;
  }, tinyAt(server.url));
  assert.deepEqual(Object.entries(found).filter(([, hash]) => hash !== HASH), []);
});

test('a tab that is killed while it writes keeps what it has', async () => {
  await fresh();
  assert.equal((await load(tinyAt(server.url))).hash, HASH);
  const cut = async (name) =>
    page.evaluate(async (name) => {
      const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('wingbeat-cache');
      for await (const folder of root.values()) {
        const file = await folder.getFileHandle(name).catch(() => null);
        const size = (await file?.getFile())?.size;
        const out = await file?.createWritable({ keepExistingData: true });
        await out?.truncate(Math.floor(size / 2));
        await out?.close();
      }
    }, name);
  await cut('entry-0.json');
  server.log.length = 0;
  assert.equal((await load(tinyAt(server.url), { integrity: digest })).hash, HASH);
  const bytes = server.log.filter(({ path, range }) => isWeights(path) && range !== 'bytes=0-0').length;
  assert.ok(bytes <= 1, `${bytes} requests`);
});
