// Takes the pictures of the documentation: docs/images/serve-light.png, serve-dark.png and serve-phone.png with answers of a real server, and
// serve-text.png with answers of the mock, because the embedded model writes no tables.
//
//   WINGBEAT_URL=http://127.0.0.1:8080 node server/tests/page/pictures.mjs FOLDER
import { join } from 'node:path';
import { ask, ended, launch, real } from './browser.mjs';
import { start } from './mock.mjs';

const folder = process.argv[2] ?? 'docs/images';
const browser = await launch();

const again = async (page) => {
  await page.getByRole('button', { name: 'Regenerate' }).last().click();
  await ended(page);
};

/** Makes a conversation with branches. */
const talk = async (page) => {
  await ask(page, 'Tell me a story about a fox.');
  await ask(page, 'Where did the fox live?');
  await again(page);
  await page.locator('article.user').last().hover();
  await page.locator('article.user').last().getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Edit the message').fill('Tell me another story.');
  await page.keyboard.press('Enter');
  await ended(page);
};

/** Makes the same conversation, and opens the tree of its branches. */
const talkBesideTree = async (page) => {
  await talk(page);
  await page.locator('#aside-open').click();
};

/** Makes a conversation with all kinds of text. */
const write = async (page) => {
  for (const text of ['Compare three drinks in a table.', 'The formula for the roots of a quadratic equation', 'Show one step of RWKV as code.']) await ask(page, text);
  await page.locator('.hl-keyword').first().waitFor();
  await page.locator('math mfrac').first().waitFor();
};

const take = async (name, { fill, others = [], url = null, ...options }) => {
  const { page, close } = await browser.open({ mock: { delay: 5 }, ...options });
  if (url) await page.goto(url);
  // a fixed font, because the system's font differs between machines
  await page.evaluate(() => (document.body.style.fontFamily = 'Inter, system-ui'));
  await page.evaluate(() => (window.limited = true));
  for (const text of others) {
    await ask(page, text);
    await page.locator('#new').click();
  }
  await fill(page);
  await page.mouse.move(0, 0);
  await page.evaluate(() => document.activeElement.blur());
  await page.waitForTimeout(300);
  await page.screenshot({ path: join(folder, `serve-${name}.png`) });
  await close();
};

const wide = { viewport: { width: 1280, height: 820 } };
if (real) {
  const others = ['What is the opposite of hot?', 'Give me a record of a cat as JSON.'];
  await take('light', { ...wide, colorScheme: 'light', fill: talkBesideTree, others });
  await take('dark', { ...wide, colorScheme: 'dark', fill: talkBesideTree, others });
  await take('phone', { viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2, fill: talk });
} else console.log('SKIPPED: serve-light.png, serve-dark.png and serve-phone.png need a server (WINGBEAT_URL)');
const mock = await start({ delay: 5 });
await take('text', { viewport: { width: 1280, height: 1240 }, colorScheme: 'light', fill: write, url: mock.url });
await mock.close();
await browser.close();
