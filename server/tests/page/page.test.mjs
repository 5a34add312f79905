// Tests the chat page without its thread: conversations, files, settings, states, themes, narrow windows, accessibility.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { act, ask, axe, ended, needsMock, real, tests, texts } from './browser.mjs';

const check = tests();

const row = (page, i = 0) => page.locator('#list li').nth(i);

check('conversations are listed, renamed, deleted and restored', {}, async ({ page }) => {
  await ask(page, 'apples');
  await page.keyboard.press('Alt+n');
  await ask(page, 'pears');
  assert.deepEqual(await texts(page, '#list .open'), ['pears', 'apples']);
  await row(page, 1).locator('.open').click();
  await page.locator('article.user', { hasText: 'apples' }).waitFor();
  assert.deepEqual(await texts(page, 'article.user .text'), ['apples']);
  await act(page, row(page, 1), 'Rename');
  await page.getByLabel('Title of the conversation').fill('Fruit');
  await page.keyboard.press('Enter');
  await page.locator('h1', { hasText: 'Fruit' }).waitFor();
  await act(page, row(page, 1), 'Delete');
  await row(page, 1).waitFor({ state: 'detached' });
  assert.deepEqual(await texts(page, '#list .open'), ['pears']);
  await page.getByRole('button', { name: 'Undo' }).click();
  await row(page, 1).waitFor();
  assert.equal(await page.locator('#list li').count(), 2);
  assert.deepEqual(await texts(page, 'article.user .text'), ['apples']);
});

check('a conversation is downloaded and uploaded with its branches', {}, async ({ page }) => {
  await ask(page, 'one');
  await page.getByRole('button', { name: 'Regenerate' }).click();
  await ended(page);
  const [file] = await Promise.all([page.waitForEvent('download'), act(page, row(page), 'Download')]);
  const content = await readFile(await file.path(), 'utf8');
  assert.equal(file.suggestedFilename(), 'one.json');
  assert.equal(JSON.parse(content).nodes.length, 3);
  await page.locator('#upload-file').setInputFiles({ name: 'a.json', mimeType: 'application/json', buffer: Buffer.from(content) });
  await page.waitForFunction(() => document.querySelectorAll('#list li').length === 2);
  await page.locator('#aside-open').click();
  assert.equal(await page.locator('[role=treeitem]').count(), 3);
  for (const [text, wanted] of [['{', 'not JSON'], ['{"version": 1, "nodes": [{}]}', 'not a conversation'], [JSON.stringify({ version: 1, nodes: [{ id: 'n1', parent: null, role: 'user', content: '', files: [{ name: 1 }] }] }), 'not a conversation']]) {
    await page.locator('#upload-file').setInputFiles({ name: 'b.json', mimeType: 'application/json', buffer: Buffer.from(text) });
    await page.locator('#toast', { hasText: wanted }).waitFor();
  }
});

check('settings are sent, and empty settings are not', needsMock, async ({ page, server }) => {
  await ask(page, 'one');
  assert.deepEqual(Object.keys(server.requests[0]).sort(), ['messages', 'resumable', 'return_progress', 'session_id', 'stream', 'stream_options']);
  await page.keyboard.press('Alt+,');
  await page.locator('#advanced summary').click();
  for (const [field, value] of [['system', 'Be brief.'], ['temperature', '0.5'], ['seed', '7']]) await page.locator(`#set-${field}`).fill(value);
  await page.locator('#set-preset').selectOption('chat');
  await page.locator('#set-schema').fill('{"type":');
  await page.locator('#advanced summary').click();
  await page.keyboard.press('Escape');
  await page.locator('#input').fill('two');
  await page.keyboard.press('Enter');
  await page.locator('#wrong-schema', { hasText: 'Not JSON' }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), 'set-schema');
  await page.locator('#set-schema').fill('{"type": "object"}');
  await page.getByRole('button', { name: 'Done' }).click();
  await page.locator('#model').selectOption('rwkv7-g1-1.5b');
  await page.keyboard.press('Alt+,');
  await page.locator('#set-preset').selectOption('g1');
  await page.locator('#set-thinking').selectOption('off');
  await page.keyboard.press('Escape');
  await page.locator('#input').press('Enter');
  await ended(page);
  const sent = server.requests[1];
  assert.deepEqual(sent.messages[0], { role: 'system', content: 'Be brief.' });
  const { temperature, seed, preset, thinking, model } = sent;
  assert.deepEqual({ temperature, seed, preset, thinking, model }, { temperature: 0.5, seed: 7, preset: 'g1', thinking: 'off', model: 'rwkv7-g1-1.5b' });
  assert.deepEqual(sent.response_format.json_schema.schema, { type: 'object' });
  // a new conversation begins with the settings
  await page.locator('#new').click();
  await ask(page, 'three');
  assert.equal(server.requests[2].temperature, 0.5);
});

check('empty settings show the values of the server', {}, async ({ page }) => {
  await page.keyboard.press('Alt+,');
  const placeholder = (name) => page.locator(`#set-${name}`).getAttribute('placeholder');
  await page.locator('#set-temperature[placeholder="default 0.8"]').waitFor();
  assert.deepEqual(await Promise.all(['top_p', 'max_tokens', 'seed'].map(placeholder)), ['default 0.5', 'default 4096', 'random']);
  await page.locator('#advanced summary').click();
  await page.locator('#set-preset').selectOption('creative');
  assert.equal(await placeholder('temperature'), 'value of the preset');
});

check('the settings begin with the usual ones, and offer what the model knows', needsMock, async ({ page }) => {
  const choices = (name) => page.locator(`#set-${name} option`).allTextContents();
  await page.keyboard.press('Alt+,');
  assert.deepEqual(await texts(page, '#settings label:visible'), ['System prompt', 'Creativity', 'Length']);
  assert.deepEqual(await choices('preset'), ['default', 'greedy', 'creative', 'precise', 'pip', 'demo', 'chat', 'world', 'qa']);
  await page.keyboard.press('Escape');
  await page.locator('#model').selectOption('rwkv7-g1-1.5b');
  await page.keyboard.press('Alt+,');
  await page.locator('#set-thinking').waitFor();
  assert.deepEqual(await choices('thinking'), ['default', 'off', 'fast', 'on', 'short', 'long']);
  assert.deepEqual((await choices('preset')).slice(-4), ['g1', 'g1-think', 'g1-fast', 'g1-tools']);
  assert.equal(await page.locator('#set-seed').isVisible(), false);
  await page.locator('#advanced summary').click();
  await page.locator('#set-thinking').selectOption('on');
  await page.keyboard.press('Escape');
  // a value of another model stays visible
  await page.locator('#model').selectOption('small-world');
  await page.keyboard.press('Alt+,');
  assert.deepEqual(await choices('thinking'), ['default', 'off', 'on (not for this model)']);
  await page.reload();
  await page.locator('#model-facts:not(:empty)').waitFor();
  await page.keyboard.press('Alt+,');
  await page.locator('#set-seed').waitFor();
});

check('an example begins a conversation', {}, async ({ page }) => {
  const example = page.locator('#examples button').first();
  const text = await example.innerText();
  await example.click();
  await ended(page);
  assert.deepEqual(await texts(page, 'article.user .text'), [text]);
  assert.equal(await page.locator('#empty').isVisible(), false);
});

check('all answers have the same actions', needsMock, async ({ page }) => {
  await ask(page, 'one');
  await ask(page, 'refuse');
  await ask(page, 'three');
  for (const i of [0, 1, 2]) {
    const answer = page.locator('article.assistant').nth(i);
    assert.deepEqual(await answer.locator('.buttons button').evaluateAll((all) => all.map((button) => button.title)), ['Copy', 'Regenerate', 'Edit', 'More actions and figures']);
    await answer.locator('[aria-haspopup=menu]').click();
    assert.deepEqual(await page.getByRole('menuitem').allInnerTexts(), ['Continue the answer', 'Continue from here in a new branch', 'Delete the message and all after it']);
    await page.keyboard.press('Escape');
  }
});

check('texts are copied, also without the clipboard of the browser', { ...needsMock, permissions: ['clipboard-read', 'clipboard-write'] }, async ({ page }) => {
  const answer = await ask(page, 'code');
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await answer.getByRole('button', { name: 'Copy python' }).click();
  await answer.getByText('Copied').waitFor();
  assert.match(await copied(), /^def step[^`]*outer product$/);
  await answer.getByRole('button', { name: 'Copy', exact: true }).click();
  assert.match(await copied(), /^A state is a list[\s\S]*```python/);
  await page.evaluate(() => {
    window.clip = navigator.clipboard;
    Object.defineProperty(navigator, 'clipboard', { value: undefined });
  });
  await page.locator('article.user').hover();
  await page.locator('article.user').getByRole('button', { name: 'Copy' }).click();
  assert.equal(await page.evaluate(() => window.clip.readText()), 'code');
});

check('a changed answer is a branch, and is sent with the next message', needsMock, async ({ page, server }) => {
  await ask(page, 'one');
  await page.locator('article.assistant').getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Edit the answer').fill('A better answer.');
  await page.getByRole('button', { name: 'Keep as a new branch' }).click();
  assert.equal(await page.locator('article.assistant .place').innerText(), '2/2');
  await ask(page, 'two');
  assert.equal(server.requests.length, 2);
  assert.equal(server.requests[1].messages[1].content, 'A better answer.');
});

check('the panel of branches opens when the user opens it, at the current branch', needsMock, async ({ page }) => {
  await ask(page, 'one');
  for (let i = 0; i < 14; i += 1) await ask(page, `message ${i}`);
  await page.getByRole('button', { name: 'Regenerate' }).last().click();
  await ended(page);
  assert.equal(await page.locator('#aside').isVisible(), false);
  await page.locator('#aside-open').click();
  assert.ok(await page.locator('#branches').isVisible());
  const inView = () =>
    page.evaluate(() => {
      const [head, map] = ['.head', '#map'].map((selector) => document.querySelector(selector).getBoundingClientRect());
      return head.top >= map.top && head.bottom <= map.bottom;
    });
  assert.ok(await inView());
  await page.locator('#aside-open').click();
  assert.equal(await page.locator('#aside').isVisible(), false);
  await ask(page, 'the user closed the panel');
  assert.equal(await page.locator('#aside').isVisible(), false);
});

for (const width of [360, 800, 1280]) {
  check(`the newest line stays above the composer: ${width} pixels`, { ...needsMock, viewport: { width, height: 640 } }, async ({ page }) => {
    for (const text of ['table', 'formula', 'code']) await ask(page, text);
    await page.locator('.hl-keyword').first().waitFor();
    const gap = () => page.evaluate(() => document.getElementById('dock').getBoundingClientRect().top - [...document.querySelectorAll('article')].at(-1).getBoundingClientRect().bottom);
    assert.ok((await gap()) >= 0, `${await gap()}`);
    await page.locator('#input').fill('a\nb\nc\nd\ne\nf\ng');
    await page.waitForTimeout(100);
    assert.ok((await gap()) >= 0, `${await gap()}`);
    const fits = await page.evaluate(() => [document.documentElement, document.getElementById('scroll')].every((e) => e.scrollWidth <= e.clientWidth));
    assert.ok(fits, 'no horizontal scrolling');
    await page.locator('#input').fill('long');
    await page.keyboard.press('Enter');
    await page.locator('#thread').getByText('Sentence 40 of').waitFor();
    assert.ok((await gap()) >= 0, `${await gap()}`);
  });
}

check('a branch is saved as a state, and a conversation begins with the state', {}, async ({ page, server }) => {
  const state = `test-${Date.now()}`;
  await ask(page, 'light');
  await page.keyboard.press('Alt+s');
  await page.locator('#state-name').fill(state);
  await page.keyboard.press('Enter');
  await page.locator('#toast', { hasText: 'Saved the state' }).waitFor();
  const item = page.locator('#state-list li', { hasText: state });
  assert.match(await item.innerText(), /\d+ tokens · /);
  const [file] = await Promise.all([page.waitForEvent('download'), item.getByRole('button', { name: 'Download' }).click()]);
  const content = await readFile(await file.path());
  await item.getByRole('button', { name: 'Begin' }).click();
  assert.equal(await page.locator('#from').innerText(), `from state ${state}`);
  await ask(page, 'and water');
  assert.equal(await page.locator('.failure:visible').count(), 0);
  await ask(page, 'and fire');
  assert.equal(await page.locator('.failure:visible').count(), 0);
  if (server) {
    const [first, second] = server.requests.slice(1);
    assert.deepEqual([first.state, second.state, second.save_state], [state, first.save_state, first.save_state]);
    assert.deepEqual([first, second].map((request) => request.messages.map((message) => message.content)), [['and water'], ['and fire']]);
    // the server has lost the state of the branch, so the branch is prefilled again after the saved state
    server.states.delete(first.save_state);
    await ask(page, 'and air');
    assert.equal(await page.locator('.failure:visible').count(), 0);
    assert.deepEqual([server.requests.at(-1).state, server.requests.at(-1).messages.length], [state, 5]);
  }
  await page.locator('#states-open').click();
  await page.locator('#state-name').fill(`${state}-again`);
  await page.locator('#state-file').setInputFiles({ name: 'x.state', mimeType: 'application/octet-stream', buffer: content });
  await page.locator('#state-list li', { hasText: `${state}-again` }).waitFor();
  for (const known of [`${state}-again`, state]) {
    await page.getByRole('button', { name: `Delete ${known}`, exact: true }).click();
    await page.getByRole('button', { name: `Delete ${known}`, exact: true }).waitFor({ state: 'detached' });
  }
});

check('an error of the states is shown in the dialog', {}, async ({ page }) => {
  await page.locator('#states-open').click();
  await page.locator('#state-name').fill('empty');
  await page.keyboard.press('Enter');
  await page.locator('#states-error', { hasText: 'The branch has no text' }).waitFor();
});

check('the list of states asks for the key too', { ...needsMock, mock: { key: 'secret' } }, async ({ page }) => {
  await page.locator('#states-open').click();
  await page.locator('#key-field').fill('secret');
  await page.keyboard.press('Enter');
  await page.locator('#state-list li', { hasText: 'greeting' }).waitFor();
});

const background = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);

check('the theme follows the system until the switch is used', { colorScheme: 'dark' }, async ({ page }) => {
  const dark = await background(page);
  await page.locator('#theme').click();
  const light = await background(page);
  assert.notEqual(dark, light);
  await page.reload();
  assert.equal(await background(page), light);
  assert.equal(await page.locator('#theme').innerText(), 'Theme: light');
});

check('a window of 320 pixels needs no horizontal scrolling', { viewport: { width: 320, height: 640 } }, async ({ page }) => {
  await ask(page, real ? 'light' : 'code');
  await page.locator('#input').fill('x'.repeat(400));
  const fits = () => page.evaluate(() => [document.documentElement, document.getElementById('scroll')].every((e) => e.scrollWidth <= e.clientWidth));
  assert.ok(await fits(), 'thread');
  for (const panel of ['side', 'aside']) {
    await page.locator(`#${panel}-open`).click();
    assert.ok(await page.locator(`#${panel}`).isVisible());
    assert.ok(await page.evaluate((id) => document.getElementById(id).contains(document.activeElement), panel));
    assert.ok(await fits(), panel);
    await page.keyboard.press('Escape');
    assert.equal(await page.locator(`#${panel}`).isVisible(), false);
    assert.equal(await page.evaluate(() => document.activeElement.id), `${panel}-open`);
  }
  for (const dialog of ['settings', 'states']) {
    await page.locator(`#${dialog}-open`).click();
    const box = await page.locator(`#${dialog}`).boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= 320 && (await fits()), dialog);
    assert.ok(await page.locator(`#${dialog}`).evaluate((e) => e.scrollWidth <= e.clientWidth), dialog);
    await page.keyboard.press('Escape');
  }
});

/** Returns the violations of axe-core's rules on the page, one line each. */
const violations = async (page) => {
  await page.evaluate(await readFile(axe, 'utf8'));
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target} ${node.failureSummary}`));
};

for (const colorScheme of ['light', 'dark']) {
  for (const width of [1280, 320]) {
    // the page's content security policy forbids to evaluate the source of axe-core
    const options = { colorScheme, viewport: { width, height: 720 }, bypassCSP: true };
    check(`axe-core finds no violations: ${colorScheme}, ${width} pixels`, options, async ({ page }) => {
      const clean = async (where) => assert.deepEqual(await violations(page), [], where);
      await clean('empty');
      await ask(page, real ? 'light' : 'think about code');
      if (!real) {
        await page.locator('summary').first().click();
        for (const text of ['code', 'table', 'wide', 'formula', 'tasks', 'hebrew', 'evil', 'tool', 'refuse']) await ask(page, text);
        await page.locator('.hl-keyword').first().waitFor();
      }
      await page.getByRole('button', { name: 'Regenerate' }).last().click();
      await ended(page);
      if (!real) await page.getByRole('button', { name: 'Wrap the code' }).first().click();
      await clean('thread');
      await page.locator('article.assistant').last().locator('[aria-haspopup=menu]').click();
      await clean('menu');
      await page.getByRole('menuitem', { name: 'Delete the message' }).click();
      await page.getByRole('button', { name: 'Generate an answer' }).waitFor();
      await clean('message without an answer');
      await page.getByRole('button', { name: 'Generate an answer' }).click();
      await ended(page);
      await page.locator('article.user').last().hover();
      await page.locator('article.user').last().getByRole('button', { name: 'Edit' }).click();
      await clean('editor');
      await page.keyboard.press('Escape');
      const text = { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('Some text.') };
      await page.locator('#attach-file').setInputFiles([text, { ...text, name: 'b.bin', buffer: Buffer.from([0, 1]) }]);
      await page.locator('#files-problem').waitFor();
      await clean('files');
      await page.locator('#rename').click();
      await clean('title');
      await page.keyboard.press('Escape');
      for (const dialog of ['settings', 'states']) {
        await page.locator(`#${dialog}-open`).click();
        await page.locator(`#${dialog}[open]`).waitFor();
        if (dialog === 'settings') await page.locator('#advanced summary').click();
        await clean(dialog);
        await page.keyboard.press('Escape');
      }
      if (width < 800) {
        for (const panel of ['side', 'aside']) {
          await page.locator(`#${panel}-open`).click();
          await clean(panel);
          await page.keyboard.press('Escape');
        }
      } else {
        await page.keyboard.press('Alt+/');
        await clean('shortcuts');
        await page.keyboard.press('Escape');
        // the list shows its search field only with at least two conversations
        await page.locator('#new').click();
        await ask(page, 'light');
        await page.locator('#search').waitFor();
        await clean('list');
        await row(page).hover();
        await row(page).locator('[aria-haspopup=menu]').click();
        await clean('menu of the list');
      }
    });
  }
}
