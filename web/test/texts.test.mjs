// The texts of the package must equal the texts of the official implementations, in a worker and in the page, with all kernels.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { launch, open } from './browser.mjs';
import { addresses, continued, folder, models, program } from './models.mjs';
import { serve } from './server.mjs';

const N = 24;
let browser, server;

before(async () => {
  browser = await launch();
  server = await serve({ '/pkg': join(import.meta.dirname, '../pkg'), '/models': folder });
});
after(async () => {
  await browser?.close();
  await server?.close();
});

const generate = (model, options, n = N) => continued(browser, server.url, model, options, n);

for (const model of models) {
  test(`${model.name} in a worker has the official text`, async () => {
    const n = Math.min(N, model.greedy.length);
    const { tokens, error, device } = await generate(model, { device: 'gpu', ...model.options }, n);
    assert.equal(error, undefined);
    assert.deepEqual(tokens, model.greedy.slice(0, n));
    assert.equal(device.backend, 'webgpu');
  });
}

test('in the page, without a worker', async () => {
  const { tokens, error } = await generate(models[0], { device: 'gpu', worker: false });
  assert.equal(error, undefined);
  assert.deepEqual(tokens, models[0].greedy.slice(0, N));
});

test('on the CPU', async () => {
  const { tokens, error, device } = await generate(models[0], { device: 'cpu' });
  assert.equal(error, undefined);
  assert.deepEqual(tokens, models[0].greedy.slice(0, N));
  assert.equal(device.backend, 'cpu');
});

test('on the CPU, halves that are subnormal or zero have their values', async () => {
  const page = await open(browser, server.url);
  const run = async (address, tokens, n) => {
    const wingbeat = await import('/pkg/index.js');
    const bytes = new Uint8Array(await (await fetch(address)).arrayBuffer());
    const view = new DataView(bytes.buffer);
    const length = Number(view.getBigUint64(0, true));
    const [start, end] = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)))['head.weight'].data_offsets;
    // Every fourth weight gets the exponent 0, a sign and ten bits of a hash.
    for (let at = 8 + length + start; at < 8 + length + end; at += 8) view.setUint16(at, (Math.imul(at, 2654435761) >>> 16) & 0x83ff, true);
    const logprobs = async (dtype) => {
      const model = await wingbeat.load([{ name: 'm.safetensors', bytes }], { device: 'cpu', cache: false, dtype });
      const events = await model.generate({ tokens, max_tokens: n, temperature: 0, ignore_eos: true, logprobs: 20 }).all();
      await model.free();
      return events.filter(({ type }) => type === 'logprobs').map(({ id, logprob, top_logprobs }) => [id, logprob, top_logprobs.map((top) => [top.id, top.logprob])]);
    };
    return [await logprobs('f16'), await logprobs('f32')];
  };
  const [halves, singles] = await page.evaluate(run, addresses(server.url, models[0])[0], models[0].tokens, 8);
  await page.close();
  assert.equal(halves.length, 8);
  assert.deepEqual(halves, singles);
});

test('with the kernels for real GPUs', async () => {
  const { tokens, error } = await generate(models[0], { device: 'gpu', class: 'groups' }, 6);
  assert.equal(error, undefined);
  assert.deepEqual(tokens, models[0].greedy.slice(0, 6));
});

test("rounded activations give the program's text", { skip: !program && 'no program was built' }, async () => {
  const model = models[0];
  const options = { quant: 'i4', activations: 'i8' };
  const flags = ['--device', 'gpu', '--tokens', model.tokens, '--temperature', 0, '--ignore-eos', '-n', N, '--json'];
  const made = spawnSync(program, ['generate', '-m', model.files[0], '--quant', options.quant, '--activations', options.activations, ...flags], {
    encoding: 'utf8',
    env: { ...process.env, WINGBEAT_KERNELS: 'groups' },
  });
  assert.equal(made.status, 0, made.stderr);
  const { tokens, error } = await generate(model, { device: 'gpu', class: 'groups', ...options });
  assert.equal(error, undefined);
  assert.ok(model.tokens.length > 16, 'the prompt is long enough for products that round');
  assert.deepEqual(tokens, JSON.parse(made.stdout).tokens);
});

test("naga's WGSL, which loses @align, computes other texts", async () => {
  const { tokens, error } = await generate(models[0], { device: 'gpu', variables: { WINGBEAT_WGSL: 'naga' } });
  assert.equal(error, undefined);
  assert.notDeepEqual(tokens, models[0].greedy.slice(0, N), 'wgpu hands over @align now: the own text is not needed any more');
});
