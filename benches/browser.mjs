// Measures the package in Chromium beside the program, on the same software GPU (SwiftShader) in turn: loading, memory of the module, time to the
// first token, tokens per second. Needs `make web` and a release build.
// usage: node benches/browser.mjs [--model FILE…] [--quant i8] [--rounds 3] [-n 32] [--device gpu|cpu]
// Without --model, a 0.1B RWKV-7 with seeded weights is written to the folder for temporary files.

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';

const root = join(import.meta.dirname, '..');
const { launch, open } = await import(join(root, 'web/test/browser.mjs'));
const { serve } = await import(join(root, 'web/test/server.mjs'));
const { values } = parseArgs({
  options: {
    model: { type: 'string', multiple: true },
    quant: { type: 'string', default: 'i8' },
    rounds: { type: 'string', default: '3' },
    n: { type: 'string', short: 'n', default: '32' },
    device: { type: 'string', default: 'gpu' },
  },
});
const program = [process.env.WINGBEAT, join(process.env.CARGO_TARGET_DIR ?? join(root, 'target'), 'release/wingbeat')].find((path) => path && existsSync(path));
if (!program) throw new Error('no release build: cargo build --release');
let files = values.model;
if (!files) {
  const file = join(tmpdir(), 'wingbeat-browser-0.1b.safetensors');
  if (!existsSync(file)) execFileSync(program, ['bench', '--synthetic', 'rwkv7-0.1b', '--write', file, '--device', 'cpu', '-p', '1', '-n', '1', '-r', '1'], { stdio: 'inherit' });
  files = [file];
}
const [n, prompt] = [Number(values.n), Array.from({ length: 64 }, (_, i) => 100 + i)];
const median = (all) => all.toSorted((a, b) => a - b)[all.length >> 1];

const server = await serve({ '/pkg': join(root, 'web/pkg'), '/model': (path) => readFileSync(files.find((file) => basename(file) === basename(path))) });
const inBrowser = async () => {
  const browser = await launch();
  const page = await open(browser, server.url);
  const found = await page.evaluate(
    async (files, { quant, device }, tokens, n) => {
      const wingbeat = await import('/pkg/index.js');
      const began = performance.now();
      const model = await wingbeat.load(files.map((file) => `${location.origin}/model/${file}`), { quant, device, selfTest: false, cache: false, slots: 1 });
      const load = performance.now() - began;
      const { wasm_bytes } = await model.stats();
      const runs = [];
      for (let i = 0; i < 3; i++) {
        const asked = performance.now();
        let first = 0;
        let done = null;
        for await (const event of model.generate({ tokens, max_tokens: n, temperature: 0, ignore_eos: true, no_cache: true, logprobs: 0 })) {
          if (event.type === 'logprobs') first ||= performance.now() - asked;
          if (event.type === 'done') done = event;
        }
        runs.push({ first, rate: ((n - 1) / done.timings.decode_ms) * 1000 });
      }
      // the first run compiles the kernels that loading did not compile
      const last = runs.slice(1);
      return { load, bytes: wasm_bytes, cold: runs[0].first, first: last[0].first, rate: Math.max(...last.map(({ rate }) => rate)) };
    },
    files.map((file) => basename(file)),
    values,
    prompt,
    n,
  );
  await browser.close();
  return found;
};
const inProgram = () => {
  const env = { ...process.env, VK_ICD_FILENAMES: '/usr/lib/chromium/vk_swiftshader_icd.json' };
  const args = ['bench', '-m', files[0], '--device', values.device, ...(values.quant ? ['--quant', values.quant] : []), '-p', String(prompt.length), '-n', String(n), '-r', '1', '--json'];
  if (values.device === 'cpu') args.push('--threads', '1');
  const { stdout, stderr, status } = spawnSync(program, args, { env, encoding: 'utf8', maxBuffer: 1 << 26 });
  if (status !== 0) throw new Error(stderr);
  return JSON.parse(stdout);
};

const rounds = [];
for (let i = 0; i < Number(values.rounds); i++) {
  const here = await inBrowser();
  const there = inProgram();
  const of = (name) => there.find((row) => row[name] > 0).avg_ts;
  rounds.push({ ...here, program: of('n_gen'), prefill: of('n_prompt') });
  console.log(JSON.stringify(rounds.at(-1)));
}
const of = (name) => median(rounds.map((round) => round[name]));
console.log(`${basename(files[0])} (${(statSync(files[0]).size / 1e6).toFixed(0)} MB), ${values.quant || 'as in the file'}, ${values.device}, medians of ${rounds.length}`);
console.log(`load ${(of('load') / 1000).toFixed(1)} s, module ${(of('bytes') / 1e6).toFixed(0)} MB, first token ${of('first').toFixed(0)} ms (cold ${of('cold').toFixed(0)} ms)`);
console.log(`decode ${of('rate').toFixed(2)} tokens/s in the browser, ${of('program').toFixed(2)} in the program, ratio ${(of('rate') / of('program')).toFixed(2)}`);
await server.close();
