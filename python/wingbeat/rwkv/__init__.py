"""A drop-in for the package `rwkv`: `RWKV`, `PIPELINE` and `PIPELINE_ARGS` with the same arguments, on wingbeat's engine.

>>> from wingbeat.rwkv import RWKV, PIPELINE, PIPELINE_ARGS

Programs that import `rwkv.model` and `rwkv.utils` need one line before these imports: `import wingbeat.rwkv; wingbeat.rwkv.install()`.
"""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec

from . import model, rwkv_tokenizer, utils
from .model import RWKV
from .utils import PIPELINE, PIPELINE_ARGS

__all__ = ["PIPELINE", "PIPELINE_ARGS", "RWKV", "install"]


def install() -> None:
    """Makes `import rwkv.model` and `import rwkv.utils` find this package, also where the package `rwkv` is installed."""
    package = types.ModuleType("rwkv", __doc__)
    package.__path__ = []
    package.__spec__ = ModuleSpec("rwkv", None, is_package=True)
    parts = {"model": model, "rwkv_tokenizer": rwkv_tokenizer, "utils": utils}
    vars(package).update(parts)
    sys.modules.update({"rwkv": package, **{f"rwkv.{name}": part for name, part in parts.items()}})
