"""wingbeat on a Ray cluster. Needs `pip install wingbeat[ray]`.

`RayBatch` runs many prompts with ray.data; `serve run wingbeat.ray:app` starts the server on many machines. docs/ray.md has the guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .serving import app
    from .batch import RayBatch

__all__ = ["RayBatch", "app"]


def __getattr__(name: str) -> Any:
    # Each half works where the packages of the other half are missing.
    if name == "app":
        from .serving import app

        globals()["app"] = app
        return app
    if name == "RayBatch":
        from .batch import RayBatch

        return RayBatch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
