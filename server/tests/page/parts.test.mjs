// Tests the small parts of the chat page: menus, titles, the composer, files, wide blocks, and touch screens.
import assert from 'node:assert/strict';
import { ask, ended, needsMock, tests } from './browser.mjs';

const check = tests();

const focused = (page) => page.evaluate(() => document.activeElement.title || document.activeElement.textContent || document.activeElement.id);
const opacity = (locator) => locator.evaluate((element) => getComputedStyle(element).opacity);
const overlap = (a, b) => a && b && a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

check('the buttons of a message are shown for the last one, on hover and on focus', needsMock, async ({ page }) => {
  await ask(page, 'one');
  await ask(page, 'two');
  const [first, last] = ['first', 'last'].map((which) => page.locator('article.assistant .buttons')[which]());
  await page.mouse.move(2, 2);
  assert.deepEqual([await opacity(first), await opacity(last)], ['0', '1']);
  await first.hover();
  assert.equal(await opacity(first), '1');
  await page.mouse.move(2, 2);
  assert.equal(await opacity(first), '0');
  await first.locator('button').first().focus();
  assert.equal(await opacity(first), '1');
});

check('a menu opens and closes by keyboard and by mouse, and has the figures', needsMock, async ({ page }) => {
  await ask(page, 'one');
  const button = page.locator('article.assistant').getByRole('button', { name: 'More actions' });
  const menu = page.getByRole('menu');
  await button.focus();
  await page.keyboard.press('Enter');
  assert.equal(await button.getAttribute('aria-expanded'), 'true');
  assert.equal(await focused(page), 'Continue the answer');
  for (const [key, item] of [['ArrowDown', 'Continue from here'], ['End', 'Delete the message'], ['ArrowDown', 'Continue the answer'], ['ArrowUp', 'Delete the message'], ['Home', 'Continue the answer']]) {
    await page.keyboard.press(key);
    assert.ok((await focused(page)).startsWith(item), key);
  }
  assert.match(await page.locator('.figures').innerText(), /^12 tokens\s+prompt \d+, 0 cached\s+[\d.]+ tokens\/s\s+seed 7\s+\S.*\d{4}/);
  assert.equal(await menu.getAttribute('aria-describedby'), 'menu-figures');
  await page.keyboard.press('Escape');
  assert.equal(await menu.count(), 0);
  assert.equal(await button.getAttribute('aria-expanded'), 'false');
  assert.equal(await focused(page), 'More actions and figures');
  await page.keyboard.press('ArrowUp');
  assert.ok((await focused(page)).startsWith('Delete'));
  await page.keyboard.press('Tab');
  assert.equal(await menu.count(), 0);
  await button.click();
  await page.mouse.click(700, 300);
  assert.equal(await menu.count(), 0);
  await button.click();
  await button.click();
  assert.equal(await menu.count(), 0);
  await button.click();
  const box = await menu.boundingBox();
  assert.ok(box.x >= 0 && box.y >= 0 && box.x + box.width <= 1280 && box.y + box.height <= 800, JSON.stringify(box));
  // Escape closes the menu, and does not stop the answer
  await page.keyboard.press('Escape');
  await page.locator('#input').fill('long');
  await page.keyboard.press('Enter');
  await page.locator('#thread').getByText('Sentence 3 of').waitFor();
  await page.locator('article.assistant').first().getByRole('button', { name: 'More actions' }).press('Enter');
  await page.keyboard.press('Escape');
  assert.ok(await page.locator('#stop').isVisible());
  await page.keyboard.press('Escape');
  await ended(page);
});

check('a title comes from the first message, and is changed above the thread', needsMock, async ({ page }) => {
  assert.ok(await page.locator('#rename').isDisabled());
  await ask(page, 'first  words\nof a message');
  const title = page.locator('h1');
  assert.equal(await title.innerText(), 'first words of a message');
  const change = async (text, key) => {
    await page.locator('#rename').click();
    await page.getByLabel('Title of the conversation').fill(text);
    await page.keyboard.press(key);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'rename');
  };
  await change('Fruit', 'Enter');
  assert.deepEqual([await title.innerText(), await page.locator('#list .name').innerText()], ['Fruit', 'Fruit']);
  await change('Bread', 'Escape');
  assert.equal(await title.innerText(), 'Fruit');
  await change('', 'Enter');
  assert.equal(await title.innerText(), 'first words of a message');
});

check('the model, its size and its device are beside the message field; one model is no choice', { ...needsMock, mock: { ids: ['small-world'] } }, async ({ page }) => {
  assert.equal(await page.locator('#model').isVisible(), false);
  assert.equal(await page.locator('#model-name').innerText(), 'small-world');
  assert.equal(await page.locator('#model-facts').innerText(), '12M f16 · NVIDIA H200');
});

check('the facts follow the chosen model, and Send needs a text', needsMock, async ({ page, server }) => {
  await page.locator('#model').selectOption('rwkv7-g1-1.5b');
  assert.equal(await page.locator('#model-facts').innerText(), '1.5B f16 · NVIDIA H200');
  const inactive = () => page.locator('#send').getAttribute('aria-disabled');
  assert.equal(await inactive(), 'true');
  await page.locator('#input').fill(' \n');
  assert.equal(await inactive(), 'true');
  await page.locator('#send').click({ force: true });
  assert.equal(server.requests.length, 0);
  await page.locator('#input').fill('one');
  assert.equal(await inactive(), 'false');
  await page.locator('#send').click();
  await ended(page);
  assert.equal(await inactive(), 'true');
});

const file = (name, text) => ({ name, mimeType: '', buffer: Buffer.from(text) });

check('text files join a message; others are refused', needsMock, async ({ page, server }) => {
  const add = (...files) => page.locator('#attach-file').setInputFiles(files);
  const chips = () => page.locator('#files li').allInnerTexts();
  const problem = page.locator('#files-problem');
  await add(file('notes.md', 'three short words\n```\n'), file('other.txt', 'a b'));
  await page.waitForFunction(() => / \d tokens.* \d tokens/s.test(document.getElementById('files').innerText) && !document.getElementById('files').innerText.includes('about'));
  assert.match((await chips())[0].replace(/\s+/g, ' '), /^notes\.md 22 bytes · 5 tokens$/);
  await page.getByRole('button', { name: 'Remove other.txt' }).click();
  assert.equal((await chips()).length, 1);
  for (const [bad, words] of [
    [file('a.png', Buffer.from([0x89, 0x50, 0])), 'a.png is not a text file in UTF-8.'],
    [file('zero.txt', 'a\0b'), 'zero.txt is not a text file in UTF-8.'],
    [file('big.txt', 'x'.repeat(1_200_000)), 'big.txt is too large: 1.2 MB, at most 1.0 MB.'],
    [file('none.txt', ''), 'none.txt is empty.'],
  ]) {
    await add(bad);
    await page.waitForFunction((words) => document.getElementById('files-problem').textContent === words, words);
    assert.equal((await chips()).length, 1);
  }
  // a file without text can be sent, too
  assert.equal(await page.locator('#send').getAttribute('aria-disabled'), 'false');
  await ask(page, 'What does it say?');
  assert.equal(await problem.isVisible(), false);
  assert.equal((await chips()).length, 0);
  const sent = 'File notes.md:\n````\nthree short words\n```\n````';
  assert.equal(server.requests[0].messages[0].content, `${sent}\n\nWhat does it say?`);
  const message = page.locator('article.user');
  assert.match(await message.locator('.file').innerText(), /notes\.md/);
  assert.equal(await message.locator('.text').innerText(), 'What does it say?');
  assert.equal(await page.locator('h1').innerText(), 'What does it say?');
  // an edited question keeps its file, even after a reload
  await page.reload();
  await message.waitFor();
  await message.getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Edit the message').fill('And now?');
  await page.keyboard.press('Enter');
  await ended(page);
  assert.equal(server.requests[1].messages[0].content, `${sent}\n\nAnd now?`);
  await page.locator('#new').click();
  await add(file('alone.csv', 'a,b'));
  await page.locator('#files li').waitFor();
  await page.locator('#send').click();
  await ended(page);
  assert.equal(server.requests[2].messages[0].content, 'File alone.csv:\n```\na,b\n```');
  assert.equal(await page.locator('h1').innerText(), 'alone.csv');
});

check('text files are dropped on the page', needsMock, async ({ page, url }) => {
  const data = await page.evaluateHandle(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(['dropped text'], 'drop.txt'));
    return transfer;
  });
  await page.dispatchEvent('#scroll', 'dragover', { dataTransfer: data });
  assert.ok(await page.locator('#composer.drops').isVisible());
  await page.dispatchEvent('#scroll', 'drop', { dataTransfer: data });
  await page.locator('#files li', { hasText: 'drop.txt' }).waitFor();
  assert.equal(await page.locator('#composer.drops').count(), 0);
  assert.equal(page.url(), `${url}/`);
});

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

const phone = { ...needsMock, viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true };

check('on a touch screen, targets have 44 pixels, and nothing covers Copy', phone, async ({ page }) => {
  const small = () =>
    page.evaluate(() =>
      [...document.querySelectorAll('button, select, summary, input, textarea, [role=treeitem] .hit')]
        .filter((element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest('[inert]') && !(element.disabled && element.type === 'checkbox'))
        .map((element) => [element.id || element.title || element.textContent || element.className.baseVal, element.getBoundingClientRect()])
        .filter(([, { width, height }]) => width < 43.5 || height < 41.5)
        .map(([name, { width, height }]) => `${name} ${width}x${height}`));
  await page.locator('#attach-file').setInputFiles(file('a.txt', 'text'));
  await page.locator('#files li').waitFor();
  assert.deepEqual(await small(), [], 'empty');
  for (const text of ['think about code', 'wide', 'two', 'table']) await ask(page, text);
  await page.getByRole('button', { name: 'Regenerate' }).last().tap();
  await ended(page);
  assert.deepEqual(await small(), [], 'thread');
  await page.locator('#scroll').evaluate((element) => element.scrollBy(0, -300));
  await page.locator('#to-end').waitFor();
  const pill = await page.locator('#to-end').boundingBox();
  for (const copy of await page.getByRole('button', { name: 'Copy', exact: true }).all()) {
    const box = await copy.boundingBox();
    // compares horizontal positions only, because the thread can be scrolled
    assert.ok(!overlap({ ...box, y: pill.y }, pill), 'Latest covers Copy');
  }
  await page.locator('#to-end').tap();
  await page.locator('article.assistant [aria-haspopup=menu]').last().tap();
  assert.deepEqual(await small(), [], 'menu');
  await page.getByRole('menuitem', { name: 'Delete' }).tap();
  const toast = await page.locator('#toast > div').boundingBox();
  assert.ok(!overlap(toast, await page.getByRole('button', { name: 'Copy', exact: true }).last().boundingBox()), 'the toast covers Copy');
  for (const part of ['settings', 'states', 'side', 'aside']) {
    await page.locator(`#${part}-open`).tap();
    if (part === 'settings') await page.locator('#advanced summary').tap();
    assert.deepEqual(await small(), [], part);
    if (part === 'side') assert.equal(await page.locator('#help-open').isVisible(), false);
    await page.keyboard.press('Escape');
  }
});
