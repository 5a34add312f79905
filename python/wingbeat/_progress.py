"""Progress of loading, with a bar of tqdm where it is installed and stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Progress = Callable[[str, int, int], None]


class Bars:
    """One bar for each stage of loading that takes longer than half a second."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._stage = ""
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self.close()
            unit = {"unit": "B", "unit_scale": True, "unit_divisor": 1024} if stage != "measure" else {"unit": "step"}
            names = {"weights": "loading", "download": "downloading", "measure": "measuring this GPU, once"}
            self._bar = self._tqdm(total=total, desc=names.get(stage, stage), leave=False, delay=0.5, file=sys.stderr, **unit)
            self._stage = stage
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar, self._stage = None, ""


def bars() -> Bars | None:
    """Returns bars if tqdm is installed and stderr is a terminal, else None."""
    if not (sys.stderr and sys.stderr.isatty()):
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return Bars(tqdm)
