// Tests the small parts of the chat page: wide blocks.
import assert from 'node:assert/strict';
import { ask, needsMock, tests } from './browser.mjs';

const check = tests();

check('wide code and wide tables have a shadow and wrap on request, others do not', { ...needsMock, mock: { delay: 4 } }, async ({ page }) => {
  const answer = await ask(page, 'wide');
  await answer.locator('td').first().waitFor();
  const scrolls = (part) => answer.locator(part).evaluate((element) => [element.scrollWidth > element.clientWidth, getComputedStyle(element).backgroundAttachment.includes('local')]);
  for (const [part, name] of [['pre', 'the code'], ['.table', 'the table']]) {
    const button = answer.getByRole('button', { name: `Wrap ${name}` });
    assert.deepEqual(await scrolls(part), [true, true], part);
    await button.click();
    assert.deepEqual([(await scrolls(part))[0], await button.getAttribute('aria-pressed')], [false, 'true'], part);
  }
  await answer.getByRole('button', { name: 'Wrap the table' }).click();
  assert.deepEqual(await scrolls('.table'), [true, true]);
  for (const text of ['code', 'table']) await (await ask(page, text)).locator('.scrolls').waitFor();
  await page.waitForTimeout(100);
  assert.equal(await page.locator('article:nth-of-type(n+3) .wrap:visible').count(), 0);
});
