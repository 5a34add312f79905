// Builds the demo, serves it, and opens it in Chromium.

import { execFileSync } from 'node:child_process';
import { appendFileSync, cpSync, createReadStream, existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { extname, join, normalize } from 'node:path';
import { after, before, test } from 'node:test';
import { launch } from '../../test/browser.mjs';

const here = import.meta.dirname;
const web = join(here, '../..');
export const page = join(web, '../server/page');
/** True if `tools/web.sh` has built the package. */
export const real = existsSync(join(web, 'pkg/wingbeat_bg.wasm')) && existsSync(join(web, 'pkg-tiny/small-world.safetensors'));

/** A folder for the files of a test run. */
export const scratch = mkdtempSync(join(tmpdir(), 'wingbeat-demo-'));
process.on('exit', () => rmSync(scratch, { recursive: true, force: true }));

/** Assembles the demo with the fake package, or with the real one. Returns the folder. `extra` is appended to the fake package. */
export const build = (name, { isReal = false, extra = '' } = {}) => {
  const out = join(scratch, name);
  const fake = join(scratch, `${name}-package`);
  if (!isReal) {
    cpSync(join(here, 'fake'), fake, { recursive: true });
    appendFileSync(join(fake, 'index.js'), extra);
  }
  const parts = isReal ? [] : ['--package', fake, '--tiny', join(web, 'tiny')];
  execFileSync(process.execPath, [join(web, 'demo/build.mjs'), '--out', out, ...parts], { stdio: ['ignore', 'ignore', 'inherit'] });
  return out;
};

const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json', '.wasm': 'application/wasm' };

/** Serves `folders` (`{'/path/': folder}`) as a plain static host: `index.html` for a folder, ranges, no headers of its own. `log` has all requests. */
export const serve = async (folders) => {
  const state = { folders, log: [], isDown: false };
  const server = http.createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url, 'http://x').pathname);
    const prefix = Object.keys(state.folders).find((each) => path.startsWith(each));
    if (state.isDown) return request.socket.destroy();
    state.log.push(`${request.method} ${request.url}`);
    const inside = prefix && normalize(path.slice(prefix.length));
    let file = prefix && join(state.folders[prefix], inside);
    if (file && existsSync(file) && statSync(file).isDirectory()) file = join(file, 'index.html');
    response.setHeader('access-control-allow-origin', '*');
    if (!file || !existsSync(file)) return response.writeHead(404).end('not found');
    response.setHeader('content-type', TYPES[extname(file)] ?? 'application/octet-stream');
    const { size } = statSync(file);
    const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
    const [start, end] = [Number(from ?? 0), Math.min(Number(to || size - 1), size - 1)];
    if (from !== undefined) response.writeHead(206, { 'content-range': `bytes ${start}-${end}/${size}`, 'accept-ranges': 'bytes' });
    if (request.method === 'HEAD' || !size) return response.end();
    createReadStream(file, { start, end }).pipe(response);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const origin = `http://127.0.0.1:${server.address().port}`;
  const close = () => {
    server.closeAllConnections();
    return new Promise((done) => server.close(done));
  };
  return Object.assign(state, { origin, close, count: (text) => state.log.filter((line) => line.includes(text)).length });
};

/**
 * Starts a browser and a server for the tests of a file. Returns a function `(name, options, run)` that defines a test. `run` gets `{page, server, url,
 * open}`. The page is in a fresh context; `open` opens another page in this context. Options: `fake` (see fake/index.js), `width`, `scheme`. A test
 * fails if the page logs an error.
 */
export const tests = ({ isReal = false } = {}) => {
  let browser, server;
  before(async () => {
    server = await serve({ '/some/deep/folder/': build(isReal ? 'real' : 'fake', { isReal }), '/source/': page });
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    await server?.close();
  });
  return (name, options, run) =>
    test(name, { timeout: isReal ? 240_000 : 60_000, skip: options.skip ?? false }, async () => {
      const downloads = mkdtempSync(join(scratch, 'downloads-'));
      const context = await browser.createBrowserContext({ downloadBehavior: { policy: 'allow', downloadPath: downloads } });
      const url = `${server.origin}/some/deep/folder/`;
      const problems = [];
      const open = async () => {
        const page = await context.newPage();
        page.setDefaultTimeout(isReal ? 120_000 : 10_000);
        await page.setViewport({ width: options.width ?? 1280, height: 800 });
        await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: options.scheme ?? 'light' }, { name: 'prefers-reduced-motion', value: 'reduce' }]);
        await page.evaluateOnNewDocument((fake) => (globalThis.fake = fake), options.fake ?? {});
        page.on('pageerror', (error) => problems.push(String(error)));
        page.on('console', (message) => message.type() === 'error' && !/Failed to load resource/.test(message.text()) && problems.push(message.text()));
        await page.goto(url);
        await page.waitForSelector('#start-models button');
        return page;
      };
      let failed = null;
      try {
        await run({ page: await open(), open, server, url, downloads, problems });
      } catch (error) {
        failed = error;
      }
      server.isDown = false;
      await context.close().catch(() => {});
      if (failed) throw failed;
      if (problems.length) throw new Error(`the page logged: ${problems.join('; ')}`);
    });
};

/** Waits until `selector` has a text that matches `pattern`. Returns the text. */
export const see = async (page, selector, pattern) => {
  await page.waitForFunction((selector, source, flags) => new RegExp(source, flags).test(document.querySelector(selector)?.innerText ?? ''), {}, selector, pattern.source, pattern.flags).catch(async (error) => {
    const found = await page.evaluate((selector) => document.querySelector(selector)?.innerText, selector);
    throw new Error(`expected ${pattern} in ${selector}, found ${JSON.stringify(found)} (${error.message})`);
  });
  return page.$eval(selector, (element) => element.innerText);
};

export const focused = (page) => page.evaluate(() => document.activeElement?.id || document.activeElement?.getAttribute('aria-label') || document.activeElement?.textContent.trim());

/** Waits until the chat is shown. */
export const inChat = (page) => page.waitForSelector('body[data-view="chat"] #input', { visible: true });

/** Loads the tiny model and waits for the chat. */
export const loadTiny = async (page) => {
  await page.click('[data-id="small-world"]');
  await inChat(page);
};

/** Sends a message and waits for the end of the answer. Returns the text of the last answer. */
export const ask = async (page, text) => {
  await page.type('#input', text);
  await page.keyboard.press('Enter');
  await page.waitForSelector('#stop', { visible: true }).catch(() => {});
  await page.waitForSelector('#send', { visible: true });
  return page.evaluate(() => [...document.querySelectorAll('article.assistant .content')].at(-1)?.innerText);
};

/** Drops files and folders on the page. */
export const drop = async (page, paths) => {
  const session = await page.createCDPSession();
  const data = { items: [], files: paths, dragOperationsMask: 1 };
  for (const type of ['dragEnter', 'dragOver', 'drop']) await session.send('Input.dispatchDragEvent', { type, x: 300, y: 300, data });
  await session.detach();
};

const axe = readFileSync(join(web, 'node_modules/axe-core/axe.min.js'), 'utf8');

/** Returns the violations that axe-core finds. */
export const violations = async (page) => {
  const session = await page.createCDPSession();
  await session.send('Runtime.evaluate', { expression: axe });
  await session.detach();
  return page.evaluate(async () => {
    const { violations } = await globalThis.axe.run(document, { resultTypes: ['violations'] });
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`);
  });
};
