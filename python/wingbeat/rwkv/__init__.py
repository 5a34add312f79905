"""A drop-in for the package `rwkv`: `RWKV`, `PIPELINE` and `PIPELINE_ARGS` with the same arguments, on wingbeat's engine.

>>> from wingbeat.rwkv import RWKV, PIPELINE, PIPELINE_ARGS

Programs that import `rwkv.model` and `rwkv.utils` need one line before these imports: `import wingbeat.rwkv; wingbeat.rwkv.install()`.
"""

from __future__ import annotations

import sys
import types

from . import model, utils
from .model import RWKV
from .utils import PIPELINE, PIPELINE_ARGS

__all__ = ["PIPELINE", "PIPELINE_ARGS", "RWKV", "install"]


def install() -> None:
    """Makes `import rwkv.model` and `import rwkv.utils` find this package, also where the package `rwkv` is installed."""
    package = types.ModuleType("rwkv", __doc__)
    package.__path__ = []
    package.model, package.utils = model, utils  # type: ignore[attr-defined]
    sys.modules.update({"rwkv": package, "rwkv.model": model, "rwkv.utils": utils})
