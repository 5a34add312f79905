// Starts Chromium and opens the page. WINGBEAT_URL is the address of a server to test; without it each test starts the mock.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { start } from './mock.mjs';

// tools/test-page.sh installs the npm packages outside of the repository
const packages = createRequire(join(process.env.WINGBEAT_NPM ?? process.cwd(), 'package.json'));
const { chromium } = packages('playwright-core');
export const axe = packages.resolve('axe-core/axe.min.js');

export const real = process.env.WINGBEAT_URL ?? '';

/** Returns the options of a test that needs the mock's scripted answers. */
export const needsMock = { skip: real ? 'needs the answers of the mock' : false };

/** Returns the options of a test that needs a real server. */
export const needsServer = { skip: real ? false : 'needs a server (WINGBEAT_URL)' };

const FLAGS = '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync';

/** Starts a browser; Playwright gives it an empty profile. Returns `{open, close}`. */
export const launch = async () => {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: FLAGS.split(' ') });

  /**
   * Opens the page in a fresh context. `init` runs before the page's own scripts. Returns `{page, server, url, close}`; `close` fails if the page
   * logged an error.
   */
  const open = async ({ mock = {}, init = null, ...options } = {}) => {
    const server = real ? null : await start(mock);
    const own = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: 'reduce', ...options });
    if (init) await own.addInitScript(init);
    const page = await own.newPage();
    page.setDefaultTimeout(real ? 60_000 : 8_000);
    const problems = [];
    page.on('pageerror', (error) => problems.push(String(error)));
    page.on('console', (message) => {
      // the browser also logs failed requests, which tests of errors cause on purpose
      if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) problems.push(message.text());
    });
    const url = real || server.url;
    await page.goto(url);
    await page.locator('#model option:not([value=""])').first().waitFor({ state: 'attached' }).catch(() => {});
    const close = async () => {
      await own.close().catch(() => {});
      await server?.close();
      if (problems.length) throw new Error(`the page logged: ${problems.join('; ')}`);
    };
    return { page, server, url, close };
  };
  return { open, close: () => browser.close() };
};

/**
 * Starts a browser for the tests of a file. Returns a function `(name, options, run)` that defines a test: `run` gets a fresh page, opened with
 * `options`. `options.skip` skips the test.
 */
export const tests = () => {
  let browser;
  before(async () => (browser = await launch()));
  after(() => browser.close());
  return (name, { skip = false, ...options }, run) =>
    test(name, { skip, timeout: real ? 300_000 : 60_000 }, async () => {
      const opened = await browser.open(options);
      let passed = false;
      try {
        await run(opened);
        passed = true;
      } finally {
        await opened.close().catch((error) => {
          if (passed) throw error;
        });
      }
    });
};

/** Sends a message and waits for the end of the answer. Returns the answer's element. */
export const ask = async (page, text) => {
  if (real && !(await page.evaluate(() => window.limited))) await limit(page);
  await page.locator('#input').fill(text);
  await page.locator('#input').press('Enter');
  return ended(page);
};

/** Waits for the end of the answer that is being received. Returns the last answer's element. */
export const ended = async (page) => {
  await page.locator('article.assistant').last().waitFor();
  await page.locator('#send').waitFor({ state: 'visible' });
  return page.locator('article.assistant').last();
};

/** Chooses an action in the menu of `part`: a message, or a row of the list. */
export const act = async (page, part, action) => {
  await part.hover();
  await part.locator('[aria-haspopup=menu]').click();
  await page.getByRole('menuitem', { name: action }).click();
};

/** Returns the figures of an answer, which its menu shows. */
export const figures = async (page, answer) => {
  await answer.locator('[aria-haspopup=menu]').click();
  const text = await page.locator('.figures').innerText();
  await page.keyboard.press('Escape');
  return text;
};

/** Sets a token limit, so the answers of a real model end soon. */
export const limit = async (page, tokens = 24) => {
  await page.locator('#settings-open').click();
  await page.locator('#set-max_tokens').fill(String(tokens));
  await page.keyboard.press('Escape');
  await page.evaluate(() => (window.limited = true));
};

export const texts = (page, selector) => page.locator(selector).allInnerTexts();
