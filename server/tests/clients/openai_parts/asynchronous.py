"""The asynchronous client with twenty requests at the same time."""

import asyncio

import openai
from server import equal

from .shared import USER, chat, options

N = 20


def twenty_requests_at_once():
    expected = [chat(seed=seed, temperature=1).choices[0].message.content for seed in range(N)]

    async def ask(client, seed):
        fields = {"model": "tiny", "messages": USER, "seed": seed, "temperature": 1, "max_tokens": 12}
        if seed % 2 == 0:
            return (await client.chat.completions.create(**fields)).choices[0].message.content
        stream = await client.chat.completions.create(**fields, stream=True)
        return "".join([c.delta.content or "" async for chunk in stream for c in chunk.choices])

    async def ask_all():
        async with openai.AsyncOpenAI(**options()) as client:
            return await asyncio.gather(*(ask(client, seed) for seed in range(N)))

    found = asyncio.run(ask_all())
    for seed in range(N):
        equal(found[seed], expected[seed], f"text with seed {seed} beside 19 other requests")


CHECKS = [twenty_requests_at_once]
