// Tests the package outside of pages: in a worker of the user, a service worker, a shared worker, Node with a GPU, and Deno.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { launch, open } from './browser.mjs';
import { embedded } from './models.mjs';
import { serve } from './server.mjs';
import { tiny } from './tiny.mjs';

const web = join(import.meta.dirname, '..');
const N = 8;
const ICD = '/usr/lib/chromium/vk_swiftshader_icd.json';
let browser, server, folder;

/** A script that continues the prompt of the tiny model, and calls `tell` with the tokens or the error. */
const script = (from, files, options, tell) => `
  import * as wingbeat from '${from}';
  try {
    const model = await wingbeat.load(${files}, ${JSON.stringify(options)});
    const done = await model.generate({ tokens: ${JSON.stringify(embedded.tokens)}, max_tokens: ${N}, temperature: 0, ignore_eos: true }).done();
    const { backend } = model.info.device;
    await model.free();
    ${tell}({ tokens: done.tokens, backend });
  } catch (error) {
    ${tell}({ error: error.name + ': ' + error.message + ' ' + error.hint });
  }`;

/** Moves a script into an async function, for environments without `await` at the top of a script. */
const inFunction = (text, tell) => {
  const [, first, rest] = /^\s*(import [^\n]*)\n([^]*)$/.exec(text);
  return `${first}\n${tell(`(async () => {${rest}})()`)}`;
};

before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), 'wingbeat-places-'));
  const files = JSON.stringify(['/tiny/small-world.safetensors', '/tiny/vocab.txt']);
  const scripts = {
    '/own/worker.js': script('/pkg/index.js', files, { device: 'gpu', selfTest: false }, 'postMessage'),
    '/own/service.js': inFunction(script('/pkg/in-place.js', files, { device: 'cpu' }, 'event.source.postMessage'), (work) => `onmessage = (event) => event.waitUntil(${work});`),
    '/own/shared.js': inFunction(script('/pkg/index.js', files, { device: 'cpu' }, 'port.postMessage'), (work) => `onconnect = ({ ports: [port] }) => ${work};`),
  };
  server = await serve({ '/pkg': join(web, 'pkg'), '/tiny': tiny, '/own': (path) => Buffer.from(scripts[path]) });
});
after(async () => {
  await browser?.close();
  await server?.close();
  rmSync(folder, { recursive: true, force: true });
});

const expected = (found, backend) => assert.deepEqual(found, { tokens: embedded.greedy.slice(0, N), backend });

const inPage = async (work) => {
  const page = await open(browser, server.url);
  const found = await page.evaluate(work);
  assert.deepEqual(page.failures, []);
  await page.close();
  return found;
};

test('a worker of the user, on the GPU', async () => {
  const found = await inPage(
    () =>
      new Promise((done) => {
        const worker = new Worker('/own/worker.js', { type: 'module' });
        worker.onmessage = ({ data }) => done(data);
        worker.onerror = ({ message }) => done({ error: message });
      }),
  );
  expected(found, 'webgpu');
});

test('a service worker', async () => {
  const found = await inPage(async () => {
    const registration = await navigator.serviceWorker.register('/own/service.js', { type: 'module' });
    const worker = registration.installing ?? registration.active;
    await new Promise((done) => (worker.state === 'activated' ? done() : (worker.onstatechange = () => worker.state === 'activated' && done())));
    const answer = new Promise((done) => (navigator.serviceWorker.onmessage = ({ data }) => done(data)));
    navigator.serviceWorker.startMessages();
    worker.postMessage('run');
    const found = await answer;
    await registration.unregister();
    return found;
  });
  expected(found, 'cpu');
});

test('a shared worker', async () => {
  const found = await inPage(
    () =>
      new Promise((done) => {
        const worker = new SharedWorker('/own/shared.js', { type: 'module' });
        worker.onerror = ({ message }) => done({ error: message });
        worker.port.onmessage = ({ data }) => done(data);
      }),
  );
  expected(found, 'cpu');
});

/** Runs a script with a program, in a folder with the package. Returns the JSON value that the script printed. */
const runWith = (program, args, text, environment = {}) => {
  const own = mkdtempSync(join(folder, 'run-'));
  mkdirSync(join(own, 'node_modules'));
  cpSync(join(web, 'pkg'), join(own, 'node_modules/wingbeat'), { recursive: true });
  writeFileSync(join(own, 'package.json'), JSON.stringify({ private: true, type: 'module' }));
  if (environment.WINGBEAT_DAWN) cpSync(join(web, 'node_modules/webgpu'), join(own, 'node_modules/webgpu'), { recursive: true });
  writeFileSync(join(own, 'main.mjs'), text);
  const { stdout, stderr, status } = spawnSync(program, [...args, 'main.mjs'], { cwd: own, encoding: 'utf8', timeout: 120_000, env: { ...process.env, WINGBEAT_CACHE: join(own, 'cache'), ...environment } });
  assert.equal(status, 0, stdout + stderr);
  return JSON.parse(stdout.trim().split('\n').at(-1));
};
const print = '((found) => console.log(JSON.stringify(found)))';
const path = JSON.stringify(join(web, 'pkg-tiny/small-world.safetensors'));

test('Node with the package webgpu', { skip: !existsSync(ICD) && `no ${ICD}` }, () => {
  const environment = { VK_ICD_FILENAMES: ICD, WINGBEAT_DAWN: 'backend=vulkan' };
  expected(runWith('node', [], script('wingbeat', path, { device: 'gpu', selfTest: false }, print), environment), 'webgpu');
});

test('Node without it says what is missing', () => {
  const { error } = runWith('node', [], script('wingbeat', path, { device: 'gpu', selfTest: false }, print));
  assert.match(error, /DeviceError: .*npm install webgpu/);
});

test('Node, from a server, with a cache and states in files', () => {
  const text = `
    import * as wingbeat from 'wingbeat';
    import { createServer } from 'node:http';
    import { readFileSync } from 'node:fs';
    let requests = 0;
    const server = createServer((request, response) => {
      requests += 1;
      const bytes = readFileSync(${JSON.stringify(join(web, 'pkg-tiny'))} + request.url);
      const [start, end] = request.headers.range.match(/\\d+/g).map(Number);
      response.writeHead(206, { 'content-range': 'bytes ' + start + '-' + end + '/' + bytes.length });
      response.end(bytes.subarray(start, end + 1));
    }).listen(0);
    const base = 'http://127.0.0.1:' + server.address().port;
    const source = [base + '/small-world.safetensors', base + '/vocab.txt'];
    await (await wingbeat.load(source, { device: 'cpu' })).free();
    const before = requests;
    const model = await wingbeat.load(source, { device: 'cpu' });
    const kept = [requests - before, (await wingbeat.cache.list()).map(({ isComplete }) => isComplete)];
    await model.generate({ prompt: 'Once upon', max_tokens: 4, save_state: 'a' }).text();
    await model.states.save('a', 'a.state');
    const { n_tokens } = await model.states.load('b', 'a.state');
    const missing = await model.states.load('c', 'absent.state').catch((error) => error.name);
    const check = await wingbeat.check();
    const report = [n_tokens, (await model.states.list()).length, missing, typeof check.verdict, wingbeat.version];
    await model.free();
    server.close();
    report.push(...kept, await wingbeat.cache.remove(), (await wingbeat.cache.list()).length);
    console.log(JSON.stringify(report));`;
  const { version } = JSON.parse(readFileSync(join(web, 'pkg/package.json'), 'utf8'));
  const [n, states, missing, verdict, found, ...cache] = runWith('node', [], text);
  assert.ok(n >= 5);
  assert.deepEqual([states, missing, verdict, found], [2, 'FileError', 'string', version]);
  assert.deepEqual(cache, [0, [true, true], 2, 0]);
});

test('Node, from `file:` addresses and paths in a list', () => {
  const text = `
    import * as wingbeat from 'wingbeat';
    import { join } from 'node:path';
    import { pathToFileURL } from 'node:url';
    const paths = ['small-world.safetensors', 'vocab.txt'].map((name) => join(${JSON.stringify(join(web, 'pkg-tiny'))}, name));
    const urls = paths.map((path) => pathToFileURL(path));
    const sources = { paths, urls, hrefs: urls.map(String), named: paths.map((path, i) => ({ name: ['m.safetensors', 'vocab.txt'][i], url: i ? urls[i].href : path })) };
    const report = {};
    for (const [name, source] of Object.entries(sources)) {
      const model = await wingbeat.load(source, { device: 'cpu' });
      report[name] = [await model.detokenize(await model.tokenize('Once upon a time')), model.info.name];
      await model.free();
    }
    const began = performance.now();
    const absent = await wingbeat.load([urls[0].href + '.absent.safetensors'], { device: 'cpu' }).catch((error) => [error.name, error.message, error.hint]);
    console.log(JSON.stringify({ ...report, absent, seconds: (performance.now() - began) / 1000 }));`;
  const { absent, seconds, ...report } = runWith('node', [], text);
  const words = 'Once upon a time';
  assert.deepEqual(report, { paths: [words, 'small-world'], urls: [words, 'small-world'], hrefs: [words, 'small-world'], named: [words, 'm'] });
  assert.deepEqual([absent[0], absent[2]], ['FileError', 'check the path']);
  assert.match(absent[1], /absent\.safetensors: no such file or folder/);
  assert.ok(seconds < 1, String(seconds));
});

const deno = [process.env.DENO, 'deno'].find((program) => program && spawnSync(program, ['--version']).status === 0);

test('Deno', { skip: !deno && 'no deno' }, () => {
  expected(runWith(deno, ['run', '-A'], script('wingbeat', path, { device: 'cpu' }, print)), 'cpu');
});

test('Deno, on a GPU', { skip: (!deno && 'no deno') || (!existsSync(ICD) && `no ${ICD}`) }, () => {
  const text = script('wingbeat', path, { device: 'gpu', selfTest: false }, print);
  expected(runWith(deno, ['run', '-A', '--unstable-webgpu'], text, { VK_ICD_FILENAMES: ICD }), 'webgpu');
});
