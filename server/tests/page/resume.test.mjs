// Tests answers that are interrupted: lost connections, reloads, Stop and Continue; and the page while no text arrives.
import assert from 'node:assert/strict';
import { act, ask, ended, figures, needsMock, needsServer, tests } from './browser.mjs';

const check = tests();

// 480 words take about three seconds
const fast = { ...needsMock, mock: { delay: 5 } };
const LONG = Array.from({ length: 80 }, (_, i) => `Sentence ${i + 1} of a long answer.`).join(' ');
const body = (page) => page.locator('article.assistant .body').last();

/** Sends a message and waits for a part of its answer. */
const begin = async (page, text, part) => {
  await page.locator('#input').fill(text);
  await page.keyboard.press('Enter');
  await page.locator('#thread').getByText(part).waitFor();
};

check('a lost connection is opened again, and no text is lost or twice', fast, async ({ page, server }) => {
  await begin(page, 'long drop', 'The connection is lost').catch(() => {});
  await ended(page);
  assert.equal(await body(page).innerText(), LONG);
  assert.equal(server.requests.length, 1);
  assert.deepEqual([server.requests[0].resumable, server.requests[0].return_progress], [true, true]);
});

check('a reload continues the answer that was running', fast, async ({ page, server }) => {
  await begin(page, 'long', 'Sentence 9 of');
  await page.reload();
  await page.locator('#stop').waitFor();
  await ended(page);
  assert.equal(await body(page).innerText(), LONG);
  assert.match(await figures(page, page.locator('article.assistant')), /481 tokens/);
  assert.equal(server.requests.length, 1);
});

check('a reload continues answers of conversations that are not shown', fast, async ({ page }) => {
  await begin(page, 'long', 'Sentence 3 of');
  await page.locator('#new').click();
  await ask(page, 'light');
  await page.reload();
  await page.locator('#list li.busy').waitFor();
  await page.locator('#list li.busy').waitFor({ state: 'detached' });
  await page.locator('#list .open', { hasText: 'long' }).click();
  await page.locator('#thread').getByText('Sentence 80 of').waitFor();
  assert.equal(await body(page).innerText(), LONG);
});

check('another tab shows the answer, and does not receive it', fast, async ({ page, url }) => {
  await begin(page, 'long', 'Sentence 3 of');
  const other = await page.context().newPage();
  await other.goto(url);
  await other.locator('#thread').getByText('Sentence 20 of').waitFor();
  assert.ok(await other.locator('#send').isVisible());
  await ended(page);
  await other.locator('#thread').getByText('Sentence 80 of a long answer.').waitFor();
  assert.equal(await body(other).innerText(), LONG);
});

check('Stop stops the answer on the server, and Continue continues its text', fast, async ({ page, server }) => {
  await begin(page, 'long', 'Sentence 3 of');
  await page.locator('#stop').click();
  await ended(page);
  const stopped = await body(page).innerText();
  assert.equal(server.stopped.length, 1);
  await page.locator('article.assistant').getByText('Continue', { exact: true }).click();
  await page.locator('#thread').getByText('Sentence 80 of').waitFor();
  await ended(page);
  assert.equal(await body(page).innerText(), LONG);
  assert.equal(await page.locator('article.assistant').count(), 1);
  const last = server.requests[1].messages.at(-1);
  assert.equal(last.role, 'assistant');
  assert.equal(last.content.trim(), stopped);
});

check('Stop also stops an answer that has not begun', needsMock, async ({ page, server }) => {
  await page.locator('#input').fill('queue');
  await page.keyboard.press('Enter');
  await page.locator('article .waiting').waitFor();
  await page.keyboard.press('Escape');
  await ended(page);
  assert.equal(server.stopped.length, 0);
  await page.waitForTimeout(1000);
  assert.equal(server.stopped.length, 1);
});

check('an answer that the server no longer has can be continued', fast, async ({ page, server }) => {
  await begin(page, 'long', 'Sentence 9 of');
  await page.goto('about:blank');
  server.kept.clear();
  await page.goBack();
  const answer = page.locator('article.assistant');
  await answer.getByText('interrupted').waitFor();
  await answer.getByText('Continue', { exact: true }).click();
  await page.locator('#thread').getByText('Sentence 80 of').waitFor();
  await ended(page);
  assert.equal(await body(page).innerText(), LONG);
});

check('an older server: a reload shows the text so far, with Continue', { ...needsMock, mock: { resumes: false, delay: 5 } }, async ({ page }) => {
  await begin(page, 'long', 'Sentence 20 of');
  await page.reload();
  const answer = page.locator('article.assistant');
  await answer.getByText('interrupted').waitFor();
  assert.match(await answer.innerText(), /Sentence 3 of/);
  await answer.getByText('Continue', { exact: true }).click();
  await page.locator('#thread').getByText('Sentence 80 of').waitFor();
  await ended(page);
  assert.equal(await body(page).innerText(), LONG);
});

check('Continue of an earlier answer makes a branch', needsMock, async ({ page }) => {
  await ask(page, 'one');
  await ask(page, 'two');
  await act(page, page.locator('article.assistant').first(), 'Continue the answer');
  const answer = await ended(page);
  assert.equal(await page.locator('article.assistant').count(), 1);
  assert.equal(await answer.locator('.place').innerText(), '2/2');
  assert.match(await answer.innerText(), /This is answer 1[\s\S]*And so on/);
  await answer.getByRole('button', { name: 'Previous branch' }).click();
  assert.equal(await page.locator('article.assistant').count(), 2);
});

check('Continue says so if the model has nothing to add', needsMock, async ({ page, server }) => {
  await ask(page, 'table');
  await ask(page, 'code');
  const answer = (i) => page.locator('article.assistant').nth(i);
  const numbers = async () => [await figures(page, answer(0)), await figures(page, answer(1))];
  const [answers, before] = [await page.locator('article.assistant .body').allInnerTexts(), await numbers()];
  const toast = page.locator('#toast', { hasText: 'The model has nothing to add to this answer.' });
  for (const i of [1, 0]) {
    await act(page, answer(i), 'Continue the answer');
    await toast.waitFor();
    await ended(page);
    // the answers and their figures did not change, and no branch was added
    assert.deepEqual(await page.locator('article.assistant .body').allInnerTexts(), answers);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'input');
    assert.deepEqual(await numbers(), before);
    assert.equal(await page.locator('article .place:visible').count(), 0);
    await toast.waitFor({ state: 'detached' });
  }
  assert.equal(server.requests.length, 4);
});

check('a long prompt shows the progress of its prefill', { ...needsMock, mock: { delay: 60 } }, async ({ page }) => {
  await page.locator('#input').fill('prefill');
  await page.keyboard.press('Enter');
  await page.getByText(/Prefill: [\d,]+ of 4,000 tokens/).waitFor();
  const bar = page.locator('article progress');
  await page.waitForFunction(() => document.querySelector('article progress')?.value >= 1000);
  assert.equal(await bar.getAttribute('max'), '4000');
  const answer = await ended(page);
  assert.equal(await bar.isVisible(), false);
  assert.match(await answer.innerText(), /Done\./);
});

check('a thought shows its seconds and its last line, then its duration', { ...needsMock, mock: { delay: 70 } }, async ({ page }) => {
  await page.locator('#input').fill('think');
  await page.keyboard.press('Enter');
  const answer = page.locator('article.assistant');
  await answer.locator('.last', { hasText: 'The reader asks' }).waitFor();
  await answer.locator('summary', { hasText: 'Thinking for 1 s' }).waitFor();
  await ended(page);
  assert.match(await answer.locator('summary').innerText(), /^Thought for [12] s$/);
  assert.equal(await answer.locator('.last').isVisible(), false);
});

check('the real server: a reload, Stop and Continue keep the text', needsServer, async ({ page }) => {
  const bodies = [];
  await page.context().route('**/v1/chat/completions', (route) => {
    const body = JSON.parse(route.request().postData());
    bodies.push(body);
    // a grammar forces a long answer, because the tiny model's own answers end within milliseconds
    route.continue({ postData: JSON.stringify({ ...body, grammar: 'root ::= [a-z ]{20000}', max_tokens: 20000 }) });
  });
  await page.locator('#input').fill('In the beginning');
  await page.keyboard.press('Enter');
  const text = () => page.evaluate(() => [...document.querySelectorAll('article.assistant .body')].at(-1)?.textContent ?? '');
  const grown = (length) => page.waitForFunction((n) => [...document.querySelectorAll('article.assistant .body')].at(-1)?.textContent.length > n, length);
  await grown(500);
  const before = await text();
  await page.reload();
  await page.locator('#stop').waitFor();
  await grown(before.length + 500);
  assert.ok((await text()).startsWith(before));
  await page.locator('#stop').click();
  await ended(page);
  const stopped = await text();
  await page.locator('article.assistant').getByText('Continue', { exact: true }).click();
  await grown(stopped.length + 300);
  assert.ok((await text()).startsWith(stopped));
  await page.locator('#stop').click();
  await ended(page);
  assert.equal(bodies.length, 2);
  assert.equal(bodies[1].messages.at(-1).role, 'assistant');
  assert.equal(await page.locator('.failure:visible').count(), 0);
});
