"""Models for tests: the embedded one on the CPU, with weights in f32."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wingbeat

MODELS = Path(__file__).parents[2] / "tests" / "models"
# The embedded model as a file.
SMALL_WORLD = MODELS.parents[1] / "assets" / "models" / "small-world.safetensors"
# Small models that were trained on the King James Bible.
TINY = {
    4: MODELS / "tiny-rwkv4.safetensors",
    5: MODELS / "tiny-rwkv5.safetensors",
    6: MODELS / "tiny-rwkv6.safetensors",
    7: MODELS / "tiny-rwkv7.safetensors",
}


@pytest.fixture(scope="session")
def model() -> Iterator[wingbeat.Model]:
    with wingbeat.Model.embedded(device="cpu", dtype="f32", slots=4, deterministic=True) as model:
        yield model


@pytest.fixture(scope="session")
def glm() -> Iterator[wingbeat.Model]:
    with wingbeat.Model(MODELS / "tiny-glm4", device="cpu", dtype="f32", slots=2) as model:
        yield model


def run(code: str, *args: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a program in a new Python process."""
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload, no-any-return]


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raises TimeoutError if the block takes longer. On Windows, there is no limit."""

    def end(*_: object) -> None:
        raise TimeoutError(f"took longer than {seconds} s")

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
