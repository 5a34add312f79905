// Compares a GPU with the CPU before a model trusts it. The result is remembered for each GPU and version.

import * as wasm from './wingbeat.js';
import { DeviceError } from './errors.js';

const FILE = 'wingbeat-self-tests.json';
const known = new Map();

const stored = async () => {
  try {
    const file = await (await (await navigator.storage.getDirectory()).getFileHandle(FILE)).getFile();
    return new Map(Object.entries(JSON.parse(await file.text())));
  } catch {
    return new Map();
  }
};

const store = async (results) => {
  try {
    const file = await (await navigator.storage.getDirectory()).getFileHandle(FILE, { create: true });
    const out = await file.createWritable();
    await out.write(JSON.stringify(Object.fromEntries(results)));
    await out.close();
  } catch {
    // without storage, the next visit tests again
  }
};

const formatOf = (quant) => /^(i8rc|i8|i4|nf4|iq4_nl|iq4_xs|q\d_[01k])/.exec(quant ?? '')?.[1] ?? null;

/**
 * Tests the GPU, unless it was tested before. Returns null if the GPU computes right, or if no GPU is found, or a text that describes what is wrong.
 * Calls `onCase(done, total)` after each case, and once if no case has to run. An error that `onCase` throws ends the test.
 */
export async function wrong({ class: kernels = '', quant, signal, onCase } = {}) {
  const adapter = await globalThis.navigator?.gpu?.requestAdapter?.({ powerPreference: 'high-performance' }).catch(() => null);
  if (!adapter) {
    onCase(1, 1);
    return null;
  }
  const { vendor = '', architecture = '', device = '', description = '' } = adapter.info ?? {};
  const features = ['shader-f16', 'subgroups'].filter((name) => adapter.features.has(name));
  const formats = ['f16', formatOf(quant)].filter(Boolean);
  const key = [wasm.version(), navigator.userAgent ?? '', vendor, architecture, device, description, features, kernels, formats].join('|');
  if (!known.has(key)) for (const [name, result] of await stored()) known.set(name, result);
  if (!known.has(key)) {
    if (signal?.aborted) return null;
    const { wrong } = JSON.parse(await wasm.self_test(kernels, formats.join(), true, onCase));
    known.set(key, wrong.slice(0, 3));
    await store(known);
  } else onCase(1, 1);
  const found = known.get(key);
  return found.length ? found.join('; ') : null;
}

export const refusal = (found) =>
  new DeviceError(`this GPU computes wrongly: ${found}`, { kind: 'device', hint: 'update the browser and the driver of the graphics card, or use `device: "cpu"`' });
