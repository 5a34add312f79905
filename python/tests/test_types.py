"""The stubs and the examples satisfy strict type checkers, and the examples run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXAMPLES = sorted((HERE / "examples").glob("*.py"))


def run(*command: str, folder: Path = HERE.parent) -> subprocess.CompletedProcess[str]:
    # pyright looks for packages beside the `python` of PATH.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    return subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, cwd=folder, timeout=600, env={**os.environ, "PATH": path}
    )


def check(*command: str, folder: Path = HERE.parent) -> None:
    done = run(*command, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_is_content() -> None:
    pytest.importorskip("mypy")
    check("mypy", "--no-incremental")


def test_pyright_is_content() -> None:
    pytest.importorskip("pyright")
    check("pyright", "--pythonpath", sys.executable)


def test_every_public_name_has_a_whole_type() -> None:
    pytest.importorskip("pyright")
    done = run("pyright", "--verifytypes", "wingbeat", "--ignoreexternal", "--outputjson", folder=HERE)
    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    # The base class of the model for lm-eval is known where that package is installed.
    wrong = [symbol["name"] for symbol in symbols if symbol["isExported"] and not symbol["isTypeKnown"] and ".WingbeatLM" not in symbol["name"]]
    assert len(symbols) > 200 and not wrong


def test_the_stub_is_the_module() -> None:
    pytest.importorskip("mypy")
    check("mypy.stubtest", "wingbeat._native", "--mypy-config-file", os.fspath(HERE.parent / "pyproject.toml"), folder=HERE)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, os.fspath(path)], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0 and done.stdout, done.stderr
