// Tests where the focus is: in the message field, except on touch screens, where it would open the keyboard.
import assert from 'node:assert/strict';
import { ask, ended, needsMock, tests } from './browser.mjs';

const check = tests();

const focused = (page) => page.evaluate(() => document.activeElement.id || document.activeElement.getAttribute('aria-label') || document.activeElement.tagName);

// pretends that no pointing device exists, as some remote desktops report
const noMouse = () => {
  const matching = window.matchMedia.bind(window);
  window.matchMedia = (query) => matching(/hover|pointer/.test(query) ? 'not all' : query);
};

for (const [name, init] of [['', null], [', also without a mouse', noMouse]]) {
  check(`the message field has the focus at opening${name}`, { init }, async ({ page }) => {
    assert.equal(await focused(page), 'input');
    await ask(page, 'light');
    await page.reload();
    await page.locator('article.assistant').waitFor();
    await page.waitForFunction(() => document.activeElement.id === 'input');
  });
}

check('the message field has the focus after a message, an example and a choice of a conversation', needsMock, async ({ page }) => {
  await page.locator('#examples button').first().click();
  assert.equal(await focused(page), 'input');
  await ended(page);
  assert.equal(await focused(page), 'input');
  await page.locator('#input').fill('long');
  await page.locator('#send').click();
  assert.equal(await focused(page), 'input');
  await page.locator('#stop').click();
  await ended(page);
  assert.equal(await focused(page), 'input');
  await page.locator('#new').click();
  assert.equal(await focused(page), 'input');
  await page.locator('#list .open').first().click();
  await page.locator('article.assistant').first().waitFor();
  assert.equal(await focused(page), 'input');
});

const phone = { ...needsMock, viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true };

check('on a touch screen, only a touch of the field opens the keyboard', phone, async ({ page }) => {
  const isField = async () => (await focused(page)) === 'input';
  assert.equal(await isField(), false, 'opening');
  await page.locator('#examples button').first().tap();
  await ended(page);
  assert.equal(await isField(), false, 'example');
  await page.getByRole('button', { name: 'Regenerate' }).tap();
  await ended(page);
  assert.equal(await isField(), false, 'regenerate');
  await page.locator('#input').tap();
  await page.locator('#input').fill('long');
  await page.locator('#send').tap();
  await page.locator('#stop').waitFor();
  assert.equal(await focused(page), 'stop', 'send');
  await page.locator('#stop').tap();
  await ended(page);
  assert.equal(await focused(page), 'send', 'stop');
  await page.locator('#side-open').tap();
  await page.locator('#new').tap();
  await page.locator('#empty').waitFor();
  assert.equal(await isField(), false, 'new conversation');
});
