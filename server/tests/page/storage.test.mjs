// Tests the data that the page keeps: conversations in IndexedDB, with search and dates, and states on the server.
import assert from 'node:assert/strict';
import { act, ask, ended, needsMock, tests, texts } from './browser.mjs';

const check = tests();

const DAY = 86_400_000;
const conversation = (id, text, updated) => ({
  version: 1, id, title: '', created: updated, updated, model: '', system: '', settings: {}, state: null, next: 3, head: 'n2',
  nodes: [
    { id: 'n1', parent: null, role: 'user', content: text, created: updated },
    { id: 'n2', parent: 'n1', role: 'assistant', content: `An answer about ${text}.`, created: updated, finish: 'stop' },
  ],
});

/** Fills localStorage as the first version of this page did. */
const old = ([conversations, current]) => {
  if (localStorage.getItem('filled')) return;
  localStorage.setItem('filled', '1');
  for (const c of conversations) localStorage.setItem(`wingbeat.c.${c.id}`, JSON.stringify(c));
  localStorage.setItem('wingbeat.list', JSON.stringify(conversations.map(({ id, updated }) => ({ id, title: id, updated }))));
  localStorage.setItem('wingbeat.current', JSON.stringify(current));
};

/** Returns the source of a script that calls `f` with `argument`. */
const script = (f, argument) => ({ content: `(${f})(${JSON.stringify(argument)})` });

check('a conversation of 2 MB survives a reload', needsMock, async ({ page }) => {
  const nodes = [];
  for (let i = 0; i < 100; i += 1) {
    nodes.push({ id: `n${2 * i + 1}`, parent: i ? `n${2 * i}` : null, role: 'user', content: `Question ${i}` });
    const content = `Paragraph ${i} with **bold** words.\n\n- a list\n- of things\n\n`.repeat(330) + `end ${i}`;
    nodes.push({ id: `n${2 * i + 2}`, parent: `n${2 * i + 1}`, role: 'assistant', content, finish: 'stop' });
  }
  const text = JSON.stringify({ version: 1, nodes, head: 'n200' });
  assert.ok(text.length > 2_000_000, text.length);
  await page.locator('#upload-file').setInputFiles({ name: 'a.json', mimeType: 'application/json', buffer: Buffer.from(text) });
  await page.locator('#thread').getByText('end 99').waitFor({ timeout: 30_000 });
  const began = Date.now();
  await page.reload();
  await page.locator('#thread').getByText('end 99').waitFor({ timeout: 30_000 });
  console.log(`# shown again after ${Date.now() - began} ms`);
  assert.equal(await page.locator('article').count(), 200);
  await ask(page, 'and one more');
  await page.reload();
  await page.locator('#thread').getByText('This is answer').waitFor({ timeout: 30_000 });
});

const now = Date.now();
const three = [conversation('aaa', 'apples', now), conversation('bbb', 'pears', now - DAY), conversation('ccc', 'quinces', now - 90 * DAY)];

check('conversations of localStorage are moved, and have dates', { ...needsMock, init: script(old, [three, 'bbb']) }, async ({ page }) => {
  assert.equal(await page.locator('h1').innerText(), 'pears');
  assert.deepEqual(await texts(page, '#list .name'), ['apples', 'pears', 'quinces']);
  const [today, yesterday, month] = await texts(page, '#list .when');
  assert.deepEqual([today, yesterday], ['Today', 'Yesterday']);
  assert.match(month, /^[A-Z][a-z]+ \d{4}$/);
  assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).filter((name) => name.startsWith('wingbeat.'))), []);
  await page.reload();
  await page.locator('#list li').nth(2).waitFor();
  assert.equal(await page.locator('h1').innerText(), 'pears');
});

check('the search finds words of all messages', { ...needsMock, init: script(old, [three, 'aaa']) }, async ({ page }) => {
  await page.locator('#search').fill('about QUINCES');
  await page.locator('#list li').nth(1).waitFor({ state: 'detached' });
  assert.deepEqual(await texts(page, '#list .name'), ['quinces']);
  assert.match(await page.locator('#list .excerpt').innerText(), /An answer about quinces/);
  await page.locator('#list .open').click();
  await page.locator('h1', { hasText: 'quinces' }).waitFor();
  await page.locator('#search').fill('bananas');
  await page.getByText('No conversation contains these words.').waitFor();
  await page.locator('#search').press('Escape');
  await page.locator('#list li').nth(2).waitFor();
});

const broken = () => Object.defineProperty(window, 'indexedDB', { value: { open: () => { throw new Error('no storage'); } } });

check('without storage, the page says so and works', { ...needsMock, init: script(broken) }, async ({ page }) => {
  await page.locator('#toast', { hasText: 'offers no storage' }).waitFor();
  await ask(page, 'one');
  await page.locator('#new').click();
  await ask(page, 'two');
  await page.locator('#list .open', { hasText: 'one' }).click();
  await page.locator('article.user', { hasText: 'one' }).waitFor();
});

const full = () => {
  const put = IDBObjectStore.prototype.put;
  IDBObjectStore.prototype.put = function (...values) {
    if (this.name === 'conversations') throw new DOMException('full', 'QuotaExceededError');
    return put.apply(this, values);
  };
};

check('a full storage is reported once, and the conversation goes on', { ...needsMock, init: script(full) }, async ({ page }) => {
  await ask(page, 'one');
  await page.locator('#toast', { hasText: 'storage of this browser is full' }).waitFor();
  await ask(page, 'two');
  assert.equal(await page.locator('article.user').count(), 2);
});

const kept = [{ name: 'page-gone-n2', days: 8 }, { name: 'page-other-n2', days: 2 }, { name: 'page-other-n4', days: 1 }];

check('states of conversations are grouped, expire, are counted in their own browser only, and go with their conversation', { ...needsMock, mock: { kept } }, async ({ page, server }) => {
  await ask(page, 'apples');
  assert.equal(server.states.has('page-gone-n2'), false);
  await page.locator('#states-open').click();
  await page.locator('#state-kept summary').click();
  assert.equal(await page.locator('#state-kept summary').innerText(), '1 state kept for conversations');
  const rows = page.locator('#state-kept li');
  assert.match(await rows.nth(0).innerText(), /^apples\s+1 state · /);
  assert.equal(await rows.count(), 1);
  assert.deepEqual(await texts(page, '#state-list strong'), ['greeting']);
  await page.getByRole('button', { name: 'Delete the states of apples' }).click();
  await page.locator('#state-kept').waitFor({ state: 'hidden' });
  assert.deepEqual([...server.states.keys()].filter((name) => name.startsWith('page-')), ['page-other-n2', 'page-other-n4']);
  await page.keyboard.press('Escape');
  await ask(page, 'and pears');
  await page.keyboard.press('Escape');
  // the states are deleted only when the deletion of the conversation can no longer be undone
  await act(page, page.locator('#list li').first(), 'Delete');
  await new Promise((done) => setTimeout(done, 9500));
  assert.deepEqual([...server.states.keys()], ['greeting', 'page-other-n2', 'page-other-n4']);
});

check('a message is deleted with all after it, and comes back', needsMock, async ({ page }) => {
  await ask(page, 'one');
  await ask(page, 'two');
  await act(page, page.locator('article.assistant').first(), 'Delete the message');
  assert.equal(await page.locator('article').count(), 1);
  await page.getByRole('button', { name: 'Undo' }).click();
  assert.equal(await page.locator('article').count(), 4);
  await page.reload();
  await page.locator('article').nth(3).waitFor();
  await ended(page);
});
