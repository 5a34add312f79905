// Estimates whether a model fits, before its files are read.

import { MemoryError } from './errors.js';

/** The size of quantised weights, compared with 16 bits per weight. */
const SHARES = {
  i8: 0.53, i8rc: 0.51, 'i4-mixed': 0.36, i4: 0.29, nf4: 0.29, q8_0: 0.54, q6_k: 0.42, q5_k: 0.36, q5_0: 0.35, q5_1: 0.38, q4_k: 0.3, q4_0: 0.3,
  q4_1: 0.32, iq4_nl: 0.3, iq4_xs: 0.28, q3_k: 0.23, q2_k: 0.18,
};
/** Browsers report at most this much memory, so a device with more may have any amount. */
const MOST_REPORTED = 8;
/** The share of the device's memory that weights may take: the browser and other programs need the rest. */
const SHARE = 0.7;

const WEIGHTS = /\.(safetensors|st|gguf|pth|bin)$/i;

/** Throws a `MemoryError` if the weights do not fit into the memory that the browser reports, if it reports any. `files` are `{name, size}`. */
export function checkMemory(files, quant = '') {
  const memory = globalThis.navigator?.deviceMemory;
  if (!memory || memory >= MOST_REPORTED) return;
  const stored = files.filter(({ name }) => WEIGHTS.test(name)).reduce((sum, { size }) => sum + size, 0);
  const needed = stored * (SHARES[quant.split(',')[0]] ?? 1);
  if (needed <= memory * SHARE * 2 ** 30) return;
  const gb = (bytes) => `${(bytes / 1e9).toFixed(1)} GB`;
  throw new MemoryError(`the weights take about ${gb(needed)}, and this device has ${gb(memory * 2 ** 30)} of memory`, {
    kind: 'memory',
    hint: 'choose a smaller model, or fewer bits: `quant: "i4"`',
  });
}
