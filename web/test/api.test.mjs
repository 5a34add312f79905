// The API: chat, rules, vectors, states, cancelling, faults, and a page that stays responsive.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { launch, open, watchDevices } from './browser.mjs';
import { folder, models, program, root } from './models.mjs';
import { serve } from './server.mjs';

let browser, server, page;

before(async () => {
  browser = await launch();
  server = await serve({
    '/pkg': join(import.meta.dirname, '../pkg'),
    '/models': folder,
    '/tiny': (path) => readFileSync(join(root, path.endsWith('.txt') ? 'assets/vocab/small-world.txt' : 'assets/models/small-world.safetensors')),
  });
  page = await open(browser, server.url);
  await page.evaluate(async (options) => {
    globalThis.wingbeat = await import('/pkg/index.js');
    globalThis.files = ['/tiny/small-world.safetensors', '/tiny/vocab.txt'];
    globalThis.load = (more) => wingbeat.load(files, { cache: false, ...options, ...more });
    globalThis.failed = async (work) => {
      try {
        return await work();
      } catch (error) {
        return { name: error.name, message: error.message, field: error.field, hint: error.hint, kind: error.kind, retry: error.retry, isError: error instanceof wingbeat.WingbeatError };
      }
    };
    globalThis.model = await load();
  }, { device: 'cpu' });
});
after(async () => {
  await browser?.close();
  await server?.close();
});

const run = async (work, ...args) => {
  const found = await page.evaluate(work, ...args);
  assert.deepEqual(page.failures, []);
  return found;
};

test('chat streams an answer', async () => {
  const { text, events, usage } = await run(async () => {
    let text = '';
    const events = [];
    let usage;
    for await (const event of model.chat({ messages: [{ role: 'user', content: 'light' }], max_tokens: 12, seed: 1 })) {
      events.push(event.type);
      if (event.type === 'text') text += event.text;
      if (event.type === 'done') {
        usage = event.usage;
        if (event.text !== text) throw new Error(`${event.text} is not ${text}`);
      }
    }
    return { text, events, usage };
  });
  assert.ok(text.length > 0 && usage.completion_tokens <= 12);
  assert.deepEqual([events[0], events.at(-1)], ['started', 'done']);
});

test('rules hold: a schema, a choice', async () => {
  const found = await run(async () => {
    const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'], additionalProperties: false };
    const request = { messages: [{ role: 'user', content: 'a number' }], max_tokens: 60, seed: 2 };
    const json = await model.chat({ ...request, response_format: { type: 'json_schema', json_schema: { schema } } }).text();
    return [JSON.parse(json), await model.generate({ prompt: 'God', choice: ['light', 'water'], max_tokens: 8, seed: 3 }).text()];
  });
  assert.equal(typeof found[0].n, 'number');
  assert.ok(['light', 'water'].includes(found[1]), found[1]);
});

test('tokens, scores and log-probabilities', async () => {
  const found = await run(async () => {
    const ids = await model.tokenize('Once upon a time there');
    const { tokens, sum } = await model.score('Once upon a time there');
    const done = await model.generate({ prompt: 'Once upon', max_tokens: 2, logprobs: 3, temperature: 0 }).all();
    return { ids, text: await model.detokenize(ids), n: tokens.length, sum, tops: done.filter(({ type }) => type === 'logprobs').map(({ top_logprobs }) => top_logprobs.length) };
  });
  assert.equal(found.text, 'Once upon a time there');
  assert.equal(found.n, found.ids.length - 1);
  assert.ok(found.sum < 0);
  assert.deepEqual(found.tops, [3, 3]);
});

test('vectors of texts', async () => {
  const found = await run(async () => {
    const [one, two, three] = await model.embed(['Once upon a time', 'Once upon a time', 'a great flood']);
    const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
    return { n: one.length, width: model.info.n_embd, same: dot(one, two), other: dot(one, three), single: (await model.embed('light')).length };
  });
  assert.equal(found.n, found.width);
  assert.equal(found.single, found.width);
  assert.ok(Math.abs(found.same - 1) < 1e-5 && found.other < 0.9999, JSON.stringify(found));
});

test('errors have the field and a hint', async () => {
  const found = await run(async () => [
    await failed(() => model.chat({ messages: 'a' })),
    await failed(() => model.generate({ prompt: 'a', temprature: 1 }).text()),
    await failed(() => model.generate({ prompt: 'a', top_p: 'x' }).text()),
    await failed(() => model.generate({ tokens: [999999] }).text()),
    await failed(() => model.states.export('absent')),
    await failed(() => model.states.load('a', new Uint8Array(10))),
    await failed(() => wingbeat.load(files, { device: 'cpu', bogus: 1 })),
    await failed(() => wingbeat.load(7)),
  ]);
  assert.ok(found.slice(0, 6).every(({ isError }) => isError), JSON.stringify(found));
  assert.deepEqual([found[0].field, found[1].field, found[2].field], ['messages', 'temprature', 'top_p']);
  assert.match(found[3].message, /999999/);
  assert.match(found[4].message, /absent/);
  assert.equal(found[5].kind, 'file');
  assert.equal(found[7].field, 'source');
});

test('leaving a loop, a signal and free() end a text', async () => {
  const found = await run(async () => {
    const endless = { prompt: 'Once upon a time', max_tokens: -1, ignore_eos: true, temperature: 0 };
    let n = 0;
    for await (const event of model.generate(endless)) if (event.type === 'text' && ++n === 3) break;
    const controller = new AbortController();
    const stopped = failed(async () => {
      for await (const event of model.generate(endless, { signal: controller.signal })) if (event.type === 'text') controller.abort();
    });
    const one = await stopped;
    await model.drain;
    for (let i = 0; i < 100 && (await model.stats()).free_slots < 2; i++) await new Promise((done) => setTimeout(done, 20));
    const { free_slots } = await model.stats();
    const other = await load();
    const text = failed(async () => {
      for await (const event of other.generate(endless)) if (event.type === 'text') other.free();
    });
    const two = await text;
    const after = await failed(() => other.tokenize('a'));
    return { n, one, free_slots, two, after, alive: (await model.tokenize('a')).length };
  });
  assert.deepEqual([found.n, found.one.name, found.free_slots, found.alive > 0], [3, 'AbortError', 2, true]);
  assert.match(found.two.message, /freed while it wrote/);
  assert.match(found.after.message, /was freed/);
});

test('several texts at once, and the prefix cache', async () => {
  const found = await run(async () => {
    const ask = (prompt) => model.generate({ prompt, max_tokens: 10, temperature: 0 }).done();
    const alone = [];
    for (const prompt of ['Once upon a time', 'One day', 'The earth']) alone.push((await ask(prompt)).text);
    const together = await Promise.all(['Once upon a time', 'One day', 'The earth'].map(ask));
    return { alone, together: together.map(({ text }) => text), cached: together.map(({ usage }) => usage.cached_tokens) };
  });
  assert.deepEqual(found.together, found.alone);
  assert.ok(found.cached.some((n) => n > 0), String(found.cached));
});

test('states are kept, copied, exported and loaded', async () => {
  const found = await run(async () => {
    const first = await model.generate({ prompt: 'Once upon a time', max_tokens: 5, temperature: 0, save_state: 'a' }).done();
    await model.states.fork('a', 'b');
    const bytes = await (await model.states.export('b')).arrayBuffer();
    const more = (state, of = model) => of.generate({ prompt: '', state, max_tokens: 6, temperature: 0 }).text();
    const texts = [await more('a'), await more('b')];
    const other = await load();
    await other.states.load('c', bytes);
    texts.push(await more('c', other));
    await other.free();
    const names = (await model.states.list()).map(({ name }) => name).sort();
    await model.states.delete('a');
    return { saved: first.state, texts, names, left: (await model.states.list()).map(({ name }) => name), size: bytes.byteLength };
  });
  assert.equal(found.saved.name, 'a');
  assert.ok(new Set(found.texts).size === 1 && found.texts[0].length > 0, String(found.texts));
  assert.deepEqual([found.names, found.left], [['a', 'b'], ['b']]);
});

test('states go to the program and back', { skip: !program && 'no program was built' }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'wingbeat-states-'));
  try {
    const bytes = await run(async () => {
      await model.generate({ prompt: 'Once upon a time', max_tokens: 5, temperature: 0, save_state: 'x' }).done();
      return Array.from(new Uint8Array(await (await model.states.export('x')).arrayBuffer()));
    });
    const [from, to] = [join(folder, 'page.state'), join(folder, 'program.state')];
    writeFileSync(from, Buffer.from(bytes));
    const args = ['generate', '--device', 'cpu', '--state', from, '--save-state', to, '--temperature', '0', '-n', '6', ''];
    const { stdout, stderr, status } = spawnSync(program, args, { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    const here = await run(
      async (bytes) => {
        const text = await model.generate({ prompt: '', state: 'x', max_tokens: 6, temperature: 0, save_state: 'y' }).text();
        await model.states.load('z', new Uint8Array(bytes));
        const [ours, theirs] = [await model.states.list(), await model.generate({ prompt: '', state: 'z', max_tokens: 4, temperature: 0 }).text()];
        return { text, n: ours.filter(({ name }) => 'yz'.includes(name)).map(({ n_tokens }) => n_tokens), next: [await model.generate({ prompt: '', state: 'y', max_tokens: 4, temperature: 0 }).text(), theirs] };
      },
      [...readFileSync(to)],
    );
    assert.ok(stdout.includes(here.text.trim()), `${stdout} / ${here.text}`);
    assert.equal(here.n[0], here.n[1]);
    assert.equal(here.next[0], here.next[1]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('the page stays responsive while a model loads and writes', async () => {
  const longest = await run(async () => {
    let [longest, last, isOn] = [0, performance.now(), true];
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      const now = performance.now();
      longest = Math.max(longest, now - last);
      last = now;
      if (isOn) channel.port2.postMessage(0);
    };
    channel.port2.postMessage(0);
    const other = await load();
    await other.generate({ prompt: 'Once upon a time', max_tokens: 100, temperature: 0, ignore_eos: true }).text();
    isOn = false;
    await other.free();
    return longest;
  });
  console.log(`  longest block of the page: ${longest.toFixed(1)} ms`);
});

test('the text of an answer can be asked for again', async () => {
  const found = await run(async () => {
    const ask = () => model.generate({ prompt: 'Once upon', max_tokens: 4, temperature: 0 });
    const answer = ask();
    const [one, two, done] = [await answer.text(), await answer.text(), await answer.done()];
    const read = ask();
    let text = '';
    for await (const event of read) if (event.type === 'text') text += event.text;
    const both = ask();
    const events = await both.all();
    return { one, two, done: done?.text, text, after: await read.text(), same: (await Promise.all([both.text(), both.all()]))[1].length === events.length };
  });
  assert.ok(found.one.length > 0);
  assert.deepEqual([found.two, found.done, found.text, found.after, found.same], [found.one, found.one, found.one, found.one, true]);
});

test('a signal ends a request or a load with its own reason', async () => {
  const found = await run(async () => {
    const endless = { prompt: 'Once upon a time', max_tokens: -1, ignore_eos: true, temperature: 0 };
    const why = new Error('the user left');
    const caught = (work) => work().then(() => null, (error) => error);
    const late = await caught(() => model.generate(endless, { signal: AbortSignal.timeout(300) }).text());
    const plain = new AbortController();
    setTimeout(() => plain.abort(), 100);
    const stopped = await caught(() => model.generate(endless, { signal: plain.signal }).text());
    const own = new AbortController();
    setTimeout(() => own.abort(why), 100);
    const given = await caught(() => model.generate(endless, { signal: own.signal }).text());
    const loading = await caught(() => load({ signal: AbortSignal.timeout(1) }));
    return [late.name, stopped.name, stopped instanceof wingbeat.AbortError, given === why, loading.name];
  });
  assert.deepEqual(found, ['TimeoutError', 'AbortError', true, true, 'TimeoutError']);
});

test('developer messages are system messages', async () => {
  const found = await run(async () => {
    const ask = async (role) => {
      const messages = [{ role, content: 'Be brief.' }, { role: 'user', content: 'light' }];
      const { text, usage } = await model.chat({ messages, max_tokens: 6, temperature: 0 }).done();
      return [text, usage.prompt_tokens];
    };
    return [await failed(() => ask('system')), await failed(() => ask('developer'))];
  });
  assert.ok(found[0][1] > 5, JSON.stringify(found));
  assert.deepEqual(found[1], found[0]);
});

test('a schema allows no other properties, unless it says so', async () => {
  const found = await run(async () => {
    const schema = { type: 'object', properties: { n: { enum: [7] } }, required: ['n'] };
    const tools = [{ type: 'function', function: { name: 'count', parameters: schema } }];
    // the bias makes a comma likely, so the answer has a second property if the schema allows it
    const [comma] = await model.tokenize(',');
    const request = { messages: [{ role: 'user', content: 'light' }], max_tokens: 40, temperature: 0, logit_bias: { [comma]: 100 } };
    const format = (json_schema) => ({ ...request, response_format: { type: 'json_schema', json_schema } });
    const json = async (schema) => Object.keys(JSON.parse(await model.chat(format(schema)).text()));
    const call = await failed(() => model.chat({ ...request, max_tokens: 200, format: 'g1', tools, tool_choice: 'required' }).done());
    return { closed: await json({ schema }), open: await json({ schema: { ...schema, additionalProperties: true } }), call: call.calls?.map((call) => call.arguments) ?? call, text: call.text };
  });
  assert.deepEqual(found.closed, ['n']);
  assert.ok(found.open.length > 1, JSON.stringify(found));
  assert.deepEqual(found.call.map((text) => Object.keys(JSON.parse(text))), [['n']], JSON.stringify(found));
});

test('hints name what this package has', async () => {
  const found = await run(async () => {
    const weights = new Uint8Array(await (await fetch(files[0])).arrayBuffer());
    const state = await failed(() => model.states.load('a', weights));
    const ids = await wingbeat.load([{ name: 'model.safetensors', bytes: weights }], { device: 'cpu' });
    const none = await failed(() => ids.generate({ prompt: 'a', max_tokens: 1 }).text());
    await ids.free();
    return [state, none];
  });
  assert.match(found[0].hint, /`model\.states\.export`/, JSON.stringify(found));
  assert.match(found[1].hint ?? '', /one of the files: `load\(\[model, vocabulary\]\)`/, JSON.stringify(found));
  for (const { hint } of found) assert.doesNotMatch(hint, /Session|--|doctor|`vocab`|`model`/);
});

test('a GPU has a name', async () => {
  const found = await run(async () => {
    const other = await load({ device: 'gpu', selfTest: false });
    const { name, why } = other.info.device;
    await other.free();
    return { name, why };
  });
  assert.ok(found.name.length > 0 && found.why.startsWith(`${found.name} (`), JSON.stringify(found));
});

test('a lost device is replaced once, and its texts say so', async () => {
  const lost = await open(browser, server.url);
  await watchDevices(lost);
  const found = await lost.evaluate(async () => {
    const wingbeat = await import('/pkg/index.js');
    const files = ['/tiny/small-world.safetensors', '/tiny/vocab.txt'].map((path) => location.origin + path);
    const model = await wingbeat.load(files, { device: 'gpu', worker: false, cache: false, selfTest: false });
    const before = await model.generate({ prompt: 'Once upon', max_tokens: 4, temperature: 0 }).text();
    let error = null;
    try {
      for await (const event of model.generate({ prompt: 'Once upon a time', max_tokens: 500, temperature: 0, ignore_eos: true })) if (event.type === 'text') devices.at(-1).destroy();
    } catch (caught) {
      error = { name: caught.name, retry: caught.retry, hint: caught.hint };
    }
    const after = await model.generate({ prompt: 'Once upon', max_tokens: 4, temperature: 0 }).text();
    return { before, error, after, n: devices.length };
  });
  await lost.close();
  assert.deepEqual([found.error?.name, found.error?.retry], ['DeviceError', true], JSON.stringify(found));
  assert.equal(found.after, found.before);
  assert.equal(found.n, 2);
});

test('a model that is larger than the memory is refused before it is read', async () => {
  const small = await open(browser, server.url);
  const found = await small.evaluate(async () => {
    Object.defineProperty(Navigator.prototype, 'deviceMemory', { get: () => 0.005, configurable: true });
    const wingbeat = await import('/pkg/index.js');
    const load = (options) => wingbeat.load(['/tiny/small-world.safetensors', '/tiny/vocab.txt'], { device: 'cpu', worker: false, cache: false, ...options });
    const refused = await load().catch(({ name, message, hint }) => ({ name, message, hint }));
    return { refused, fits: (await load({ quant: 'i8' })).info.dtype };
  });
  await small.close();
  assert.equal(found.refused.name, 'MemoryError', JSON.stringify(found));
  assert.match(`${found.refused.message} ${found.refused.hint}`, /weights take about .* GB.*`quant: "i4"`/);
  assert.equal(found.fits, 'i8');
});

test('check() says in words what the browser can run', async () => {
  const found = await run(async () => [await wingbeat.check(), await wingbeat.check({ bytes: 1e15 })]);
  assert.ok(found[0].ok && found[0].gpu.limits.maxBufferSize > 0, JSON.stringify(found[0]));
  assert.match(found[0].verdict, /\.$/);
  assert.equal(models.length > 0, true);
});
