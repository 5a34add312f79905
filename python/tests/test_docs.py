"""Runs the Python blocks of docs/python.md and of docs/ray.md, each page in one namespace."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

import pytest
from conftest import within

DOCS = Path(__file__).parents[2] / "docs"


def printed(page: str) -> tuple[int, str]:
    """Runs the blocks of a page. Returns the number of blocks and the printed text."""
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    out = io.StringIO()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(out):
        for block in blocks:
            exec(compile(block, page, "exec"), names)
    return len(blocks), out.getvalue()


@pytest.mark.filterwarnings("default")
def test_the_page_runs() -> None:
    n, out = printed("python.md")
    assert n >= 6 and "tokens)" in out


# None makes the cluster that a user gets, with all CPUs of this machine. Ray takes 20 seconds for each cluster.
@pytest.mark.parametrize("cpus", [None, 1, 4] if os.environ.get("WINGBEAT_TEST_ALL") else [None])
@pytest.mark.filterwarnings("ignore")
def test_the_page_of_ray_runs(cpus: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray.init(num_cpus=cpus, log_to_driver=False)
    try:
        with within(120):
            n, out = printed("ray.md")
    finally:
        ray.shutdown()
    assert n == 1 and out.splitlines()[:2] == ["{'done': 40, 'failed': 0, 'kept': 0}", "{'done': 0, 'failed': 0, 'kept': 40}"]
