"""RWKV and GLM-4 language models on any GPU, through WebGPU, and on the CPU.

>>> import wingbeat
>>> model = wingbeat.Model.embedded(device="cpu")
>>> print(model.generate("Once upon a time", max_tokens=8, temperature=0))
, a girl named Emma lived in the

`Model` loads a model. `Model.generate` continues a text or answers messages, and with `stream=True` returns the events of the text as they come. Errors
are subclasses of `WingbeatError`. docs/python.md has the whole guide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .answer import Answer, Ranked, Score
    from .batch import Batch
    from .errors import (
        BusyError,
        ClosedError,
        DeviceError,
        FileError,
        ForkError,
        InputError,
        InternalError,
        ModelError,
        OutOfMemoryError,
        WingbeatError,
    )
    from .generation import Generation
    from .info import DeviceInfo, ModelInfo
    from .model import Model
    from .requests import Options, Request, Settings
    from .states import State, States
    from .tokenizer import Tokenizer

# The command `wingbeat` imports this package, too, so the rest is imported when it is used.
_HOMES = {
    "Answer": "answer",
    "Batch": "batch",
    "BusyError": "errors",
    "ClosedError": "errors",
    "DeviceError": "errors",
    "DeviceInfo": "info",
    "FileError": "errors",
    "ForkError": "errors",
    "Generation": "generation",
    "InputError": "errors",
    "InternalError": "errors",
    "Model": "model",
    "ModelError": "errors",
    "ModelInfo": "info",
    "Options": "requests",
    "OutOfMemoryError": "errors",
    "Ranked": "answer",
    "Request": "requests",
    "Score": "answer",
    "Settings": "requests",
    "State": "states",
    "States": "states",
    "Tokenizer": "tokenizer",
    "WingbeatError": "errors",
}

__all__ = [
    "Answer",
    "Batch",
    "BusyError",
    "ClosedError",
    "DeviceError",
    "DeviceInfo",
    "FileError",
    "ForkError",
    "Generation",
    "InputError",
    "InternalError",
    "Model",
    "ModelError",
    "ModelInfo",
    "Options",
    "OutOfMemoryError",
    "Ranked",
    "Request",
    "Score",
    "Settings",
    "State",
    "States",
    "Tokenizer",
    "WingbeatError",
    "__version__",
    "errors",
    "events",
]

if TYPE_CHECKING:
    from . import errors as errors
    from . import events as events

    __version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from ._native import VERSION

        return VERSION
    if name in ("errors", "events"):
        return import_module(f"{__name__}.{name}")
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
