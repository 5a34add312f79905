"""Errors. Each error has the attributes `field` (the wrong argument or field of a request, or None) and `hint` (what to do, or None)."""

from __future__ import annotations

from typing import Any


class WingbeatError(Exception):
    """Any error of wingbeat."""

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (type(self), self.args[0], self.field, self.hint))


def _restored(kind: type[WingbeatError], message: str, field: str | None, hint: str | None) -> WingbeatError:
    return kind(message, field=field, hint=hint)


class InputError(WingbeatError, ValueError):
    """A wrong argument: an unknown option, a token out of range, an empty prompt."""


class FileError(WingbeatError):
    """A wrong file: missing, truncated, or with content that does not match its name."""


class ModelError(WingbeatError):
    """A model that cannot do this: unknown architecture, wrong shapes, a state of other weights."""


class DeviceError(WingbeatError, RuntimeError):
    """An error of the device: no GPU was found, the device was lost, or it computed wrong results."""


class OutOfMemoryError(WingbeatError, MemoryError):
    """Too little memory, on the host or on the device."""


class BusyError(WingbeatError):
    """The queue of requests is full. The same request may be accepted later."""


class ClosedError(WingbeatError):
    """The model is closed."""


class ForkError(WingbeatError):
    """This process was forked from a process that had opened a model. A fork copies neither threads nor the GPU."""


class InternalError(WingbeatError):
    """A fault of wingbeat itself. Please report it."""
