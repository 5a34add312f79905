// Finds and describes the GPU of this browser, worker or program.

import { DeviceError } from './errors.js';
import { isNode, optionalPackage } from './node.js';

/** In Node, gives the module a GPU through the npm package `webgpu`, if it is installed. Browsers and Deno have their own. */
async function takePackage() {
  let webgpu;
  try {
    webgpu = await optionalPackage('webgpu');
  } catch {
    return;
  }
  Object.assign(globalThis, webgpu.globals);
  const gpu = webgpu.create((process.env.WINGBEAT_DAWN ?? '').split(',').filter(Boolean));
  const navigator = globalThis.navigator ?? {};
  Object.defineProperty(navigator, 'gpu', { value: gpu, configurable: true });
  if (!globalThis.navigator) Object.defineProperty(globalThis, 'navigator', { value: navigator, configurable: true });
  // wgpu uses `navigator.gpu` only if a class such as `Window` exists, which Node does not have
  globalThis.Window ??= class Window {
    static [Symbol.hasInstance](value) {
      return value === globalThis;
    }
  };
}

/** Returns `{verdict, hint}`: why WebGPU is missing, and what to do. */
const missing = () => {
  if (isNode) {
    const hint = globalThis.Deno ? 'run Deno with --unstable-webgpu' : 'run `npm install webgpu`';
    return { verdict: 'This program has no WebGPU, so only small models run, on the CPU.', hint };
  }
  if (globalThis.isSecureContext === false) return { verdict: 'WebGPU needs a secure page (https, or localhost).', hint: 'open the page over https' };
  const hint = 'use a current Chrome, Edge, Firefox or Safari; on Linux, WebGPU may have to be switched on';
  return { verdict: 'This browser has no WebGPU, so only small models run, on the CPU.', hint };
};

const noAdapter = () => ({
  verdict: 'WebGPU is here, but offers no GPU, so only small models run, on the CPU.',
  hint: isNode ? 'install a driver of the GPU (Vulkan, Metal or Direct3D 12)' : 'update the driver of the graphics card; in Chrome, the page chrome://gpu says why',
});

/** Returns the adapter with high performance, or null if WebGPU finds no adapter. */
async function adapterOf(gpu) {
  try {
    return await gpu?.requestAdapter({ powerPreference: 'high-performance' });
  } catch {
    return null;
  }
}

/** Returns a name of an adapter for users. Browsers hide some of the adapter's names, or all of them. */
export const nameOf = ({ info }) => {
  const { vendor, architecture, device, description } = info ?? {};
  return description || [vendor, architecture].filter(Boolean).join(' ') || device || 'WebGPU';
};

const SOFTWARE = /swiftshader|llvmpipe|lavapipe|softpipe|microsoft basic render/i;

/** Returns whether an adapter computes on the CPU. Browsers mark such adapters, but not all of them. */
const isSoftware = (adapter) => {
  const { vendor, architecture, device, description, isFallbackAdapter } = adapter.info ?? {};
  return Boolean(isFallbackAdapter ?? adapter.isFallbackAdapter) || SOFTWARE.test([vendor, architecture, device, description].join(' '));
};

/** Returns the name of the adapter, or `WebGPU` if no adapter is found. */
export const gpuName = async () => {
  const adapter = await adapterOf(globalThis.navigator?.gpu);
  return adapter ? nameOf(adapter) : 'WebGPU';
};

/**
 * Returns why `auto` uses the CPU although an adapter was found, or null. A software adapter is slower than this package on the CPU, and its test
 * takes many seconds.
 */
export const whyNot = async () => {
  const adapter = await adapterOf(globalThis.navigator?.gpu);
  if (!adapter || !isSoftware(adapter)) return null;
  return `only a software adapter was found (${nameOf(adapter)}), which is slower; \`device: "gpu"\` uses it`;
};

/** Prepares the GPU for the module. Throws a `DeviceError` if `device` asks for a GPU and no GPU is found. */
export async function settled(device) {
  if (device === 'cpu') return;
  if (!globalThis.navigator?.gpu && isNode) await takePackage();
  if (!device?.startsWith('gpu')) return; // `auto` uses the CPU if no GPU is found
  const gpu = globalThis.navigator?.gpu;
  const found = !gpu ? missing() : (await adapterOf(gpu)) ? null : noAdapter();
  if (found) throw new DeviceError(`device: ${found.verdict}`, { kind: 'device', field: 'device', hint: `${found.hint}; or load with device "cpu"` });
}

const GB = 1e9;

/**
 * Returns what this browser can run: `{ok, verdict, hint, gpu: {vendor, architecture, device, description, isFallback, features, limits} | null,
 * memory, storage}`. `bytes` is the size of a model that should fit; `memory` is in bytes, or null.
 */
export async function check({ bytes = 0 } = {}) {
  const report = { ok: false, verdict: '', hint: null, gpu: null, memory: null, storage: null };
  const memory = globalThis.navigator?.deviceMemory;
  if (memory) report.memory = memory * 2 ** 30;
  const estimate = await globalThis.navigator?.storage?.estimate?.().catch(() => null);
  if (estimate) report.storage = { usage: estimate.usage, quota: estimate.quota };
  await settled().catch(() => {});
  const gpu = globalThis.navigator?.gpu;
  if (!gpu) return Object.assign(report, missing());
  const adapter = await adapterOf(gpu);
  if (!adapter) return Object.assign(report, noAdapter());
  const { vendor, architecture, device, description } = adapter.info ?? {};
  const limits = Object.fromEntries(
    ['maxBufferSize', 'maxStorageBufferBindingSize', 'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupStorageSize', 'maxStorageBuffersPerShaderStage'].map((name) => [name, adapter.limits[name]]),
  );
  const features = ['shader-f16', 'subgroups', 'timestamp-query'].filter((name) => adapter.features.has(name));
  report.gpu = { vendor, architecture, device, description, isFallback: isSoftware(adapter), features, limits };
  const name = nameOf(adapter);
  if (report.gpu.isFallback) {
    report.verdict = `Only a software adapter was found (${name}), so only small models run, on the CPU.`;
    report.hint = 'switch on hardware acceleration in the settings of the browser';
    report.ok = true;
    return report;
  }
  const free = estimate?.quota !== undefined ? estimate.quota - estimate.usage : null;
  if (bytes && report.memory && bytes > report.memory * 0.8) {
    report.verdict = `The model takes ${(bytes / GB).toFixed(1)} GB, more than this device has memory for.`;
    report.hint = 'choose a smaller model, or quantise it: `quant: "i8"` or `"i4"`';
    return report;
  }
  report.ok = true;
  report.verdict = `Models run on ${name}.`;
  if (bytes && free !== null && bytes > free) report.hint = 'the model does not fit into the storage of the browser, so every visit downloads it again';
  return report;
}

