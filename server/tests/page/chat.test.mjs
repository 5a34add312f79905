// Tests the thread of the chat page: streaming, stop, branches, reload, errors, key.
import assert from 'node:assert/strict';
import { act, ask, ended, figures, needsMock, needsServer, tests, texts } from './browser.mjs';
import { HTML } from './mock.mjs';

const check = tests();

const head = (page) => page.locator('[role=treeitem][aria-selected=true]');
const place = (page, role) => page.locator(`article.${role} .place`).last();

check('an answer streams, and its numbers are shown', {}, async ({ page }) => {
  const answer = await ask(page, 'light');
  assert.notEqual((await answer.locator('.body').last().innerText()).trim(), '');
  // a short answer has no plot, which would show mostly noise
  assert.match(await page.locator('#speed').textContent(), /^[\d.]+ tokens\/s on average\d+ tokens?$/);
  assert.equal(await page.locator('#speed svg').count(), 0);
  assert.equal(await page.locator('h1').innerText(), 'light');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'input');
  assert.match(await figures(page, answer), /\d+ tokens?\s+prompt \d+, \d+ cached/);
});

check('a long answer has a plot of its speed', { ...needsMock, mock: { delay: 3 } }, async ({ page }) => {
  await ask(page, 'long');
  assert.match(await page.locator('#speed svg').getAttribute('aria-label'), /^Tokens per second: average [\d.]+, highest [\d.]+$/);
});

check('text appears before the answer ends', needsMock, async ({ page }) => {
  await page.locator('#input').fill('long');
  await page.keyboard.press('Enter');
  await page.locator('#thread').getByText('Sentence 3 of').waitFor();
  assert.equal(await page.locator('article.assistant').getAttribute('aria-busy'), 'true');
  assert.ok(await page.locator('#stop').isVisible());
  const length = (await page.locator('article.assistant').innerText()).length;
  await page.waitForFunction((n) => document.querySelector('article.assistant').innerText.length > n + 50, length);
});

check('Escape stops an answer and keeps its text; the next message continues', needsMock, async ({ page, server }) => {
  await page.locator('#input').fill('long');
  await page.keyboard.press('Enter');
  await page.locator('#thread').getByText('Sentence 3 of').waitFor();
  await page.keyboard.press('Escape');
  const answer = await ended(page);
  assert.match(await answer.innerText(), /Sentence 3 of[\s\S]*stopped/);
  await ask(page, 'more');
  const { messages, session_id } = server.requests[1];
  assert.deepEqual(messages.map((message) => message.role), ['user', 'assistant', 'user']);
  assert.match(messages[1].content, /Sentence 3 of/);
  assert.notEqual(session_id, server.requests[0].session_id);
});

check('Shift+Enter begins a line, Enter sends', {}, async ({ page }) => {
  await page.locator('#input').pressSequentially('a');
  await page.keyboard.press('Shift+Enter');
  await page.locator('#input').pressSequentially('b');
  assert.equal(await page.locator('#input').inputValue(), 'a\nb');
  await page.keyboard.press('Enter');
  assert.equal(await page.locator('article.user .text').innerText(), 'a\nb');
  await page.keyboard.press('Escape');
  await ended(page);
});

check('regenerate and edit make branches, which controls and the tree select', {}, async ({ page }) => {
  await ask(page, 'first');
  await ask(page, 'second');
  await page.getByRole('button', { name: 'Regenerate' }).last().click();
  await ended(page);
  assert.equal(await place(page, 'assistant').innerText(), '2/2');
  await page.locator('article.user').last().getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Edit the message').fill('changed');
  await page.keyboard.press('Enter');
  await ended(page);
  assert.deepEqual(await texts(page, 'article.user .text'), ['first', 'changed']);
  assert.equal(await place(page, 'user').innerText(), '2/2');
  await page.locator('#aside-open').click();
  assert.equal(await page.locator('[role=treeitem]').count(), 7);

  await page.locator('article.user').last().getByRole('button', { name: 'Previous branch' }).click();
  assert.deepEqual(await texts(page, 'article.user .text'), ['first', 'second']);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.step), '-1');
  assert.equal(await place(page, 'assistant').innerText(), '2/2');
  await page.getByRole('treeitem', { name: 'You: changed' }).click();
  assert.deepEqual(await texts(page, 'article.user .text'), ['first', 'changed']);

  // moves through the tree by keyboard, from the head by its parent to the root
  await head(page).focus();
  for (const key of ['ArrowLeft', 'ArrowLeft', 'ArrowLeft']) await page.keyboard.press(key);
  assert.match(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), /^You: first/);
  await page.keyboard.press('End');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('role')), 'treeitem');
});

check('a branch keeps its session, and another branch gets a session of its own', needsMock, async ({ page, server }) => {
  await ask(page, 'one');
  await ask(page, 'two');
  await page.getByRole('button', { name: 'Regenerate' }).last().click();
  await ended(page);
  await ask(page, 'three');
  await page.locator('article.assistant').nth(1).getByRole('button', { name: 'Previous branch' }).click();
  await ask(page, 'four');
  const ids = server.requests.map((request) => request.session_id);
  assert.deepEqual([ids[1], ids[3], ids[4]], [ids[0], ids[2], ids[0]]);
  assert.notEqual(ids[2], ids[0]);
  for (const id of ids) assert.match(id, /^[A-Za-z0-9._-]{1,100}$/);
});

check('an earlier answer can be continued in a new branch', {}, async ({ page }) => {
  await ask(page, 'one');
  await ask(page, 'two');
  await act(page, page.locator('article.assistant').first(), 'Continue from here');
  assert.deepEqual(await texts(page, 'article.user .text'), ['one']);
  await ask(page, 'three');
  assert.deepEqual(await texts(page, 'article.user .text'), ['one', 'three']);
  assert.equal(await place(page, 'user').innerText(), '2/2');
});

check('a message without an answer offers one', {}, async ({ page }) => {
  const offer = page.getByRole('button', { name: 'Generate an answer' });
  await ask(page, 'one');
  await ask(page, 'two');
  assert.equal(await offer.count(), 0);
  const remove = () => act(page, page.locator('article.assistant').last(), 'Delete the message');
  await remove();
  assert.equal(await page.locator('article.assistant').count(), 1);
  assert.equal(await offer.count(), 1);
  await page.reload();
  await offer.click();
  await ended(page);
  assert.deepEqual(await texts(page, 'article.user .text'), ['one', 'two']);
  assert.equal(await page.locator('article.assistant').count(), 2);
  assert.equal(await offer.count(), 0);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'input');
  // the shortcut also answers the last message, and not an earlier message again
  await remove();
  await offer.waitFor();
  await page.keyboard.press('Alt+r');
  await ended(page);
  assert.equal(await page.locator('article.assistant').count(), 2);
  assert.equal(await page.locator('article .place:visible').count(), 0);
});

check('thoughts are folded, and tool calls are text', needsMock, async ({ page }) => {
  const answer = await ask(page, 'think');
  assert.equal(await answer.locator('details').getAttribute('open'), null);
  assert.equal(await answer.getByText('The reader asks').isVisible(), false);
  await answer.locator('summary').click();
  await answer.getByText('The reader asks').waitFor();
  assert.match(await (await ask(page, 'tool')).innerText(), /weather\(\{"city": "Leipzig"\}\)/);
});

check('markup in an answer stays text', needsMock, async ({ page }) => {
  const answer = await ask(page, `html ${HTML}`);
  assert.equal(await answer.locator('.body').last().innerText(), HTML);
  assert.equal(await page.locator('article.user .text').innerText(), `html ${HTML}`);
  assert.equal(await page.locator('article img, article script').count(), 0);
  await page.reload();
  await page.locator('article.assistant').waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  const code = await ask(page, 'code');
  assert.match(await code.locator('pre code').innerText(), /^def step[\s\S]*outer product$/);
});

check('an error has the message and the request id, and can be sent again', needsMock, async ({ page, server }) => {
  const refused = await ask(page, 'refuse');
  assert.match(await refused.innerText(), /The queue is full[\s\S]*status 429 · queue_full · try again after 2 s · request req-\d+/);
  await page.getByRole('button', { name: 'Send again' }).click();
  await ended(page);
  assert.equal(server.requests.length, 2);
  assert.equal(await page.locator('article.assistant').count(), 1);
  const cut = await ask(page, 'cut');
  assert.match(await cut.innerText(), /You wrote[\s\S]*The device was lost[\s\S]*device_lost/);
  await page.getByRole('button', { name: 'Send again' }).last().click();
  await ended(page);
  assert.equal(await place(page, 'assistant').innerText(), '2/2');
  // the mock loses the answer to `break`
  assert.match(await (await ask(page, 'break')).innerText(), /You wrote[\s\S]*Continue[\s\S]*interrupted/);
});

check('the page asks for a key after 401, and sends the request again', { ...needsMock, mock: { key: 'secret' } }, async ({ page }) => {
  await page.locator('#key-field').fill('wrong');
  await page.keyboard.press('Enter');
  await page.locator('#key').waitFor();
  await page.locator('#input').fill('light');
  await page.locator('#input').press('Enter');
  await page.locator('.failure', { hasText: 'The API key is missing or unknown' }).waitFor();
  await page.locator('#key-field').fill('secret');
  await page.keyboard.press('Enter');
  await page.locator('#thread').getByText('This is answer 1').waitFor();
  await ended(page);
  assert.equal(await page.locator('#model').inputValue(), 'small-world');
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes('secret')), false);
});

check('screen readers hear sentences and the end', needsMock, async ({ page }) => {
  await page.evaluate(() => {
    window.heard = [];
    new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach((node) => heard.push(node.textContent)))).observe(
      document.getElementById('spoken'),
      { childList: true },
    );
  });
  await ask(page, 'light');
  const heard = await page.evaluate(() => window.heard);
  assert.deepEqual(heard.slice(-3), ['This is answer 1.', 'Each answer ends a branch.', 'End of the answer, 12 tokens.']);
});

check('a reload restores the conversation', {}, async ({ page }) => {
  const answer = await (await ask(page, 'light')).locator('.body').last().innerText();
  await page.reload();
  await page.locator('article.assistant').waitFor();
  assert.equal(await page.locator('article.assistant .body').last().innerText(), answer);
  assert.equal(await page.locator('#list li').count(), 1);
});

check('a second message of a branch uses the state of the first', {}, async ({ page }) => {
  await ask(page, 'light');
  const words = await figures(page, await ask(page, 'and water'));
  const [, prompt, cached] = /prompt (\d+), (\d+) cached/.exec(words).map(Number);
  assert.ok(cached > 0 && cached < prompt, words);
});

check('errors of the real server have a status and a request id', needsServer, async ({ page }) => {
  await ask(page, 'light');
  await page.keyboard.press('Alt+,');
  await page.locator('#set-schema').fill('{"type": "nonsense"}');
  await page.keyboard.press('Escape');
  assert.match(await (await ask(page, 'water')).innerText(), /status 400 ·[\s\S]*request \S+/);
  await page.keyboard.press('Alt+,');
  await page.locator('#set-schema').fill('');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Send again' }).click();
  await ended(page);
  assert.equal(await page.locator('.failure:visible').count(), 0);
});

check('a long answer of the real server can be stopped', needsServer, async ({ page }) => {
  // The tiny model's own answers end within milliseconds. A grammar forces a long answer.
  await page.route('**/v1/chat/completions', (route) => {
    const body = JSON.parse(route.request().postData());
    route.continue({ postData: JSON.stringify({ ...body, grammar: 'root ::= [a-z ]{20000}', max_tokens: 20000 }) });
  });
  await page.locator('#input').fill('In the beginning');
  await page.keyboard.press('Enter');
  await page.locator('article.assistant .body', { hasText: /\w/ }).last().waitFor();
  await page.locator('#stop').click();
  const answer = await ended(page);
  assert.match(await answer.innerText(), /\w[\s\S]*stopped/);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'input');
});

check('every branch of the real server reuses its part of the conversation', needsServer, async ({ page }) => {
  const cached = async (answer) => Number(/, (\d+) cached/.exec(await figures(page, answer))[1]);
  await ask(page, 'light');
  assert.ok((await cached(await ask(page, 'and water'))) > 0, 'the same branch');
  await page.getByRole('button', { name: 'Regenerate' }).last().click();
  assert.ok((await cached(await ended(page))) > 0, 'another answer');
  assert.ok((await cached(await ask(page, 'and fire'))) > 0, 'the new branch');
  await page.locator('article.assistant').nth(1).getByRole('button', { name: 'Previous branch' }).click();
  assert.ok((await cached(await ask(page, 'and air'))) > 0, 'the first branch');
});
