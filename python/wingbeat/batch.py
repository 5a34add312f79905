"""Many requests at once, with their answers in order."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Union

from .answer import Answer
from .errors import BusyError, InputError, WingbeatError
from .generation import Generation

if TYPE_CHECKING:
    from .requests import Prompt

    Item = Union[Prompt, list[Mapping[str, Any]], Mapping[str, Any]]
    Submit = Callable[["Prompt | None", Mapping[str, Any]], Generation]

_END = object()

# How long to wait for room in the queue if no request of the batch runs.
_PAUSE = 0.02


class Batch:
    """The answers of many requests, in the order of the requests.

    Requests are taken from their source only as slots need them: at most `window` are under way. A full queue makes the batch wait.
    """

    def __init__(
        self,
        submit: Submit,
        items: Iterable[Item] | AsyncIterable[Item],
        window: int,
        errors: Literal["raise", "return"],
        defaults: Mapping[str, Any],
    ) -> None:
        if window < 1:
            raise InputError(f"window: expected at least 1, found {window}", field="window")
        if errors not in ("raise", "return"):
            raise InputError(f"errors: expected raise or return, found {errors!r}", field="errors")
        self._submit = submit
        self._items = items
        self._window = window
        self._returns_errors = errors == "return"
        self._defaults = defaults
        self._pending: deque[Generation | WingbeatError] = deque()
        self._source: Any = None
        # An item for which the queue had no room.
        self._held: Any = _END
        # In asyncio, the next item and the oldest answer are awaited together.
        self._arriving: asyncio.Future[Any] | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._is_over = False

    def __iter__(self) -> Iterator[Answer | WingbeatError]:
        return self

    def __next__(self) -> Answer | WingbeatError:
        if self._source is None:
            if isinstance(self._items, AsyncIterable):
                raise InputError("these requests come from an async iterable: use `async for`")
            self._source = iter(self._items)
        while len(self._pending) < self._window:
            item = next(self._source, _END) if self._held is _END else self._held
            if item is _END:
                break
            if self._begin(item):
                continue
            if self._pending:
                break
            time.sleep(_PAUSE)
        if not self._pending:
            raise StopIteration
        pending = self._pending.popleft()
        try:
            return pending.result() if isinstance(pending, Generation) else self._failed(pending)
        except WingbeatError as e:
            return self._failed(e)
        except BaseException:
            self._end()
            raise

    def __aiter__(self) -> AsyncIterator[Answer | WingbeatError]:
        return self

    async def __anext__(self) -> Answer | WingbeatError:
        if self._source is None:
            self._source = aiter(self._items) if isinstance(self._items, AsyncIterable) else iter(self._items)
        try:
            answer = await self._oldest()
        except WingbeatError as e:
            return self._failed(e)
        except BaseException:
            self._end()
            raise
        if answer is None:
            raise StopAsyncIteration
        return answer

    async def _oldest(self) -> Answer | WingbeatError | None:
        """Returns the oldest answer, or None after the last one. Meanwhile takes items while there is room for them."""
        while True:
            oldest = self._pending[0] if self._pending else None
            if isinstance(oldest, WingbeatError):
                self._pending.popleft()
                return self._failed(oldest)
            if oldest is not None and self._answer is None:
                self._answer = asyncio.ensure_future(oldest._awaited())
            has_room = len(self._pending) < self._window
            if has_room and self._held is not _END:
                self._begin(self._held)
            elif has_room and self._arriving is None and not self._is_over:
                self._arriving = asyncio.ensure_future(_next(self._source))
            is_held = self._held is not _END
            waited = [future for future in (self._answer, self._arriving if has_room else None) if future is not None]
            if waited:
                await asyncio.wait(waited, timeout=_PAUSE if is_held else None, return_when=asyncio.FIRST_COMPLETED)
            elif is_held:
                await asyncio.sleep(_PAUSE)
            elif not self._pending:
                return None
            if self._arriving is not None and self._arriving.done():
                arriving, self._arriving = self._arriving, None
                item = arriving.result()
                if item is _END:
                    self._is_over = True
                else:
                    self._begin(item)
            if self._answer is not None and self._answer.done():
                answer, self._answer = self._answer, None
                self._pending.popleft()
                return answer.result()

    def _begin(self, item: Any) -> bool:
        """Submits an item. Holds it back and returns False if the queue is full."""
        self._held = _END
        try:
            prompt, request = _split(item)
            self._pending.append(self._submit(prompt, {**self._defaults, **request}))
        except BusyError:
            self._held = item
            return False
        except WingbeatError as e:
            self._pending.append(e)
        return True

    def _failed(self, error: WingbeatError) -> WingbeatError:
        if self._returns_errors:
            return error
        self._end()
        raise error

    def _end(self) -> None:
        """Cancels all requests that are under way."""
        for future in (self._arriving, self._answer):
            if future is not None:
                future.cancel()
        self._arriving = self._answer = None
        self._held = _END
        self._pending.clear()


async def _next(source: Any) -> Any:
    if isinstance(source, AsyncIterator):
        return await anext(source, _END)
    return next(source, _END)


def _split(item: Any) -> tuple[Prompt | None, Mapping[str, Any]]:
    """Returns the prompt and the fields of an item. Text or token ids are a prompt, a list of mappings is messages, and a mapping is a request."""
    if item is None:
        raise InputError("expected a prompt, messages or a request, found None")
    if isinstance(item, Mapping):
        return None, item
    if isinstance(item, list) and item and isinstance(item[0], Mapping):
        return None, {"messages": item}
    return item, {}
