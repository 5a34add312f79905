"""Many requests at once, with their answers in order."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Union

from .answer import Answer
from .errors import InputError, WingbeatError
from .generation import Generation

if TYPE_CHECKING:
    from .requests import Prompt

    Item = Union[Prompt, list[Mapping[str, Any]], Mapping[str, Any]]
    Submit = Callable[["Prompt | None", Mapping[str, Any]], Generation]


class Batch:
    """The answers of many requests, in the order of the requests. Requests are taken from their source only as slots need them."""

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

    def __iter__(self) -> Iterator[Answer | WingbeatError]:
        return self

    def __next__(self) -> Answer | WingbeatError:
        if self._source is None:
            if isinstance(self._items, AsyncIterable):
                raise InputError("these requests come from an async iterable: use `async for`")
            self._source = iter(self._items)
        while len(self._pending) < self._window and (item := next(self._source, None)) is not None:
            self._begin(item)
        if not self._pending:
            raise StopIteration
        pending = self._pending.popleft()
        try:
            return pending.result() if isinstance(pending, Generation) else self._failed(pending)
        except WingbeatError as e:
            return self._failed(e)
        except BaseException:
            self._pending.clear()
            raise

    def __aiter__(self) -> AsyncIterator[Answer | WingbeatError]:
        return self

    async def __anext__(self) -> Answer | WingbeatError:
        if self._source is None:
            self._source = aiter(self._items) if isinstance(self._items, AsyncIterable) else iter(self._items)
        while len(self._pending) < self._window and (item := await _next(self._source)) is not None:
            self._begin(item)
        if not self._pending:
            raise StopAsyncIteration
        pending = self._pending.popleft()
        try:
            return await pending if isinstance(pending, Generation) else self._failed(pending)
        except WingbeatError as e:
            return self._failed(e)
        except BaseException:
            self._pending.clear()
            raise

    def _begin(self, item: Item) -> None:
        prompt, request = _split(item)
        try:
            self._pending.append(self._submit(prompt, {**self._defaults, **request}))
        except WingbeatError as e:
            self._pending.append(e)

    def _failed(self, error: WingbeatError) -> WingbeatError:
        if self._returns_errors:
            return error
        self._pending.clear()
        raise error


async def _next(source: Any) -> Any:
    if isinstance(source, AsyncIterator):
        return await anext(source, None)
    return next(source, None)


def _split(item: Any) -> tuple[Prompt | None, Mapping[str, Any]]:
    """A text or token ids are a prompt, a list of mappings is messages, and a mapping is a request."""
    if isinstance(item, Mapping):
        return None, item
    if isinstance(item, list) and item and isinstance(item[0], Mapping):
        return None, {"messages": item}
    return item, {}
