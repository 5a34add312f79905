"""Many tasks and threads on one model."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

import wingbeat
from wingbeat.events import Text

PROMPT = "Once upon a time"


def test_a_text_is_awaited(model: wingbeat.Model) -> None:
    want = model.generate(PROMPT, max_tokens=9, temperature=0).text

    async def main() -> None:
        assert (await model.generate(PROMPT, max_tokens=9, temperature=0, stream=True)).text == want
        pieces = [event.text async for event in model.generate(PROMPT, max_tokens=9, temperature=0, stream=True) if isinstance(event, Text)]
        assert "".join(pieces) == want

    asyncio.run(main())


def test_tasks_and_threads_share_a_model(model: wingbeat.Model) -> None:
    want = {n: model.generate(PROMPT, max_tokens=n, temperature=0).text for n in range(1, 9)}
    failed: list[object] = []

    def thread(n: int) -> None:
        for _ in range(5):
            if model.generate(PROMPT, max_tokens=n, temperature=0).text != want[n]:
                failed.append(n)

    async def task(n: int) -> None:
        answer = await model.generate(PROMPT, max_tokens=n, temperature=0, stream=True)
        if answer.text != want[n]:
            failed.append(n)

    async def main() -> None:
        await asyncio.gather(*(task(1 + i % 8) for i in range(50)))

    threads = [threading.Thread(target=thread, args=(n,)) for n in want]
    for t in threads:
        t.start()
    asyncio.run(main())
    for t in threads:
        t.join()
    assert not failed


def test_a_batch_is_awaited(model: wingbeat.Model) -> None:
    async def prompts():  # type: ignore[no-untyped-def]
        for n in range(6):
            await asyncio.sleep(0)
            yield {"prompt": PROMPT, "max_tokens": n + 1}

    async def main() -> list[int]:
        answers = [answer async for answer in model.batch(prompts(), temperature=0)]
        assert [str(answer) async for answer in model.batch([PROMPT], max_tokens=1, temperature=0)] == [str(answers[0])]
        return [len(answer.tokens) for answer in answers if isinstance(answer, wingbeat.Answer)]

    assert asyncio.run(main()) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(wingbeat.InputError, match="async for"):
        list(model.batch(prompts()))


def test_several_readers_share_the_events(model: wingbeat.Model) -> None:
    async def main() -> None:
        generation = model.generate(PROMPT, max_tokens=30, ignore_eos=True, temperature=0, stream=True)
        want = (await model.generate(PROMPT, max_tokens=30, ignore_eos=True, temperature=0, stream=True)).text

        async def read() -> list[Text]:
            return [event async for event in generation if isinstance(event, Text)]

        thread = asyncio.to_thread(lambda: [event for event in generation if isinstance(event, Text)])
        found = await asyncio.wait_for(asyncio.gather(read(), read(), read(), thread), 20)
        assert sum(len(event.text) for events in found for event in events) == len(want)

    asyncio.run(main())


def test_a_kept_exception_keeps_no_text_running(model: wingbeat.Model) -> None:
    async def main() -> None:
        async def read() -> None:
            async for _ in model.generate(PROMPT, max_tokens=100_000, ignore_eos=True, stream=True):
                pass

        tasks = [asyncio.create_task(read()) for _ in range(2)]
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        kept = await asyncio.gather(*tasks, return_exceptions=True)
        until = time.monotonic() + 10
        while model.stats()["running"] and time.monotonic() < until:
            await asyncio.sleep(0.01)
        assert model.stats()["running"] == 0 and len(kept) == 2

    asyncio.run(main())


def test_a_batch_waits_for_a_full_queue() -> None:
    with wingbeat.Model.embedded(device="cpu", slots=2, queue=1) as model:
        want = [str(answer) for answer in model.batch([PROMPT] * 12, window=12, max_tokens=3, temperature=0)]
        assert len(want) == 12 and len(set(want)) == 1

        async def main() -> None:
            both = [model.batch([PROMPT] * 12, window=9, max_tokens=3, temperature=0) for _ in range(2)]

            async def read(batch: wingbeat.Batch) -> list[str]:
                return [str(answer) async for answer in batch]

            assert await asyncio.wait_for(asyncio.gather(*map(read, both)), 60) == [want, want]

        asyncio.run(main())


def test_an_answer_does_not_wait_for_the_next_request(model: wingbeat.Model) -> None:
    async def main() -> None:
        has_answer = asyncio.Event()

        async def prompts():  # type: ignore[no-untyped-def]
            yield PROMPT
            await has_answer.wait()
            yield PROMPT

        answers = []
        async for answer in model.batch(prompts(), max_tokens=2):
            answers.append(answer)
            has_answer.set()
        assert len(answers) == 2

    asyncio.run(asyncio.wait_for(main(), 20))


def test_one_generation_belongs_to_one_loop(model: wingbeat.Model) -> None:
    generation = model.generate(PROMPT, max_tokens=100, ignore_eos=True, stream=True)

    async def first() -> None:
        async for event in generation:
            if isinstance(event, Text):
                return

    asyncio.run(first())
    with pytest.raises(wingbeat.InputError, match="another event loop"):
        asyncio.run(first())
    generation.cancel()


def test_cancelled_texts_leave_no_slot_taken(model: wingbeat.Model) -> None:
    dice = random.Random(3)

    async def task(n: int) -> None:
        generation = model.generate(PROMPT, max_tokens=10_000, ignore_eos=True, stream=True)
        try:
            seen = 0
            async with asyncio.timeout(dice.random() / 50) if hasattr(asyncio, "timeout") else generation:
                async for _ in generation:
                    seen += 1
                    if seen > n:
                        break
        except (TimeoutError, asyncio.TimeoutError):
            pass

    async def main() -> None:
        for _ in range(10):
            await asyncio.gather(*(task(dice.randrange(6)) for _ in range(50)))

    asyncio.run(main())
    for n in range(500):
        generation = model.generate(PROMPT, max_tokens=10_000, ignore_eos=True, stream=True)
        for _ in zip(range(n % 5), generation, strict=False):
            pass
        del generation
    until = time.monotonic() + 10
    while time.monotonic() < until and (model.stats()["free_slots"], model.stats()["waiting"]) != (4, 0):
        time.sleep(0.01)
    assert (model.stats()["free_slots"], model.stats()["waiting"], model.stats()["running"]) == (4, 0, 0)


def test_other_threads_go_on_while_tokens_come() -> None:
    with wingbeat.Model.synthetic("rwkv7-0.1b", device="cpu", quant="i8", slots=1) as model:
        counts = [0]
        stop = threading.Event()

        def count() -> None:
            while not stop.is_set():
                counts[0] += 1
                time.sleep(0)

        thread = threading.Thread(target=count)
        thread.start()
        gaps: list[int] = []
        for _ in model.generate(tokens=[1, 2, 3], max_tokens=20, ignore_eos=True, stream=True):
            gaps.append(counts[0])
        stop.set()
        thread.join()
        assert gaps[-1] - gaps[0] > 100


def test_a_cancelled_task_cancels_its_text(model: wingbeat.Model) -> None:
    async def main() -> None:
        async def whole() -> wingbeat.Answer:
            return await model.generate(PROMPT, max_tokens=100_000, ignore_eos=True, stream=True)

        task = asyncio.create_task(whole())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await model.generate(PROMPT, max_tokens=1, stream=True)).text is not None

    asyncio.run(main())
