// Tests the texts of answers: Markdown, code, formulas, hostile text, and growing text.
import assert from 'node:assert/strict';
import { ask, ended, needsMock, tests } from './browser.mjs';

const check = tests();

check('an answer has tables, emphasis and links', needsMock, async ({ page }) => {
  const answer = await ask(page, 'table');
  assert.deepEqual(await answer.locator('th').allInnerTexts(), ['Drink', 'Caffeine (mg)', 'Served']);
  assert.equal(await answer.locator('td.right').first().innerText(), '95');
  assert.equal(await answer.locator('strong').innerText(), 'water');
  const link = answer.getByRole('link', { name: 'a source' });
  assert.deepEqual(
    await link.evaluate((a) => [a.href, a.target, a.rel]),
    ['https://example.org/drinks', '_blank', 'noopener noreferrer'],
  );
});

check('code is highlighted, and formulas are MathML', needsMock, async ({ page }) => {
  const code = await ask(page, 'code');
  await code.locator('.hl-keyword', { hasText: 'def' }).waitFor();
  const formula = await ask(page, 'formula');
  await formula.locator('math mfrac').waitFor();
  assert.equal(await formula.locator('math').count(), 4);
  assert.match(await formula.innerText(), /It costs \$5 and not \$10\./);
});

check('a hostile answer loads nothing and runs nothing', needsMock, async ({ page }) => {
  const others = [];
  page.on('request', (request) => !request.url().startsWith(page.url()) && !request.url().startsWith('data:') && others.push(request.url()));
  const answer = await ask(page, 'evil');
  await answer.locator('.hl-tag, .hl-name').first().waitFor();
  await answer.locator('math, .tex').first().waitFor();
  const links = await answer.locator('a').evaluateAll((all) => all.map((a) => a.getAttribute('href')));
  // the last link is an address in a text
  assert.deepEqual(links, ['https://example.org/', 'https://example.org/cat.png', 'https://example.org']);
  assert.equal(await page.locator('article :is(img, iframe, script, style, [style], [onerror])').count(), 0);
  assert.match(await answer.innerText(), /\[bad link\]\(javascript:[\s\S]*<iframe src="https:\/\/example.org"><\/iframe>/);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(others, []);
});

check('a growing answer keeps its finished blocks and the selection', { ...needsMock, mock: { delay: 25 } }, async ({ page }) => {
  await ask(page, 'light');
  await page.locator('#input').fill('table');
  await page.keyboard.press('Enter');
  const body = page.locator('article.assistant').last().locator('.body').last();
  await body.locator('th').first().waitFor();
  await body.evaluate((element) => {
    window.first = element.firstElementChild;
    getSelection().selectAllChildren(window.first);
    window.heights = [];
    new ResizeObserver(() => window.heights.push(element.offsetHeight)).observe(element);
  });
  await ended(page);
  assert.equal(await page.evaluate(() => String(getSelection())), 'Three drinks:');
  assert.ok(await page.evaluate(() => window.first.isConnected));
  const heights = await page.evaluate(() => window.heights);
  assert.ok(heights.every((height, i) => !i || height >= heights[i - 1]), `the text shrinks: ${heights}`);
});

const TEXTS = [
  'One\ntwo\n#three\n\n# Head\ntext **bold *both* end** `a ` b`` c',
  'List:\n- a\n- b\n  - c\n\n  more of b\n\n1. x\n2. y\n\nEnd ***a*** and ~~b~~.',
  '| a | b |\n|---|:-:|\n| 1 | `x|y` |\n| 2 | **z** |\n\n| not a table\n\nlast',
  'Code:\n\n```js\nconst a = 1;\n\n```\n\n- item\n  ```py\n  def f(): pass\n  ```\n- next\n\n    indented\n',
  '> quote\nlazy\n> more\n\n***\n\nSetext\n===\n\nText\n```inline```\nend',
  'Sum: $a+b$ and\n\n$$\n\\sum_{i=1}^n i\n\n= 1\n$$\n\n\\[ x \\] text \\(y\\)\n\n$$ unfinished\n\nnext',
  '[a](https://example.org/x_y) and [b][ref] and https://example.org/auto?x=1.\n\nmore\n\n[ref]: https://example.org/ref',
  'Tasks:\n\n- [x] done\n- [ ] not done\n  - [X] **inner**\n\n1. [ ] שלום\n\n   more\n\n> שלום\n\n| א | b |\n|---|---|\n| ב | c |',
  'Windows\r\nlines\r\n\r\n* one\r\n* two',
];

check('a text that grows letter by letter ends as the whole text', needsMock, async ({ page }) => {
  const answer = await ask(page, 'formula and code');
  await answer.locator('math').first().waitFor();
  await ask(page, 'code');
  await page.locator('.hl-keyword').first().waitFor();
  const differences = await page.evaluate(async (texts) => {
    const { markdownView } = await import(new URL('page/markdown.js', document.baseURI));
    const whole = (text, growing) => {
      const view = markdownView();
      view.wake();
      view.set(text, growing);
      return view.element.innerHTML;
    };
    const found = [];
    for (const text of texts) {
      const view = markdownView();
      for (let end = 1; end <= text.length; end += 1) {
        view.set(text.slice(0, end), true);
        const wanted = whole(text.slice(0, end), true);
        // the view applies the definition of a link to earlier blocks only at the end of the text
        if (view.element.innerHTML !== wanted && !text.includes('[ref]:')) found.push({ text: text.slice(0, end), is: view.element.innerHTML, wanted });
      }
      view.set(text, false);
      if (view.element.innerHTML !== whole(text, false)) found.push({ text, is: view.element.innerHTML, wanted: whole(text, false) });
    }
    return found.slice(0, 3);
  }, TEXTS);
  assert.deepEqual(differences, []);
});

check('an endless mark does not make the page slow', needsMock, async ({ page }) => {
  await ask(page, 'formula and code');
  await page.locator('math').first().waitFor();
  const slow = await page.evaluate(async () => {
    const { markdownView } = await import(new URL('page/markdown.js', document.baseURI));
    const found = [];
    for (const mark of ['[', '`', '*', '**a', '> ', '- ', '|', '$', '\\\\(', '![a](', '<a ', '~~', '```\n', '{{', '$${', '_a']) {
      const view = markdownView();
      const began = performance.now();
      for (const size of [1000, 4000, 20_000]) view.set(mark.repeat(size / mark.length), true);
      view.set(mark.repeat(20_000 / mark.length), false);
      const ms = performance.now() - began;
      if (ms > 3000) found.push([mark, ms]);
    }
    return found;
  });
  assert.deepEqual(slow, []);
});

check('the end of a growing text is completed', needsMock, async ({ page }) => {
  const mended = (texts) =>
    page.evaluate(async (all) => {
      const { mend } = await import(new URL('page/mend.js', document.baseURI));
      return all.map((text) => mend(text));
    }, texts);
  const pairs = [
    ['a **bold', 'a **bold**'],
    ['a **bold*', 'a **bold**'],
    ['a **', 'a '],
    ['a `co', 'a `co`'],
    ['see [this](https://exa', 'see this'],
    ['| a | b |', '| a | b |\n|---|---|'],
    ['| a | b |\n|--', '| a | b |\n|---|---|'],
    ['```js\na **b\n``', '```js\na **b'],
    ['text\n\n```', 'text\n\n```'],
    ['done `a` **b**', 'done `a` **b**'],
  ];
  assert.deepEqual(await mended(pairs.map(([text]) => text)), pairs.map(([, wanted]) => wanted));
});
