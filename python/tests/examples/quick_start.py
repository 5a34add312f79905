"""The quick start of docs/python.md."""

import asyncio

import wingbeat
from wingbeat.events import Done, Text

model = wingbeat.Model.embedded(device="cpu")
print(model.generate("In the beginning", max_tokens=16, temperature=0))

for event in model.generate("In the beginning", max_tokens=16, stream=True):
    match event:
        case Text(text=text):
            print(text, end="", flush=True)
        case Done(usage=usage):
            print(f" ({usage.completion_tokens} tokens)")
        case _:
            pass

answer = model.generate(messages=[{"role": "user", "content": "light"}], max_tokens=16)
print(answer.text, answer.finish_reason)

for each in model.batch(["In the beginning", "And God said"], max_tokens=8):
    print(each)


async def main() -> None:
    async for event in model.generate("And God said", max_tokens=8, stream=True):
        if isinstance(event, Text):
            print(event.text, end="")
    print()
    print((await model.generate("And God said", max_tokens=8, stream=True)).text)


asyncio.run(main())

model.generate("In the beginning", max_tokens=8, save_state="genesis")
state: wingbeat.State = model.states["genesis"]
model.states["copy"] = state
print(model.generate("", state="copy", max_tokens=8).text)

print(model.embed(["In the beginning", "And God said"]).shape, model.logits([1, 2, 3]).shape, round(model.score("In the beginning").perplexity, 1))
