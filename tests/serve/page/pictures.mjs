// Takes the pictures of the documentation: docs/images/serve-light.png, serve-dark.png and serve-phone.png.
//
//   node tests/serve/page/pictures.mjs FOLDER
import { join } from 'node:path';
import { ask, ended, launch } from './browser.mjs';

const folder = process.argv[2] ?? 'docs/images';
const browser = await launch();

/** Makes a conversation with branches, thoughts and code. */
const talk = async (page) => {
  await ask(page, 'How does an RWKV model remember?');
  await ask(page, 'How large is a state?');
  await page.getByRole('button', { name: 'Regenerate' }).last().click();
  await ended(page);
  await page.locator('article.user').last().getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Edit the message').fill('Show one step as code.');
  await page.keyboard.press('Enter');
  await ended(page);
  await page.mouse.move(0, 0);
  await page.evaluate(() => document.activeElement.blur());
};

for (const [name, options] of [
  ['light', { colorScheme: 'light', viewport: { width: 1280, height: 820 } }],
  ['dark', { colorScheme: 'dark', viewport: { width: 1280, height: 820 } }],
  ['phone', { colorScheme: 'light', viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 }],
]) {
  const { page, close } = await browser.open({ mock: { delay: 25 }, ...options });
  // stands for the font of the reader's system, which differs between machines
  await page.evaluate(() => (document.body.style.fontFamily = 'Inter, system-ui'));
  if (name !== 'phone') {
    await ask(page, 'Translate “wingbeat” into German.');
    await page.locator('#new').click();
    await ask(page, 'A tool for the weather in Leipzig');
    await page.locator('#new').click();
  }
  await talk(page);
  await page.waitForTimeout(300);
  await page.screenshot({ path: join(folder, `serve-${name}.png`) });
  await close();
}
await browser.close();
