// The package as npm installs it: in pages of bundlers, in a bare page, in Node, and for TypeScript.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { launch, open } from './browser.mjs';
import { embedded } from './models.mjs';
import { serve } from './server.mjs';

const web = join(import.meta.dirname, '..');
const bin = (name) => join(web, 'node_modules/.bin', name);
const SCRIPT = `
import * as wingbeat from 'wingbeat';
import files from 'wingbeat-tiny';

export async function run() {
  const model = await wingbeat.load(files, { device: 'cpu', cache: false });
  const done = await model.generate({ tokens: ${JSON.stringify(embedded.tokens)}, max_tokens: 8, temperature: 0, ignore_eos: true }).done();
  return done.tokens;
}
globalThis.run = () => run().catch((error) => error.name + ': ' + error.message + ' ' + error.hint);
`;
const HTML = (script) => `<!doctype html><html lang="en"><title>x</title><body><script type="module" src="${script}"></script></body></html>`;
let browser, folder;

before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), 'wingbeat-package-'));
  for (const name of ['pkg', 'pkg-tiny']) execFileSync('npm', ['pack', '--silent', '--pack-destination', folder], { cwd: join(web, name) });
  const archives = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'project', private: true, type: 'module' }));
  execFileSync('npm', ['install', '--silent', '--no-audit', '--no-fund', '--offline', '--legacy-peer-deps', ...archives.map((name) => `./${name}`)], { cwd: folder });
  writeFileSync(join(folder, 'main.js'), SCRIPT);
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Opens a page and runs its model. */
const runs = async (url) => {
  const page = await open(browser, url);
  await page.waitForFunction(() => globalThis.run, { timeout: 60_000 });
  const found = await page.evaluate(() => globalThis.run());
  const { failures } = page;
  await page.close();
  assert.deepEqual([found, failures], [embedded.greedy.slice(0, 8), []]);
};

const served = async (path, work) => {
  const server = await serve({ '/app': path });
  try {
    await work(`${server.url}/app/index.html`, server);
  } finally {
    await server.close();
  }
};

test('a bare page with an import map', async () => {
  const bare = join(folder, 'bare');
  mkdirSync(bare);
  cpSync(join(folder, 'node_modules'), join(bare, 'lib'), { recursive: true });
  writeFileSync(join(bare, 'main.js'), SCRIPT);
  const map = '<script type="importmap">{"imports": {"wingbeat": "./lib/wingbeat/index.js", "wingbeat-tiny": "./lib/wingbeat-tiny/index.js"}}</script>';
  writeFileSync(join(bare, 'index.html'), HTML('./main.js').replace('<title>', `${map}<title>`));
  await served(bare, runs);
});

test('vite, development and production', async () => {
  const { build, createServer } = await import('vite');
  const root = join(folder, 'vite');
  mkdirSync(root);
  cpSync(join(folder, 'node_modules'), join(root, 'node_modules'), { recursive: true });
  writeFileSync(join(root, 'main.js'), SCRIPT);
  writeFileSync(join(root, 'index.html'), HTML('/main.js'));
  writeFileSync(join(root, 'package.json'), JSON.stringify({ name: 'app', private: true, type: 'module', dependencies: { wingbeat: '*', 'wingbeat-tiny': '*' } }));
  const config = { root, logLevel: 'error', configFile: false };
  const server = await createServer({ ...config, server: { port: 0, host: '127.0.0.1' } });
  await server.listen();
  try {
    await runs(server.resolvedUrls.local[0]);
  } finally {
    await server.close();
  }
  await build({ ...config, base: './', build: { outDir: join(root, 'dist') } });
  await served(join(root, 'dist'), runs);
});

test('esbuild, with the files copied beside', async () => {
  const { build } = await import('esbuild');
  const out = join(folder, 'esbuild');
  await build({ entryPoints: [join(folder, 'main.js')], bundle: true, format: 'esm', splitting: true, outdir: out, logLevel: 'error' });
  for (const name of ['wingbeat_bg.wasm', 'world.vocab']) cpSync(join(folder, 'node_modules/wingbeat', name), join(out, name));
  for (const name of ['small-world.safetensors', 'vocab.txt']) cpSync(join(folder, 'node_modules/wingbeat-tiny', name), join(out, name));
  writeFileSync(join(out, 'index.html'), HTML('./main.js'));
  await served(out, runs);
});

test('webpack', async () => {
  const { default: webpack } = await import('webpack');
  const out = join(folder, 'webpack');
  const config = { mode: 'production', context: folder, entry: './main.js', output: { path: out, filename: 'main.js' }, performance: { hints: false } };
  const stats = await new Promise((done, fail) => webpack(config, (error, stats) => (error ? fail(error) : done(stats))));
  assert.ok(!stats.hasErrors() && !stats.hasWarnings(), stats.toString('errors-warnings'));
  writeFileSync(join(out, 'index.html'), HTML('./main.js'));
  await served(out, runs);
});

test('a policy that forbids eval and blob workers names the way out', async () => {
  const policy = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'";
  const server = await serve({ '/pkg': join(web, 'pkg'), '/tiny': join(web, 'pkg-tiny') }, { 'content-security-policy': policy });
  const page = await open(browser, server.url);
  const load = (options) =>
    page.evaluate(async (options) => {
      const wingbeat = await import('/pkg/index.js');
      try {
        const model = await wingbeat.load(['/tiny/small-world.safetensors', '/tiny/vocab.txt'], { device: 'cpu', cache: false, ...options });
        return model.info.architecture;
      } catch (error) {
        return `${error.message}; ${error.hint}`;
      }
    }, options);
  assert.match(await load({}), /name the address of the package's worker.js with `worker`/);
  assert.equal(await load({ worker: '/pkg/worker.js' }), 'rwkv7');
  assert.equal(await load({ worker: false }), 'rwkv7');
  await page.close();
  await server.close();
});

test('Node, on the CPU, from the disk', () => {
  const script = `
    import * as wingbeat from 'wingbeat';
    const model = await wingbeat.load(${JSON.stringify(join(web, 'pkg-tiny/small-world.safetensors'))}, { device: 'cpu' });
    const done = await model.generate({ tokens: ${JSON.stringify(embedded.tokens)}, max_tokens: 8, temperature: 0, ignore_eos: true }).done();
    console.log(JSON.stringify([done.tokens, await model.detokenize(await model.tokenize('Once upon a time'))]));
    await model.free();`;
  writeFileSync(join(folder, 'node.mjs'), script);
  const { stdout, stderr, status } = spawnSync('node', ['node.mjs'], { cwd: folder, encoding: 'utf8', timeout: 120_000 });
  assert.equal(status, 0, stderr);
  assert.deepEqual(JSON.parse(stdout), [embedded.greedy.slice(0, 8), 'Once upon a time']);
});

const software = ['/usr/lib/chromium/vk_swiftshader_icd.json'].find((path) => existsSync(path));

test('Node, on a GPU through the npm package webgpu', { skip: !software && 'no SwiftShader' }, () => {
  const script = `
    import * as wingbeat from 'wingbeat';
    const model = await wingbeat.load(${JSON.stringify(join(web, 'pkg-tiny'))}, { device: 'gpu', selfTest: false });
    const done = await model.generate({ tokens: ${JSON.stringify(embedded.tokens)}, max_tokens: 8, temperature: 0, ignore_eos: true }).done();
    console.log(JSON.stringify([done.tokens, model.info.device.backend]));
    process.exit(0);`;
  cpSync(join(web, 'node_modules/webgpu'), join(folder, 'node_modules/webgpu'), { recursive: true });
  writeFileSync(join(folder, 'gpu.mjs'), script);
  const env = { ...process.env, VK_ICD_FILENAMES: software, WINGBEAT_DAWN: 'backend=vulkan' };
  const { stdout, stderr, status } = spawnSync('node', ['gpu.mjs'], { cwd: folder, encoding: 'utf8', timeout: 240_000, env });
  assert.equal(status, 0, stderr);
  assert.deepEqual(JSON.parse(stdout), [embedded.greedy.slice(0, 8), 'webgpu']);
});

test('TypeScript, strict', () => {
  const script = `
    import * as wingbeat from 'wingbeat';
    import files from 'wingbeat-tiny';
    const model: wingbeat.Model = await wingbeat.load(files, { quant: 'i8', onProgress: ({ stage, loaded }) => console.log(stage, loaded) });
    for await (const event of model.chat({ messages: [{ role: 'user', content: 'a' }], temperature: 0.5 })) {
      if (event.type === 'text') console.log(event.text.length);
      if (event.type === 'done') console.log(event.usage.completion_tokens);
    }
    const vector: Float32Array = await model.embed('a');
    const state: Blob = await model.states.export('a');
    try { await model.free(); } catch (error) { if (error instanceof wingbeat.InputError) console.log(error.field, vector, state); }
    // @ts-expect-error
    await model.chat({ prompt: 'a' });`;
  writeFileSync(join(folder, 'strict.ts'), script);
  const options = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'nodenext', '--lib', 'es2022,dom,dom.iterable', 'strict.ts'];
  const { stdout, status } = spawnSync(bin('tsc'), options, { cwd: folder, encoding: 'utf8' });
  assert.equal(status, 0, stdout);
});

test('publint and attw find nothing', () => {
  for (const name of ['pkg', 'pkg-tiny']) {
    const lint = spawnSync(bin('publint'), ['run', join(web, name), '--strict'], { encoding: 'utf8' });
    assert.equal(lint.status, 0, lint.stdout + lint.stderr);
    const types = spawnSync(bin('attw'), ['--pack', join(web, name), '--profile', 'esm-only', '--no-emoji'], { encoding: 'utf8' });
    assert.equal(types.status, 0, types.stdout + types.stderr);
  }
});

// with WINGBEAT_RELEASE=1, web/pkg must be a build for publication. Otherwise it may be that of `tools/web.sh quick`, which is larger
test('the module without models and vocabularies is small', async () => {
  const { brotliCompressSync, constants } = await import('node:zlib');
  const wasm = readFileSync(join(web, 'pkg/wingbeat_bg.wasm'));
  const size = brotliCompressSync(wasm, { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_LGWIN]: 24 } }).length;
  const limit = process.env.WINGBEAT_RELEASE ? 2_280_000 : 2_690_000;
  assert.ok(size <= limit, `${size} bytes, limit ${limit}`);
});
