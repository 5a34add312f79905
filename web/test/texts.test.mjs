// The texts of the package must equal the texts of the official implementations, in a worker and in the page, with all kernels.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { launch } from './browser.mjs';
import { continued, folder, models, program } from './models.mjs';
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
