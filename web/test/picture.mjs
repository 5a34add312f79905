// Draws docs/images/browser.png: the demo with an answer of the tiny model.   usage: node web/test/picture.mjs

import { join } from 'node:path';
import { launch, open } from './browser.mjs';
import { root } from './models.mjs';
import { serve } from './server.mjs';

const browser = await launch();
const server = await serve({ '/demo': join(import.meta.dirname, '../demo/dist') });
const page = await open(browser, `${server.url}/demo/index.html`);
await page.setViewport({ width: 1100, height: 620 });
await page.waitForSelector('#start-models button');
await page.click('[data-id="small-world"]');
await page.waitForSelector('body[data-view="chat"] #input', { timeout: 120_000 });
for (const text of ['Tell me a story about a fox.', 'Where did the fox live?', 'What is 7 plus 6?']) {
  await page.type('#input', text);
  await page.keyboard.press('Enter');
  await new Promise((done) => setTimeout(done, 1000));
  await page.waitForFunction(() => document.querySelector('#stop').hidden, { timeout: 120_000 });
}
await page.screenshot({ path: join(root, 'docs/images/browser.png') });
await browser.close();
await server.close();
