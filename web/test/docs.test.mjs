// The example of docs/browser.md runs as it is printed.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { launch } from './browser.mjs';
import { root } from './models.mjs';
import { serve } from './server.mjs';

test('the ten lines of docs/browser.md', async () => {
  const [, example] = /```js\n([\s\S]*?)```/.exec(readFileSync(join(root, 'docs/browser.md'), 'utf8'));
  const server = await serve({
    '/pkg': join(root, 'web/pkg'),
    '/tiny': join(root, 'web/pkg-tiny'),
    '/app': (path) => {
      if (path.endsWith('.js')) return Buffer.from(`${example}\nconsole.log('ended');`);
      const map = '<script type="importmap">{"imports": {"wingbeat": "/pkg/index.js", "wingbeat-tiny": "/tiny/index.js"}}</script>';
      return Buffer.from(`<!doctype html><html lang="en"><title>x</title>${map}<script type="module" src="/app/main.js"></script>`);
    },
  });
  const browser = await launch();
  try {
    const page = await browser.newPage();
    const lines = [];
    const ended = new Promise((done, fail) => {
      page.on('console', (message) => {
        lines.push(message.text());
        if (message.text() === 'ended') done();
      });
      page.on('pageerror', fail);
    });
    await page.goto(`${server.url}/app/index.html`);
    await ended;
    assert.ok(lines.some((line) => /^\d+ tokens$/.test(line)), lines.join('\n'));
    assert.ok(lines.some((line) => line.startsWith('weights')), lines.join('\n'));
  } finally {
    await browser.close();
    await server.close();
  }
});
