// Assembles the npm package in web/pkg: the JavaScript of web/js, the module that wasm-bindgen wrote, the worker as a text, and the vocabulary of World
// models, compressed. The tiny model is a package of its own, in web/pkg-tiny.
// usage: node pack.mjs FOLDER     FOLDER has wingbeat.js and wingbeat_bg.wasm

import { build } from 'esbuild';
import { copyFileSync, cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';

const [built] = process.argv.slice(2);
const web = join(import.meta.dirname, '..');
const root = join(web, '..');
const out = join(web, 'pkg');

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
cpSync(join(web, 'js'), out, { recursive: true });
for (const name of ['wingbeat.js', 'wingbeat_bg.wasm', 'wingbeat.d.ts']) copyFileSync(join(built, name), join(out, name));
for (const name of ['LICENSE-APACHE', 'LICENSE-MIT']) copyFileSync(join(root, name), join(out, name));
writeFileSync(join(out, 'world.vocab'), gzipSync(readFileSync(join(root, 'assets/vocab/rwkv_vocab_v20230424.txt')), { level: 9 }));

const { version } = JSON.parse(readFileSync(join(out, 'package.json'), 'utf8'));
if (!readFileSync(join(out, 'index.js'), 'utf8').includes(`version = '${version}'`)) {
  console.error(`pack: web/js/index.js has another version than web/js/package.json, ${version}`);
  process.exit(1);
}

// Bundlers have no common way to find the file of a worker. A worker from a text needs none, and also works from another origin.
const worker = await build({
  entryPoints: [join(out, 'worker.js')],
  bundle: true,
  format: 'esm',
  minify: true,
  write: false,
  logLevel: 'error',
  target: 'es2022',
});
writeFileSync(join(out, 'worker-text.js'), `// The file worker.js with all that it imports, as a text.\nexport default ${JSON.stringify(worker.outputFiles[0].text)};\n`);

// Starts the module, so that a module that optimisers have damaged fails here and not at users.
const { default: init, version: started } = await import(pathToFileURL(join(out, 'wingbeat.js')).href);
await init({ module_or_path: readFileSync(join(out, 'wingbeat_bg.wasm')) });
started();

const tiny = join(web, 'pkg-tiny');
rmSync(tiny, { recursive: true, force: true });
mkdirSync(tiny, { recursive: true });
copyFileSync(join(root, 'assets/models/small-world.safetensors'), join(tiny, 'small-world.safetensors'));
copyFileSync(join(root, 'assets/vocab/small-world.txt'), join(tiny, 'vocab.txt'));
for (const name of readdirSync(join(web, 'tiny'))) copyFileSync(join(web, 'tiny', name), join(tiny, name));
for (const name of ['LICENSE-APACHE', 'LICENSE-MIT']) copyFileSync(join(root, name), join(tiny, name));
