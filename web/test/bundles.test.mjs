// The example of docs/browser.md in production builds: minified, with hashed names, in a folder below the root of the server.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { launch } from './browser.mjs';
import { root } from './models.mjs';
import { serve } from './server.mjs';

const web = join(root, 'web');
/** The example of the documentation. SCRIPT adds lines that print the names of errors, which minifiers must not change. */
const [, EXAMPLE] = /```js\n([\s\S]*?)```/.exec(readFileSync(join(root, 'docs/browser.md'), 'utf8'));
const SCRIPT = `${EXAMPLE}
const names = [];
for (const Class of ['WingbeatError', 'InputError', 'FileError', 'DeviceError', 'MemoryError', 'BusyError', 'AbortError']) names.push(new wingbeat[Class]('x').name);
names.push(await wingbeat.load(files, { quant: 'i5' }).catch((error) => error.name));
console.log('names', ...names);
console.log('ended');
`;
const NAMES = 'names WingbeatError InputError FileError DeviceError MemoryError BusyError AbortError InputError';
const HTML = (script) => `<!doctype html><html lang="en"><title>x</title><body><script type="module" src="${script}"></script></body></html>`;
let browser, folder;

before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), 'wingbeat-bundles-'));
  for (const name of ['pkg', 'pkg-tiny']) execFileSync('npm', ['pack', '--silent', '--pack-destination', folder], { cwd: join(web, name) });
  const archives = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'project', private: true, type: 'module' }));
  execFileSync('npm', ['install', '--silent', '--no-audit', '--no-fund', '--offline', '--legacy-peer-deps', ...archives.map((name) => `./${name}`)], { cwd: folder });
  writeFileSync(join(folder, 'main.js'), SCRIPT);
  writeFileSync(join(folder, 'index.html'), HTML('/main.js'));
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Opens a build in Chromium. The example has to write a text, and errors have to keep their names. */
const runs = async (path) => {
  const server = await serve({ '/app': path });
  const page = await browser.newPage();
  try {
    const lines = [];
    const ended = new Promise((done, fail) => {
      page.on('console', (message) => {
        lines.push(message.text());
        if (message.text() === 'ended') done();
      });
      page.on('pageerror', fail);
    });
    await page.goto(`${server.url}/app/index.html`);
    await ended;
    assert.ok(lines.some((line) => /^\d+ tokens$/.test(line)), lines.join('\n'));
    assert.ok(lines.includes(NAMES), lines.join('\n'));
    return server.log.map(({ path }) => path);
  } finally {
    await page.close();
    await server.close();
  }
};

const isHashed = (paths, pattern) => assert.ok(paths.some((path) => pattern.test(path)), paths.join('\n'));

test('vite', async () => {
  const { build } = await import('vite');
  const out = join(folder, 'vite');
  await build({ root: folder, logLevel: 'error', configFile: false, base: './', build: { outDir: out, target: 'es2022' } });
  const paths = await runs(out);
  isHashed(paths, /assets\/index-[\w-]{8}\.js$/);
  isHashed(paths, /assets\/small-world-[\w-]{8}\.safetensors$/);
  isHashed(paths, /assets\/vocab-[\w-]{8}\.txt$/);
});

test('esbuild', async () => {
  const { build } = await import('esbuild');
  const out = join(folder, 'esbuild');
  const names = { entryNames: '[name]-[hash]', chunkNames: '[name]-[hash]', assetNames: '[name]-[hash]' };
  const { metafile } = await build({ entryPoints: [join(folder, 'main.js')], bundle: true, minify: true, format: 'esm', splitting: true, outdir: join(out, 'assets'), metafile: true, logLevel: 'error', ...names });
  const entry = Object.entries(metafile.outputs).find(([, { entryPoint }]) => entryPoint)[0].split('/').pop();
  // esbuild does not copy files that are named by address, so docs/browser.md says to copy them beside the script
  for (const name of ['wingbeat_bg.wasm', 'world.vocab']) cpSync(join(folder, 'node_modules/wingbeat', name), join(out, 'assets', name));
  for (const name of ['small-world.safetensors', 'vocab.txt']) cpSync(join(folder, 'node_modules/wingbeat-tiny', name), join(out, 'assets', name));
  writeFileSync(join(out, 'index.html'), HTML(`./assets/${entry}`));
  isHashed(await runs(out), /assets\/main-[A-Z0-9]{8}\.js$/);
});

test('esbuild, with hashed files', async () => {
  const { build } = await import('esbuild');
  const out = join(folder, 'hashed');
  mkdirSync(out);
  const files = `
    import weights from 'wingbeat-tiny/small-world.safetensors';
    import vocabulary from 'wingbeat-tiny/vocab.txt';
    import wasm from 'wingbeat/wingbeat_bg.wasm';
    const at = (path) => new URL(path, import.meta.url).href;
    const files = [{ name: 'small-world.safetensors', url: at(weights) }, { name: 'vocab.txt', url: at(vocabulary) }];`;
  // the lines of the documentation, with the addresses that the bundler gives
  const script = SCRIPT.replace("import files from 'wingbeat-tiny';", files).replaceAll('load(files, {', 'load(files, { wasm: at(wasm),');
  writeFileSync(join(folder, 'hashed.js'), script);
  const loader = { '.safetensors': 'file', '.txt': 'file', '.wasm': 'file' };
  const names = { entryNames: 'main', chunkNames: '[name]-[hash]', assetNames: '[name]-[hash]' };
  await build({ entryPoints: [join(folder, 'hashed.js')], bundle: true, minify: true, format: 'esm', splitting: true, outdir: out, loader, logLevel: 'error', ...names });
  writeFileSync(join(out, 'index.html'), HTML('./main.js'));
  const paths = await runs(out);
  isHashed(paths, /\/small-world-[A-Z0-9]{8}\.safetensors$/);
  isHashed(paths, /\/vocab-[A-Z0-9]{8}\.txt$/);
});
