// The choice of a model and the chat, with a fake package.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ask, drop, focused, inChat, loadTiny, scratch, see, tests } from './demo.mjs';

const check = tests();
const slow = { step: 60 };
const calls = (page) => page.evaluate(() => fake.calls);

const folder = join(scratch, 'my-model');
mkdirSync(join(folder, 'more'), { recursive: true });
for (const name of ['model.safetensors', 'vocab.txt', 'more/other.txt']) writeFileSync(join(folder, name), 'x'.repeat(1000));

check('both backends have the members that backend.js describes', {}, async ({ page }) => {
  const [http, local] = await page.evaluate(async () => {
    const members = ({ states, ...others }) => [...Object.keys(others), ...Object.keys(states).map((name) => `states.${name}`)].sort();
    return [members(await import('/source/http.js')), members(await import('./demo/local.js'))];
  });
  const ofServers = ['setKey', 'rest', 'cancel'];
  assert.deepEqual(local.filter((name) => name !== 'setModel'), http.filter((name) => !ofServers.includes(name)));
});

check('the list names sizes and licences, and the keyboard loads a model', {}, async ({ page }) => {
  await see(page, '#start-check', /Models run on test gpu/);
  const rows = await page.$$eval('#start-models li', (items) => items.map((item) => item.innerText));
  assert.ok(rows.length >= 3);
  for (const row of rows) assert.match(row, /(MB|GB) · licence \S+/);
  await page.keyboard.press('Tab');
  assert.equal(await focused(page), 'Load Small world');
  await page.keyboard.press('Enter');
  await inChat(page);
  // on a touch screen, a focused field would open the keyboard
  await page.waitForFunction(() => document.activeElement?.id === (matchMedia('(hover: hover)').matches ? 'input' : 'title'));
  const [{ files, quant, device }] = await calls(page);
  assert.deepEqual(files.map(({ name }) => name), ['small-world.safetensors', 'vocab.txt']);
  assert.match(files[0].url, /\/some\/deep\/folder\/models\/tiny\/small-world\.safetensors$/);
  assert.deepEqual([quant, device], ['', 'auto']);
  assert.match(await ask(page, 'apples'), /You wrote “apples”\. The engine is small-world/);
  await page.click('article.assistant [aria-haspopup=menu]');
  await see(page, '.figures', /\d+ tokens.*prompt 5, 2 cached.*100\.0 tokens\/s/s);
  await page.keyboard.press('Escape');
  await see(page, '#model-facts', /^2M f16 · Test GPU$/);
  await page.click('#aside-open');
  await see(page, '.speed', /tokens\/s on average.*Small world · f16 · on Test GPU/s);
  await see(page, '#spoken', /Small world is loaded/);
  assert.deepEqual(Object.keys(await page.evaluate(() => fake.requests[0])).sort(), ['messages', 'return_progress']);
});

check('a browser without WebGPU says so, and the CPU is left', { fake: { check: { ok: false, verdict: 'This browser has no WebGPU, so only small models run, on the CPU.', hint: 'use a current browser' } } }, async ({ page }) => {
  await see(page, '#start-check', /^This browser has no WebGPU, so only small models run, on the CPU\. Use a current browser\.$/);
  assert.ok(await page.$('#start-check.warns[role=status]'));
  await page.select('#start-device', 'cpu');
  await loadTiny(page);
  assert.equal((await calls(page))[0].device, 'cpu');
  assert.match(await page.$eval('#device', (element) => element.textContent), /Small world · f16 · on the CPU/);
});

check('a load shows bytes, rate, time and stages, and tells them to screen readers', { fake: slow }, async ({ page }) => {
  await page.click('[data-id="small-world"]');
  assert.equal(await focused(page), 'start-cancel');
  await see(page, '[data-stage="check"]', /Test of the GPU\s*(compares it with the CPU|done)/);
  await see(page, '[data-stage="download"]', /\d+\.\d MB of 40\.0 MB · 8\.0 MB\/s · about \d s left/);
  await page.waitForFunction(() => /^[1-9]\d? % · wingbeat$/.test(document.title));
  const value = await page.$eval('[data-stage="download"] progress', (bar) => bar.value);
  assert.ok(value > 0 && value <= 1, String(value));
  await see(page, '#spoken', /Download: 25 %\./);
  await see(page, '[data-stage="weights"]', /\d+\.\d MB of 40\.0 MB/);
  await see(page, '[data-stage="kernels"]', /\d+ of 24/);
  await inChat(page);
  assert.equal(await page.title(), 'wingbeat');
});

check('cancelling returns to the choice at once, by button and by Escape', { fake: { ...slow, isDeaf: true } }, async ({ page }) => {
  for (const stop of [() => page.click('#start-cancel'), () => page.keyboard.press('Escape')]) {
    await page.click('[data-id="small-world"]');
    await see(page, '[data-stage="download"]', /MB/);
    await stop();
    await page.waitForSelector('#start-choice', { visible: true });
    assert.equal(await focused(page), 'Load Small world');
    assert.ok(await page.$eval('#start-error', (box) => box.hidden));
  }
  await see(page, '#spoken', /The load was cancelled/);
  // this fake package ignores the stop, so both models are loaded nevertheless, and must be freed
  await page.waitForFunction(() => fake.freed === 2);
  await loadTiny(page);
});

check('an error of a load is shown with its hint, and the load can be tried again', { fake: { fails: { message: 'model.pth: the server answered 404', kind: 'file', hint: 'check the address' } } }, async ({ page }) => {
  await page.type('#start-url', 'https://example.org/models/mine.safetensors?download=1');
  await page.keyboard.press('Enter');
  await see(page, '#start-error', /model\.pth: the server answered 404\.\s+Check the address\./);
  assert.equal(await page.$eval('#start-error', (box) => box.getAttribute('role')), 'alert');
  assert.equal(await focused(page), 'Try again');
  await page.keyboard.press('Enter');
  await inChat(page);
  const all = await calls(page);
  assert.deepEqual(all.map(({ files, quant }) => [files, quant]), Array(2).fill(['https://example.org/models/mine.safetensors?download=1', 'i8']));
  await see(page, '#model', /mine/);
});

check('the last model and the options are remembered', {}, async ({ page }) => {
  await page.select('#start-quant', 'i4-mixed');
  await page.click('[data-id="rwkv7-g1-0.4b"]');
  await inChat(page);
  await page.reload();
  await page.waitForSelector('#start-models button');
  await see(page, '#start-models li:first-child', /RWKV-7 G1 0\.4B\s*last used/);
  assert.equal(await page.$eval('#start-quant', (field) => field.value), 'i4-mixed');
  await page.click('#start-models li:first-child button');
  await inChat(page);
  const [{ files, quant }] = await calls(page);
  assert.deepEqual([files.length, files[0].name, quant], [1, 'rwkv7-g1d-0.4b-20260210-ctx8192.pth', 'i4-mixed']);
  assert.match(files[0].url, /^https:\/\/huggingface\.co\//);
});

check('files and folders are dropped or chosen', {}, async ({ page }) => {
  const files = ['model.safetensors', 'vocab.txt'].map((name) => join(folder, name));
  const again = async () => {
    const found = (await calls(page)).at(-1).files;
    await page.reload();
    await page.waitForSelector('#start-models button');
    return found.map(({ name, size }) => [name, size]).sort();
  };
  const wanted = [['model.safetensors', 1000], ['vocab.txt', 1000]];
  await drop(page, files);
  await inChat(page);
  assert.deepEqual(await again(), wanted);
  await drop(page, [folder]);
  await inChat(page);
  await see(page, '#model', /my-model/);
  assert.deepEqual(await again(), wanted, 'a folder');
  await (await page.$('#start-files')).uploadFile(...files);
  await inChat(page);
  assert.deepEqual(await again(), wanted, 'chosen files');
  await (await page.$('#start-folders')).uploadFile(folder);
  await inChat(page);
  await see(page, '#model', /my-model/);
  assert.deepEqual(await again(), wanted, 'a chosen folder');
});

check('in the chat, a dropped file joins the message and loads no model', {}, async ({ page }) => {
  await loadTiny(page);
  await drop(page, [join(folder, 'vocab.txt')]);
  await see(page, '#files', /vocab\.txt\s*1\.0 KB · about 250 tokens/);
  assert.equal((await calls(page)).length, 1);
  await ask(page, 'apples');
  assert.match(await page.evaluate(() => fake.requests[0].messages[0].content), /^File vocab\.txt:\n```\nx{1000}\n```\n\napples$/);
});

check('downloaded files are listed and removed', { fake: { files: [{ url: 'https://h.example/a.pth', size: 5e8, bytes: 5e8, isComplete: true }, { url: 'https://h.example/b.pth', size: 4e9, bytes: 1e9, isComplete: false }] } }, async ({ page }) => {
  await see(page, '#start-cache', /a\.pth\s+500 MB\s+b\.pth\s+1\.00 GB of 4\.00 GB/);
  await page.click('[aria-label="Remove a.pth"]');
  await page.waitForFunction(() => document.querySelectorAll('#start-cache li').length === 1);
  assert.equal(await focused(page), 'Remove b.pth');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#start-cache', { hidden: true });
});

check('an answer is stopped, thinks, calls tools, and shows a long prefill', {}, async ({ page }) => {
  await loadTiny(page);
  await page.type('#input', 'long');
  await page.keyboard.press('Enter');
  await see(page, 'article.assistant', /A sentence of a long answer/);
  await see(page, '#rate', /\d+ tokens\/s/);
  await page.keyboard.press('Escape');
  await see(page, 'article.assistant .meta', /stopped/);
  await page.click('#new');
  assert.match(await ask(page, 'think and use a tool'), /weather\(\{"city": "Leipzig"\}\)/);
  await page.waitForSelector('.thoughts', { visible: true });
  await page.click('#new');
  await page.type('#input', 'prefill');
  await page.keyboard.press('Enter');
  await see(page, '.waiting', /Prefill: [\d,]+ of 4,000 tokens/);
  await page.keyboard.press('Escape');
  await see(page, 'article.assistant .meta', /stopped/);
});

check('errors of the engine name the field and the hint, and a lost GPU can be asked again', {}, async ({ page }) => {
  await loadTiny(page);
  await ask(page, 'refuse');
  await see(page, '.failure', /Expected at most 2, found 3\. Choose a smaller number\.\s+status 400 · input · field temperature/);
  await page.click('#new');
  await ask(page, 'lost');
  await see(page, '.failure', /The GPU was lost\. The model is loaded again: send the request again\./);
  await page.evaluate(() => [...document.querySelectorAll('.failure button')].at(-1).click());
  await see(page, '#thread article.assistant:last-of-type .content', /You wrote “lost”/);
});

check('states are saved, downloaded, kept over a reload, begun from, and uploaded', {}, async ({ page, downloads }) => {
  await loadTiny(page);
  await ask(page, 'apples');
  await page.click('#states-open');
  await page.type('#state-name', 'mine');
  await page.click('#state-save button');
  await see(page, '#state-list', /mine\s+5 tokens · 4\.0 KB · .* · Small world/);
  await page.click('[aria-label="Download mine"]');
  for (let i = 0; i < 100 && !readdirSync(downloads).includes('mine.state'); i += 1) await new Promise((done) => setTimeout(done, 50));
  assert.equal(readFileSync(join(downloads, 'mine.state'), 'utf8'), 'state mine');
  await page.reload();
  await page.waitForSelector('#start-models button');
  await loadTiny(page);
  await page.click('#states-open');
  await see(page, '#state-list', /mine\s+5 tokens/);
  await page.click('[aria-label="Begin a conversation from mine"]');
  await see(page, '#from', /from state mine/);
  await ask(page, 'pears');
  const [first] = await page.evaluate(() => fake.requests);
  assert.equal(first.state, 'mine');
  assert.match(first.save_state, /^page-/);
  await ask(page, 'plums');
  const second = await page.evaluate(() => fake.requests.at(-1));
  assert.deepEqual([second.messages.length, second.state], [1, first.save_state], 'a conversation continues its state');
  // uploads a state that another program saved
  writeFileSync(join(scratch, 'other.state'), 'state of the program');
  writeFileSync(join(scratch, 'bad.state'), 'broken');
  await page.click('#states-open');
  await (await page.$('#state-file')).uploadFile(join(scratch, 'other.state'));
  await see(page, '#state-list', /other\s+3 tokens/);
  await (await page.$('#state-file')).uploadFile(join(scratch, 'bad.state'));
  await see(page, '#states-error', /bad: expected a state, found other bytes\. Choose a file that wingbeat saved\./);
  await page.click('[aria-label="Delete mine"]');
  await page.waitForFunction(() => !/mine/.test(document.querySelector('#state-list').innerText));
});

check('after a reload, a conversation of a state computes its text again', {}, async ({ page }) => {
  await loadTiny(page);
  await ask(page, 'apples');
  await page.click('#states-open');
  await page.type('#state-name', 'mine');
  await page.click('#state-save button');
  await see(page, '#state-list', /mine/);
  await page.click('[aria-label="Begin a conversation from mine"]');
  await ask(page, 'pears');
  await page.reload();
  await page.waitForSelector('#start-models button');
  await loadTiny(page);
  await see(page, '#from', /from state mine/);
  assert.match(await ask(page, 'plums'), /You wrote “plums”/);
  const request = await page.evaluate(() => fake.requests.at(-1));
  assert.deepEqual([request.state, request.messages.length], ['mine', 3]);
});

check('the model is changed: the old one is freed, the conversation goes on with the new one', {}, async ({ page }) => {
  await loadTiny(page);
  await ask(page, 'apples');
  await page.click('#models-open');
  await page.waitForSelector('#start', { visible: true });
  assert.equal(await focused(page), 'start-title');
  await page.click('#start-back');
  await inChat(page);
  await page.click('#models-open');
  await page.click('[data-id="rwkv7-g1-0.1b"]');
  await inChat(page);
  assert.equal(await page.evaluate(() => fake.freed), 1);
  await see(page, '#model', /RWKV-7 G1 0\.1B/);
  assert.equal(await page.title(), 'apples · wingbeat');
  assert.match(await ask(page, 'pears'), /The engine is rwkv7-g1d-0\.1b/);
  assert.equal(await page.evaluate(() => fake.requests.at(-1).messages.length), 3);
});

check('after a failed change of the model, the conversations can be read, and a message says what to do', {}, async ({ page }) => {
  await loadTiny(page);
  await ask(page, 'apples');
  await page.click('#models-open');
  await page.evaluate(() => (fake.fails = { message: 'the storage of the browser is full', kind: 'memory' }));
  await page.click('[data-id="rwkv7-g1-0.1b"]');
  await see(page, '#start-error', /The storage of the browser is full\./);
  await page.click('#start-back');
  await inChat(page);
  await see(page, '#thread', /You wrote “apples”/);
  await ask(page, 'pears');
  await see(page, 'article.assistant:last-of-type .failure', /No model is loaded\. Choose one with “Change the model”\./);
});
