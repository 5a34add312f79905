// A server for the development and the tests of the chat page: the parts of the API that the page calls, with slow streams and scripted answers.
//
//   node server/tests/page/mock.mjs [--port 8090] [--key KEY] [--delay MILLISECONDS] [--to URL]
//
// The last user message chooses the answer: `think`, `tool`, `code`, `html`, `wide`, `table`, `formula`, `brackets`, `hebrew`, `tasks`, `prefill`, `queue`, `cut`,
// `refuse`, `break`, `drop`, `long`; anything else is a plain answer. With --to, the files of the page are from this folder, and the server at URL answers the requests.
import { readFile } from 'node:fs/promises';
import http from 'node:http';
import { fileURLToPath } from 'node:url';

const PAGE = fileURLToPath(new URL('../../../server/page/', import.meta.url));
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const NAMES = /^(lib\/)?[a-z]+\.(html|css|js|woff2)$/;
const TYPES = { html: 'text/html; charset=utf-8', css: 'text/css; charset=utf-8', js: 'text/javascript; charset=utf-8', woff2: 'font/woff2' };

export const HTML = 'Look: <img src=x onerror="window.hacked=1"> and <script>window.hacked=1</script> end </script>.';
const CODE = 'A state is a list of matrices.\n\n```python\ndef step(state, k, v, w):\n    return state * w + v @ k.T  # one outer product\n```\n\nThe size never grows.';
const THOUGHTS = 'The reader asks for the memory of the model. A short comparison with attention helps: attention keeps every token, a recurrence keeps one state.';
const MEMORY =
  'An RWKV model keeps one state of fixed size. Each token changes the state a little: old facts fade, new facts are written.\n\nThat is why the thousandth token costs as much as the first, and why a saved state is small enough to keep one for each branch of this conversation.';

const TABLE = 'Three drinks:\n\n| Drink | Caffeine (mg) | Served |\n|:---|---:|:---:|\n| Coffee | 95 | hot |\n| Tea | 47 | hot |\n| Water | 0 | cold |\n\nSo **water** is the calmest, says [a source](https://example.org/drinks).';
const WIDE = `\`\`\`python\nx = "${'a long line of code '.repeat(20)}"\n\`\`\`\n\n|${' Column_of_the_table |'.repeat(8)}\n|${'---|'.repeat(8)}\n|${' value |'.repeat(8)}\n\nThe end.`;
const FORMULA = 'The roots of $x^2 - 5x + 6 = 0$ follow from\n\n$$\nx = \\frac{5 \\pm \\sqrt{25 - 24}}{2}\n$$\n\nso \\(x = 2\\) or \\(x = 3\\). It costs $5 and not $10.';
const BRACKETS = 'A matrix and a sum:\n\n$$\n\\left( \\begin{matrix} a & b \\\\ c & d \\\\ e & f \\end{matrix} \\right) = \\left\\{ \\sum_{i=1}^{n} \\frac{x_i}{\\sqrt{1 + \\frac{y_i}{2}}} \\right\\}\n$$\n\nwith $\\mathscr{L}$ and $f\'(x)$.';
const HEBREW = [
  'שלום, עולם!',
  'Hello, world!',
  '# כותרת',
  '- פריט ראשון\n- second item',
  '> ציטוט',
  '1. פסקה\n\n   עוד פסקה\n\n2. סוף',
  '`ls -l` מציג קבצים.',
  '| עמודה | ערך |\n|---|---|\n| אחת | one, two. |\n| שתיים | הערך השני ארוך יותר |',
  '```python\nprint(1)  # שלום\n```',
].join('\n\n');
const TASKS = '- [x] Load the model\n- [ ] Ask a question\n- [y] no task\n\n1. [X] First\n\n   More of it.\n\n2. Second [ ] here';
export const EVIL = [
  'A [bad link](javascript:window.hacked=1) and a [good one](https://example.org/).',
  '![a cat](https://example.org/cat.png) and ![data](data:image/png;base64,AAAA)',
  '<iframe src="https://example.org"></iframe>',
  '$\\href{javascript:window.hacked=1}{x}$ and $\\includegraphics{https://example.org/x.png}$',
  '```html\n<script>window.hacked=1</script>\n```',
].join('\n\n');

const answers = [
  [/evil/i, { content: EVIL }],
  [/wide/i, { content: WIDE }],
  [/table/i, { content: TABLE }],
  [/formula/i, { content: FORMULA }],
  [/brackets/i, { content: BRACKETS }],
  [/hebrew/i, { content: HEBREW }],
  [/tasks/i, { content: TASKS }],
  [/prefill/i, { prefill: 4000, content: 'Done.' }],
  [/think|remember/i, { reasoning: THOUGHTS, content: MEMORY }],
  [/tool/i, { tools: [{ id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city": "Leipzig"}' } }] }],
  [/code/i, { content: CODE }],
  [/html/i, { content: HTML }],
  [/long/i, { content: Array.from({ length: 80 }, (_, i) => `Sentence ${i + 1} of a long answer. `).join('') }],
];

const pieces = (text) => text?.match(/\s*\S+|\s+$/g) ?? [];
const tokens = (text) => pieces(text).length;

/** Sends a request to the server at `to`, as if it came from this server's own page. */
const forward = (request, response, to) => {
  const { host, origin, referer, ...headers } = request.headers;
  const onward = http.request(new URL(request.url, to), { method: request.method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  onward.on('error', () => response.destroy());
  response.on('close', () => onward.destroy());
  request.pipe(onward);
};

/**
 * Starts a server. Returns `{url, requests, states, stopped, kept, close}`; `requests` has the bodies of all requests for answers. `resumes: false`
 * makes an older server without resumable answers; `ids` are the names of its models, `models` adds fields to them; `kept` has states `{name, days}` and their ages.
 */
export const start = async ({ port = 0, key = '', delay = 15, to = '', resumes = true, ids = ['small-world', 'rwkv7-g1-1.5b'], models = {}, kept: keptStates = [] } = {}) => {
  const requests = [];
  // ids of answers that the page stopped
  const stopped = [];
  // resumable answers: id to `{events, isDone, wake}`
  const kept = new Map();
  const states = new Map([['greeting', { tokens: 12, content: Buffer.from('state'), created: 1 }]]);
  for (const { name, days } of keptStates) states.set(name, { tokens: 9, content: Buffer.from(name), created: Math.floor(Date.now() / 1000) - days * 86_400 });
  // lists of messages, as JSON, after which the server has a state
  const cache = new Map();
  let n = 0;

  const reply = (response, status, value, headers = {}) => {
    response.writeHead(status, { 'content-type': 'application/json', 'x-request-id': `req-${n}`, ...headers });
    response.end(JSON.stringify(value));
  };
  const fail = (response, status, code, message, headers) => {
    const type = status < 500 ? 'invalid_request_error' : 'server_error';
    reply(response, status, { error: { message, type, param: null, code, request_id: `req-${n}` } }, headers);
  };
  const keep = (name, count, content = Buffer.from(name)) => states.set(name, { tokens: count, content, created: Math.floor(Date.now() / 1000) });

  /** Writes the events of a kept answer after the event `after`: first the stored events, then new events as they arrive. */
  const follow = async (response, answer, after, drops = 0) => {
    let open = true;
    response.on('close', () => (open = false));
    response.writeHead(200, { 'content-type': 'text/event-stream', 'x-request-id': `req-${n}` });
    for (let next = after; open; ) {
      for (; next < answer.events.length; next += 1) {
        response.write(`id: ${next + 1}\ndata: ${answer.events[next]}\n\n`);
        if (drops && next === drops) return response.destroy();
      }
      if (answer.isDone) return response.end();
      await new Promise((done) => answer.wakes.push(done));
    }
  };

  const resume = (request, response, id, after) => {
    const answer = kept.get(id);
    if (!answer) return fail(response, 404, 'answer_not_found', `no answer has the id ${id}`);
    if (request.method === 'DELETE') {
      stopped.push(id);
      answer.isDone = true;
      return reply(response, 200, { id, deleted: true });
    }
    return follow(response, answer, after);
  };

  const chat = async (request, response, body) => {
    requests.push(body);
    const continues = body.messages.at(-1)?.role === 'assistant';
    const last = body.messages.findLast((message) => message.role === 'user')?.content ?? '';
    if (/refuse/.test(last)) return fail(response, 429, 'queue_full', 'The queue is full: 64 requests wait. Send the request again later.', { 'retry-after': '2' });
    if (body.state && body.session_id) return fail(response, 400, null, 'session_id: expected either session_id or the fields state and save_state, found both');
    if (body.state && !states.has(body.state)) return fail(response, 404, 'state_not_found', `state: no state named ${body.state}`);
    let scripted = answers.find(([pattern]) => pattern.test(last))?.[1] ?? {
      content: `You wrote “${last.slice(0, 60)}”. This is answer ${requests.length}. Each answer ends a branch.`,
    };
    // the page already has the beginning of the text, so only the rest is sent
    if (continues) {
      const { content, reasoning_content: thought } = body.messages.at(-1);
      const rest = (text, had) => (text?.startsWith(had ?? '') ? text.slice((had ?? '').length) : ' And so on.');
      scripted = { ...scripted, reasoning: content ? undefined : rest(scripted.reasoning, thought), content: rest(scripted.content, content) };
    }
    const answer = { events: [], isDone: false, wakes: [] };
    const base = { id: `chatcmpl-${n}`, object: 'chat.completion.chunk', created: 1, model: body.model || 'small-world' };
    const isKept = Boolean(body.resumable && resumes);
    let open = true;
    if (isKept) {
      kept.set(base.id, answer);
      follow(response, answer, 0, /drop/.test(last) ? 5 : 0);
    } else {
      response.on('close', () => (open = false));
      response.writeHead(200, { 'content-type': 'text/event-stream', 'x-request-id': `req-${n}` });
    }
    const put = (data) => {
      if (!isKept) return open && response.write(`data: ${data}\n\n`);
      answer.events.push(data);
      answer.wakes.splice(0).forEach((wake) => wake());
    };
    const isOver = () => (isKept ? answer.isDone : !open);
    const write = (value) => put(JSON.stringify({ ...base, ...value }));
    const choice = (delta, finish = null, more = {}) => write({ choices: [{ index: 0, delta, finish_reason: finish, ...more }], usage: null });
    const started = Date.now();
    const pause = () => new Promise((done) => setTimeout(done, delay * (0.6 + Math.random() * 0.8)));
    let count = 0;
    if (/queue/.test(last)) await new Promise((done) => setTimeout(done, 600));
    for (let processed = 0; body.return_progress && processed < (scripted.prefill ?? 0); processed += 200) {
      write({ choices: [], prompt_progress: { total: scripted.prefill, cache: 0, processed, time_ms: Date.now() - started } });
      await pause();
    }
    choice({ role: 'assistant', content: '' });
    for (const [field, text] of [['reasoning_content', scripted.reasoning], ['content', scripted.content]]) {
      for (const piece of pieces(text)) {
        if (isOver()) return;
        await pause();
        choice({ [field]: piece });
        count += 1;
        if (/break/.test(last) && count === 4) {
          kept.delete(base.id);
          return response.destroy();
        }
        if (/cut/.test(last) && count === 4) {
          put(JSON.stringify({ error: { message: 'The device was lost. Start the server again.', type: 'server_error', code: 'device_lost', request_id: `req-${n}` } }));
          answer.isDone = true;
          return isKept ? answer.wakes.splice(0).forEach((wake) => wake()) : response.end();
        }
      }
    }
    for (const [index, tool] of (scripted.tools ?? []).entries()) {
      choice({ tool_calls: [{ index, id: tool.id, type: 'function', function: { name: tool.function.name, arguments: '' } }] });
      for (const piece of tool.function.arguments.match(/.{1,6}/g)) {
        await pause();
        choice({ tool_calls: [{ index, function: { arguments: piece } }] });
        count += 1;
      }
    }
    const timings = { queue_ms: 0, prefill_ms: 5, decode_ms: Date.now() - started };
    choice({}, scripted.tools ? 'tool_calls' : 'stop', { seed: 7, timings });
    const length = (messages) => messages.reduce((sum, { content, reasoning_content }) => sum + 4 + tokens(content) + tokens(reasoning_content), 0);
    const prompt = length(body.messages);
    const before = body.messages.map((_, i) => JSON.stringify(body.messages.slice(0, i + 1)));
    const cached = Math.max(0, ...before.map((text) => cache.get(text) ?? 0));
    const message = { role: 'assistant', content: scripted.content ?? '' };
    if (scripted.reasoning) message.reasoning_content = scripted.reasoning;
    if (scripted.tools) message.tool_calls = scripted.tools;
    const after = [...body.messages, message];
    cache.set(JSON.stringify(after), length(after));
    const name = body.session_id ?? body.save_state;
    if (name) keep(name, prompt + count);
    const usage = { prompt_tokens: prompt, completion_tokens: count, total_tokens: prompt + count, prompt_tokens_details: { cached_tokens: cached } };
    write({ choices: [], usage });
    answer.isDone = true;
    put('[DONE]');
    if (!isKept && open) response.end();
  };

  const state = (request, response, name, content, body) => {
    const known = states.get(name);
    if (request.method === 'PUT' && content) {
      keep(name, 3, body);
      return reply(response, 200, { object: 'state', name });
    }
    if (!known) return fail(response, 404, 'state_not_found', `no state named ${name}`);
    if (request.method === 'DELETE') {
      states.delete(name);
      return reply(response, 200, { object: 'state', name, deleted: true });
    }
    if (!content) return reply(response, 200, { object: 'state', name, tokens: known.tokens, bytes: known.content.length });
    response.writeHead(200, { 'content-type': 'application/octet-stream' });
    response.end(known.content);
  };

  const change = (response, body) => {
    if (body.action === 'fork') {
      if (!states.has(body.from)) return fail(response, 404, 'state_not_found', `no state named ${body.from}`);
      keep(body.name, states.get(body.from).tokens);
    } else keep(body.name, tokens(body.messages.map((message) => message.content).join(' ')));
    reply(response, 200, { object: 'state', name: body.name });
  };

  const handle = async (request, response) => {
    n += 1;
    const { pathname, searchParams } = new URL(request.url, 'http://localhost');
    if (pathname === '/' || pathname.startsWith('/page/')) {
      const name = pathname === '/' ? 'index.html' : pathname.slice('/page/'.length);
      if (!NAMES.test(name)) return fail(response, 404, null, 'no such file');
      const content = await readFile(PAGE + name);
      response.writeHead(200, { 'content-type': TYPES[name.split('.').pop()], 'content-security-policy': POLICY, 'x-content-type-options': 'nosniff' });
      return response.end(content);
    }
    if (to) return forward(request, response, to);
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const raw = Buffer.concat(chunks);
    if (key && request.headers.authorization !== `Bearer ${key}`) {
      return fail(response, 401, 'invalid_api_key', 'The API key is missing or unknown. Send `Authorization: Bearer KEY`.');
    }
    if (pathname === '/v1/models') {
      const model = (id) => ({ id, object: 'model', created: 1, owned_by: 'wingbeat', architecture: 'rwkv7', context: null, slots: 8, status: 'ready', parameters: /1\.5b/.test(id) ? 1_527_404_544 : 12_000_000, dtype: 'f16', device: 'NVIDIA H200', ...models });
      return reply(response, 200, { object: 'list', data: ids.map(model) });
    }
    if (pathname === '/props') {
      const params = { temperature: 0.8, top_k: 0, top_p: 0.5, min_p: 0, repeat_penalty: 1, presence_penalty: 0.4, frequency_penalty: 0.4, n_predict: 4096 };
      const thinking = /g1/.test(searchParams.get('model') ?? ids[0]) ? ['off', 'fast', 'on', 'short', 'long'] : ['off'];
      return reply(response, 200, { default_generation_settings: { n_ctx: 0, params }, thinking });
    }
    const [, name, content] = /^\/v1\/states\/([^/]+)(\/content)?$/.exec(pathname) ?? [];
    if (name) return state(request, response, decodeURIComponent(name), content, raw);
    const [, answer] = /^\/v1\/chat\/completions\/([^/]+)(\/events)?$/.exec(pathname) ?? [];
    if (answer) return resume(request, response, answer, Number(searchParams.get('after') ?? 0));
    const body = raw.length ? JSON.parse(raw) : {};
    if (pathname === '/v1/tokens/count') return reply(response, 200, { object: 'token_count', tokens: tokens(body.content) });
    if (pathname === '/v1/chat/completions') return chat(request, response, body);
    if (pathname === '/v1/states' && request.method === 'POST') return change(response, body);
    if (pathname === '/v1/states') {
      const data = [...states].map(([name, { tokens, content, created }]) => ({ object: 'state', name, model: 'small-world', tokens, bytes: content.length * 4000, created }));
      return reply(response, 200, { object: 'list', data });
    }
    return fail(response, 404, null, `${request.method} ${pathname}: unknown endpoint`);
  };

  const server = http.createServer((request, response) => {
    handle(request, response).catch((error) => fail(response, 500, null, String(error)));
  });
  await new Promise((done) => server.listen(port, '127.0.0.1', done));
  const close = () => {
    server.closeAllConnections();
    return new Promise((done) => server.close(done));
  };
  return { url: `http://127.0.0.1:${server.address().port}`, requests, states, stopped, kept, close };
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const flag = (name, otherwise) => {
    const at = process.argv.indexOf(`--${name}`);
    return at < 0 ? otherwise : process.argv[at + 1];
  };
  const { url } = await start({ port: Number(flag('port', 8090)), key: flag('key', ''), delay: Number(flag('delay', 40)), to: flag('to', '') });
  console.error(`listening on ${url}`);
}
