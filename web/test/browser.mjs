// Chromium and Firefox with a software GPU, and pages in them.

import { existsSync } from 'node:fs';
import puppeteer from 'puppeteer-core';

const PLACES = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome', '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome'];

const FIREFOX_PLACES = [process.env.FIREFOX, '/usr/bin/firefox', '/usr/bin/firefox-esr', '/Applications/Firefox.app/Contents/MacOS/firefox'];
const found = (places) => places.find((path) => path && existsSync(path)) ?? null;

/** The path of a Chromium, or null. */
export const chromium = found(PLACES);
/** The path of a Firefox, or null. */
export const firefox = found(FIREFOX_PLACES);

export const launch = () =>
  puppeteer.launch({
    executablePath: chromium,
    headless: true,
    args: ['--no-sandbox', '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader', '--disable-dev-shm-usage'],
    protocolTimeout: 600_000,
  });

/** Starts Firefox. On Linux, WebGPU is off by default; the second preference allows Vulkan's software adapter, llvmpipe. */
export const launchFirefox = () =>
  puppeteer.launch({
    browser: 'firefox',
    executablePath: firefox,
    headless: true,
    extraPrefsFirefox: { 'dom.webgpu.enabled': true, 'gfx.webgpu.ignore-blocklist': true },
    protocolTimeout: 600_000,
  });

/** Opens a page, in the storage of `context`. `page.failures` collects the errors of the page. */
export async function open(browser, url, context = browser) {
  const page = await context.newPage();
  page.failures = [];
  page.on('pageerror', (error) => page.failures.push(String(error)));
  page.on('console', (message) => {
    if (process.env.VERBOSE) console.log(`  [${message.type()}] ${message.text().slice(0, 400)}`);
  });
  await page.goto(url);
  return page;
}

/** Collects the GPU devices that a page opens from now on, in its global `devices`. */
export const watchDevices = (page) =>
  page.evaluate(() => {
    const request = GPUAdapter.prototype.requestDevice;
    globalThis.devices = [];
    GPUAdapter.prototype.requestDevice = async function (descriptor) {
      const device = await request.call(this, descriptor);
      devices.push(device);
      return device;
    };
  });
