// Tests how texts look: text from right to left, task lists, and the font of formulas.
import assert from 'node:assert/strict';
import { ask, needsMock, tests } from './browser.mjs';

const check = tests();

/** Returns, for each element, the side of its box at which the text begins. */
const sides = (locator) =>
  locator.evaluateAll((all) =>
    all.map((element) => {
      const range = document.createRange();
      range.selectNodeContents(element);
      const style = getComputedStyle(element);
      const [text, box] = [range.getBoundingClientRect(), element.getBoundingClientRect()];
      const [left, right] = [text.left - box.left - parseFloat(style.paddingLeft), box.right - text.right - parseFloat(style.paddingRight)];
      return Math.abs(left - right) < 1 ? 'both' : left < right ? 'left' : 'right';
    }));

/** Returns the side of a row at which its first cell is. */
const firstCell = (row) => row.evaluate((tr) => (tr.cells[0].offsetLeft < tr.cells[1].offsetLeft ? 'left' : 'right'));

check('each block of an answer begins at the side of its script', needsMock, async ({ page }) => {
  const answer = await ask(page, 'hebrew');
  await answer.locator('td').first().waitFor();
  const body = answer.locator('.body').last();
  assert.deepEqual(await sides(body.locator('> p')), ['right', 'left', 'right']);
  assert.deepEqual(await sides(body.locator('> h2')), ['right']);
  assert.deepEqual(await sides(body.locator('> blockquote > p')), ['right']);
  assert.deepEqual(await sides(body.locator('ul li')), ['right', 'left']);
  assert.deepEqual(await sides(body.locator('ol p')), ['right', 'right', 'right']);
  // numbers and bullets are at the side where the text begins
  const direction = (locator) => locator.evaluateAll((all) => all.map((element) => getComputedStyle(element).direction));
  assert.deepEqual(await direction(body.locator('li')), ['rtl', 'ltr', 'rtl', 'rtl']);
  assert.equal(await body.locator('blockquote').evaluate((quote) => getComputedStyle(quote).borderRightWidth), '3px');
  assert.equal(await firstCell(body.locator('tr').first()), 'right');
  assert.deepEqual((await sides(body.locator('td'))).slice(0, 2), ['right', 'left']);
  assert.deepEqual(await sides(body.locator('pre')), ['left']);
  assert.deepEqual(await direction(body.locator('code')), ['ltr', 'ltr']);
});

check('a message, its field and its editor begin at the side of their script', needsMock, async ({ page }) => {
  const direction = (selector) => page.locator(selector).last().evaluate((element) => getComputedStyle(element).direction);
  await page.locator('#input').fill('שלום');
  assert.equal(await direction('#input'), 'rtl');
  await page.locator('#input').fill('hello');
  assert.equal(await direction('#input'), 'ltr');
  await ask(page, 'שלום, עולם! מה שלומך היום?\nhello');
  const lines = await page.locator('article.user .text').evaluate((element) => {
    const at = (from, to) => {
      const range = document.createRange();
      range.setStart(element.firstChild, from);
      range.setEnd(element.firstChild, to);
      return range.getBoundingClientRect();
    };
    const [box, end] = [element.getBoundingClientRect(), element.textContent.indexOf('\n')];
    return [Math.round(box.right - at(0, end).right), Math.round(at(end + 1, end + 6).left - box.left)];
  });
  assert.deepEqual(lines, [0, 0]);
  await page.locator('article.user').hover();
  await page.locator('article.user').getByRole('button', { name: 'Edit' }).click();
  assert.equal(await direction('.editor textarea'), 'rtl');
});

check('a list of tasks has checkboxes', needsMock, async ({ page }) => {
  const answer = await ask(page, 'tasks');
  const boxes = answer.getByRole('checkbox');
  assert.deepEqual(
    await boxes.evaluateAll((all) => all.map((box) => [box.checked, box.disabled, box.getAttribute('aria-label')])),
    [[true, true, 'Done'], [false, true, 'To do'], [true, true, 'Done']],
  );
  assert.deepEqual(
    (await answer.locator('li').allInnerTexts()).map((text) => text.trim().replace(/\s+/g, ' ')),
    ['Load the model', 'Ask a question', '[y] no task', 'First More of it.', 'Second [ ] here'],
  );
  // a checkbox takes the place of the bullet
  const lefts = await answer.locator('ul li').evaluateAll((all) => all.map((li) => {
    const range = document.createRange();
    range.selectNodeContents(li.lastChild);
    return Math.round(range.getBoundingClientRect().left);
  }));
  assert.ok(lefts.every((left) => Math.abs(left - lefts[2]) <= 2), `${lefts}`);
  assert.deepEqual(await answer.locator('li').evaluateAll((all) => all.map((li) => getComputedStyle(li).listStyleType)), ['none', 'none', 'disc', 'decimal', 'decimal']);
});

check('formulas have a font whose brackets grow', needsMock, async ({ page }) => {
  const answer = await ask(page, 'brackets');
  await answer.locator('math mfrac').first().waitFor();
  await page.evaluate(() => document.fonts.ready);
  const session = await page.context().newCDPSession(page);
  for (const domain of ['DOM', 'CSS']) await session.send(`${domain}.enable`);
  const { root } = await session.send('DOM.getDocument');
  const fontsOf = async (selector) => {
    const { nodeId } = await session.send('DOM.querySelector', { nodeId: root.nodeId, selector });
    const { fonts } = await session.send('CSS.getPlatformFontsForNode', { nodeId });
    return fonts.map(({ familyName, isCustomFont }) => [familyName, isCustomFont]);
  };
  for (const part of ['mi', 'mo', '.mathscr', '.tml-prime']) assert.deepEqual(await fontsOf(`math ${part}`), [['STIX Two Math', true]], part);
  const ratios = await answer.evaluate((element) => {
    const height = (part) => part.getBoundingClientRect().height;
    const fences = [...element.querySelectorAll('math mo[fence], math mo[stretchy=true]')];
    return fences.map((fence) => height(fence) / height(fence.parentElement));
  });
  assert.ok(ratios.length >= 4 && ratios.every((ratio) => ratio > 0.9), `${ratios}`);
});
