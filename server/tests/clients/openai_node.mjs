// The official npm package `openai` against a server, whose address is in WINGBEAT_URL.
// The folder of the package is in WINGBEAT_NODE_FOLDER.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.WINGBEAT_NODE_FOLDER ?? "."}/package.json`);
const { default: OpenAI } = await import(pathToFileURL(require.resolve("openai")).href);
const client = new OpenAI({ baseURL: `${process.env.WINGBEAT_URL}/v1`, apiKey: "any key", maxRetries: 0 });
const messages = [{ role: "user", content: "light" }];
const short = { model: "tiny", messages, seed: 1, max_tokens: 12 };
const chat = (more = {}) => client.chat.completions.create({ ...short, ...more });

function expect(isRight, what, expected, found) {
  if (!isRight) throw new Error(`${what}: expected ${expected}, found ${JSON.stringify(found)}`);
}

function equal(found, expected, what) {
  expect(JSON.stringify(found) === JSON.stringify(expected), what, JSON.stringify(expected), found);
}

async function refused(kind, call, what) {
  try {
    await call();
  } catch (e) {
    expect(e instanceof kind, what, kind.name, `${e.constructor.name}: ${e.message}`);
    return e;
  }
  throw new Error(`${what}: expected ${kind.name}, found an answer`);
}

const schema = { type: "object", properties: { good: { type: "boolean" } }, required: ["good"], additionalProperties: false };
const tools = [{ type: "function", function: { name: "check", parameters: schema } }];

const checks = {
  async streamEqualsAnswer() {
    const whole = await chat();
    let text = "";
    let usage;
    for await (const chunk of await chat({ stream: true, stream_options: { include_usage: true } })) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    equal(text, whole.choices[0].message.content, "joined deltas");
    equal(usage.completion_tokens, whole.usage.completion_tokens, "completion_tokens of a stream");
    const helper = client.chat.completions.stream(short);
    equal(await helper.finalContent(), text, "text of the stream helper");
  },
  async abandonedStreamEnds() {
    const stream = await chat({ stream: true, max_tokens: 100000, ignore_eos: true });
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;
    for (let i = 0; i < 100; i++) {
      const [slots] = await (await fetch(`${process.env.WINGBEAT_URL}/slots`)).json();
      if (slots.running === 0) return;
      await new Promise((done) => setTimeout(done, 50));
    }
    throw new Error("an abandoned stream: expected a free slot within 5 s, found a running request");
  },
  async logprobs() {
    const done = await chat({ logprobs: true, top_logprobs: 2, n: 2 });
    equal(done.choices.map((c) => c.index), [0, 1], "indices with n = 2");
    for (const at of done.choices[0].logprobs.content) equal(at.top_logprobs.length, 2, "entries of top_logprobs");
  },
  async schemas() {
    const done = await chat({ response_format: { type: "json_schema", json_schema: { name: "x", strict: true, schema } }, max_tokens: 60 });
    const { good } = JSON.parse(done.choices[0].message.content);
    expect(typeof good === "boolean", "answer of a schema", "a boolean", good);
  },
  async calls() {
    // A format that has tools; the format `tiny` has none.
    const format = "g1";
    const done = await chat({ tools, tool_choice: "required", max_tokens: 100, format });
    const [call] = done.choices[0].message.tool_calls;
    equal([done.choices[0].finish_reason, call.function.name], ["tool_calls", "check"], "reason and name of a call");
    expect(typeof JSON.parse(call.function.arguments).good === "boolean", "arguments", "a boolean", call.function.arguments);
    const result = { role: "tool", tool_call_id: call.id, content: "ok" };
    await chat({ messages: [...messages, done.choices[0].message, result], tools, tool_choice: "none", format });
    const helper = client.chat.completions.stream({ ...short, tools, tool_choice: "required", max_tokens: 100, format });
    equal((await helper.finalMessage()).tool_calls[0].function.name, "check", "name of a streamed call");
  },
  async completions() {
    const done = await client.completions.create({ model: "tiny", prompt: ["In the beginning", "light"], max_tokens: 4, echo: true, logprobs: 1 });
    equal(done.choices.map((c) => c.text.startsWith(["In the beginning", "light"][c.index])), [true, true], "echo of two prompts");
  },
  async embeddings() {
    const done = await client.embeddings.create({ model: "vectors", input: "light" });
    const plain = await client.embeddings.create({ model: "vectors", input: "light", encoding_format: "float" });
    equal(done.data[0].embedding.length, plain.data[0].embedding.length, "numbers of a vector in both forms");
  },
  async responses() {
    const first = await client.responses.create({ model: "tiny", input: "light", max_output_tokens: 8 });
    const second = await client.responses.create({ model: "tiny", input: "more", max_output_tokens: 8, previous_response_id: first.id });
    const cached = second.usage.input_tokens_details.cached_tokens;
    expect(cached > 0, "cached_tokens", "more than 0", cached);
    equal((await client.responses.retrieve(first.id)).output_text, first.output_text, "text of a kept answer");
    await client.responses.delete(first.id);
    await refused(OpenAI.NotFoundError, () => client.responses.retrieve(first.id), "a deleted answer");
    let text = "";
    let final;
    for await (const event of await client.responses.create({ model: "tiny", input: "light", max_output_tokens: 8, temperature: 0, stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
      final = event.response ?? final;
    }
    equal(final.output[0].content[0].text, text, "text of the last event");
  },
  async errors() {
    const e = await refused(OpenAI.BadRequestError, () => chat({ messages: [{ role: "user", content: 5 }] }), "a number as content");
    equal(e.param, "messages[0].content", "param of the error");
    expect(e.requestID, "x-request-id", "an id", e.requestID);
    await refused(OpenAI.NotFoundError, () => client.responses.retrieve("resp_0"), "an unknown response");
  },
  async models() {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    expect(names.length > 0, "models", "at least one", names);
    equal((await client.models.retrieve(names[0])).id, names[0], "one model");
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
  } catch (e) {
    failed += 1;
    console.log(`  failed ${name}: ${String(e.message).replaceAll(/\s+/g, " ").slice(0, 1000)}`);
  }
}
console.log(`  ${Object.keys(checks).length - failed} checks passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
