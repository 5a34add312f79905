"""The events of a request, for threads and for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .answer import Answer
from .errors import InputError
from .events import Done, Event, Prompt

if TYPE_CHECKING:
    from ._native import Generation as NativeGeneration


class Generation:
    """The events of one request.

    `for event in generation` waits for each event, `async for event in generation` awaits it. `generation.result()` and `await generation` return the
    whole answer. Leaving the loop and dropping the object, or `cancel()`, ends the request within one step.
    """

    def __init__(self, native: NativeGeneration) -> None:
        self._native = native
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: list[Done] = []
        self._prompt: Prompt | None = None
        self._has_ended = False
        self._is_cancelled = False

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens of the prompt, or of all texts of the request."""
        return self._native.n_tokens

    def cancel(self) -> None:
        """Ends the request within one step. The iteration then ends, too."""
        self._is_cancelled = not self._has_ended
        self._native.cancel()

    def result(self) -> Answer:
        """Waits for all texts of the request.

        Raises InputError if the request was cancelled.
        """
        try:
            for _ in self:
                pass
        except BaseException:
            # After Ctrl-C between two events, the traceback keeps this object, and the request would run on.
            self.cancel()
            raise
        return self._answer()

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> Event:
        event = self._native.next()
        if event is None:
            self._has_ended = not self._is_cancelled
            raise StopIteration
        return self._seen(event)

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> Event:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise InputError("this generation belongs to another event loop: a generation is read in one loop")
        while True:
            ready: asyncio.Future[None] = loop.create_future()
            event = self._native.poll(partial(_call, loop, ready))
            if event is None:
                self._has_ended = not self._is_cancelled
                raise StopAsyncIteration
            if event is not ...:
                return self._seen(event)
            try:
                await ready
            except BaseException:
                # A caller that keeps the exception would also keep this frame and its request, but the request should end.
                del self
                raise

    def __await__(self) -> Generator[Any, None, Answer]:
        return self._awaited().__await__()

    async def _awaited(self) -> Answer:
        try:
            async for _ in self:
                pass
        except BaseException:
            self.cancel()
            raise
        return self._answer()

    def _seen(self, event: Event) -> Event:
        if isinstance(event, Done):
            self._done.append(event)
        elif isinstance(event, Prompt):
            self._prompt = event
        return event

    def _answer(self) -> Answer:
        if self._is_cancelled or not self._done:
            raise InputError("this generation was cancelled: it has no whole text")
        return Answer(tuple(sorted(self._done, key=lambda done: done.index)), self._prompt)

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cancel()

    async def __aenter__(self) -> Generation:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cancel()


def _call(loop: asyncio.AbstractEventLoop, ready: asyncio.Future[None]) -> None:
    """Asks the loop to wake the caller. Runs in another thread, which must not set the future itself."""
    loop.call_soon_threadsafe(_wake, ready)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
