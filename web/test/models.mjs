// The tiny models with their official continuations.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { open } from './browser.mjs';

export const root = join(import.meta.dirname, '../..');
const tests = join(root, 'tests/models');

/** Reads the tensors of integers in a safetensors file. */
function integers(path) {
  const bytes = readFileSync(path);
  const length = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.subarray(8, 8 + length));
  const read = (name) => {
    const { dtype, data_offsets: [start, end] } = header[name];
    const data = bytes.subarray(8 + length + start, 8 + length + end);
    const width = dtype === 'I64' ? 8 : 4;
    return Array.from({ length: data.length / width }, (_, i) => (width === 8 ? Number(data.readBigInt64LE(8 * i)) : data.readInt32LE(4 * i)));
  };
  return { tokens: read('tokens'), greedy: read('greedy') };
}

const model = (name, files, golden) => ({ name, files, ...integers(golden) });

/** The embedded model of the program, which the package wingbeat-tiny contains. */
export const embedded = model('small-world', [join(root, 'assets/models/small-world.safetensors')], join(root, 'assets/golden/small-world.golden.safetensors'));

/** `{name, files, tokens, greedy, options}` of each model: the files to load, a prompt, its official greedy continuation, and options of `load`. */
export const models = [
  model('rwkv7', [join(tests, 'tiny-rwkv7.safetensors')], join(tests, 'tiny-rwkv7.golden.safetensors')),
  ...['rwkv4', 'rwkv5', 'rwkv6'].map((name) => model(name, [join(tests, `tiny-${name}.safetensors`)], join(tests, `tiny-${name}.golden.safetensors`))),
  model('glm4', [join(tests, 'tiny-glm4/model.safetensors'), join(tests, 'tiny-glm4/config.json')], join(tests, 'tiny-glm4.golden.safetensors')),
  // Small errors choose other experts in a random model, so its weights stay floats of 32 bits.
  { ...model('flash', ['model.safetensors', 'config.json'].map((file) => join(tests, 'flash', file)), join(tests, 'flash.golden.safetensors')), options: { dtype: 'f32' } },
].filter(({ files }) => files.every((file) => existsSync(file)));

/** The addresses of a model's files below `base`. */
export const addresses = (base, { name, files }) => files.map((file) => `${base}/models/${name}/${basename(file)}`);

/** A folder for `serve`: the models' files by address. */
export const folder = (path) => {
  const [, , name, file] = path.split('/');
  const found = models.find((each) => each.name === name)?.files.find((each) => basename(each) === file);
  return found ? readFileSync(found) : null;
};

/** Loads a model in a page of its own and continues its prompt by `n` tokens. Returns `{tokens, device, stats}` or `{error}`. */
export const continued = async (browser, base, model, options, n) => {
  const page = await open(browser, base);
  const run = async (files, options, tokens, n) => {
    const wingbeat = await import('/pkg/index.js');
    try {
      const model = await wingbeat.load(files, { cache: false, ...options });
      const done = await model.generate({ tokens, max_tokens: n, temperature: 0, ignore_eos: true }).done();
      const stats = await model.stats();
      await model.free();
      return { tokens: done.tokens, device: model.info.device, stats };
    } catch (error) {
      return { error: `${error.name}: ${error.message} (${error.hint})` };
    }
  };
  const found = await page.evaluate(run, addresses(base, model), options, model.tokens, n);
  await page.close();
  assert.deepEqual(page.failures, []);
  return found;
};

const built = process.env.CARGO_TARGET_DIR ?? join(root, 'target');
/** The program to compare with: the variable WINGBEAT, or what cargo built last, else undefined. */
export const program = [process.env.WINGBEAT, join(built, 'release/wingbeat'), join(built, 'debug/wingbeat')].find((path) => path && existsSync(path));
