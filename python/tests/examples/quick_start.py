"""The quick start of docs/python.md."""

import asyncio

import wingbeat
from wingbeat.events import Done, Text

model = wingbeat.Model.embedded(device="cpu")
print(model.generate("Once upon a time", max_tokens=16, temperature=0))

for event in model.generate("Once upon a time", max_tokens=16, stream=True):
    match event:
        case Text(text=text):
            print(text, end="", flush=True)
        case Done(usage=usage):
            print(f" ({usage.completion_tokens} tokens)")
        case _:
            pass

answer = model.generate(messages=[{"role": "user", "content": "What is 7 plus 6?"}], max_tokens=16)
print(answer.text, answer.finish_reason)

for each in model.batch(["Once upon a time", "One day"], max_tokens=8):
    print(each)


async def main() -> None:
    async for event in model.generate("One day", max_tokens=8, stream=True):
        if isinstance(event, Text):
            print(event.text, end="")
    print()
    print((await model.generate("One day", max_tokens=8, stream=True)).text)


asyncio.run(main())

model.generate("Once upon a time", max_tokens=8, save_state="story")
state: wingbeat.State = model.states["story"]
model.states["copy"] = state
print(model.generate("", state="copy", max_tokens=8).text)

print(model.embed(["Once upon a time", "One day"]).shape, model.logits([1, 2, 3]).shape, round(model.score("Once upon a time").perplexity, 1))
