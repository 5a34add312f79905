"""Tests the package in processes of its own: imports, forks, signals, and the end of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import run

OPEN = "import wingbeat; model = wingbeat.Model.embedded(device='cpu', slots=2)\n"


def test_an_import_starts_nothing() -> None:
    code = (
        "import signal, sys, threading, logging\n"
        "before = [signal.getsignal(s) for s in signal.valid_signals()]\n"
        "import wingbeat, wingbeat._native, wingbeat.model\n"
        "assert before == [signal.getsignal(s) for s in signal.valid_signals()]\n"
        "assert threading.active_count() == 1 and not logging.root.handlers\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('torch', 'tqdm', 'lm_eval')], sys.modules\n"
        "import os; print(len(os.listdir('/proc/self/task')) if os.path.exists('/proc/self/task') else 1)"
    )
    done = run(code, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_help_shows_the_package() -> None:
    done = run("import wingbeat; help(wingbeat); help(wingbeat.Model)")
    assert done.returncode == 0 and not done.stderr
    for text in ("class Model", "generate(", "class WingbeatError", "download=True"):
        assert text in done.stdout, text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore")
def test_a_fork_is_refused() -> None:
    code = OPEN + (
        "import os, sys\n"
        "generation = model.generate('a', max_tokens=100000, ignore_eos=True, stream=True); next(generation)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    refused = 0\n"
        "    for call in (lambda: model.generate('a'), lambda: next(generation), lambda: wingbeat.Model.embedded(device='cpu'), model.stats):\n"
        "        try: call()\n"
        "        except wingbeat.ForkError as e: refused += 'spawn' in str(e)\n"
        "    model.close(); generation.cancel(); del model, generation\n"
        "    sys.exit(refused)\n"
        "_, status = os.waitpid(child, 0)\n"
        "print(os.waitstatus_to_exitcode(status), len(model.generate('a', max_tokens=2, ignore_eos=True).tokens))"
    )
    done = run(code)
    assert (done.stdout, done.returncode) == ("4 2\n", 0), done.stderr


def test_processes_are_spawned(tmp_path: object) -> None:
    code = (
        "import multiprocessing, wingbeat\n"
        "def text(n): return wingbeat.Model.embedded(device='cpu').generate('In the', max_tokens=n, temperature=0).text\n"
        "if __name__ == '__main__':\n"
        "    print(text(3) == multiprocessing.get_context('spawn').Pool(1).apply(text, (3,)))\n"
    )
    path = os.path.join(str(tmp_path), "spawned.py")
    with open(path, "w") as file:
        file.write(code)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_ctrl_c_ends_a_text() -> None:
    code = OPEN + (
        "import time\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    model.generate('a', max_tokens=10_000_000, ignore_eos=True)\n"
        "except KeyboardInterrupt:\n"
        "    until = time.monotonic() + 5\n"
        "    while model.stats()['free_slots'] < 2 and time.monotonic() < until: time.sleep(0.01)\n"
        "    print(model.stats()['free_slots'], model.generate('a', max_tokens=1, ignore_eos=True).finish_reason)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=20)
    assert (out, child.returncode) == ("2 length\n", 0)


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_ctrl_c_ends_a_load() -> None:
    code = (
        "import wingbeat, time\n"
        "print('ready', flush=True)\n"
        "try: wingbeat.Model.synthetic('rwkv7-2.9b', device='cpu', quant='i4')\n"
        "except KeyboardInterrupt: print('stopped')\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(1.5)
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (out, child.returncode) == ("stopped\n", 0), err
    assert time.monotonic() - began < 30


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
@pytest.mark.parametrize("call", ["model.logits([1] * 100_000)", "model.loglikelihoods([([1 + i] * 500, [2]) for i in range(2000)])"])
def test_ctrl_c_ends_a_reading(call: str) -> None:
    code = OPEN + (
        "try:\n"
        "    print('ready', flush=True)\n"
        f"    {call}\n"
        "except KeyboardInterrupt: print('stopped', model.logits([1, 2]).shape[0])\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert (out, child.returncode) == ("stopped 2\n", 0), err


def test_models_are_opened_by_several_threads() -> None:
    code = (
        "import threading, wingbeat\n"
        "barrier, opened = threading.Barrier(4), []\n"
        "def work():\n    barrier.wait(); opened.append(wingbeat.Model.embedded(device='cpu', slots=1))\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]; print(len(opened))"
    )
    for _ in range(3):
        done = run(code)
        assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")


def test_nothing_opens_while_python_ends() -> None:
    code = (
        "import atexit, wingbeat\n"
        "def late():\n    try: wingbeat.Model.embedded(device='cpu')\n    except RuntimeError as e: print(e)\n"
        "atexit.register(late)\n" + OPEN
    )
    done = run(code)
    assert (done.returncode, done.stdout) == (0, "Python is ending: a model can no longer be opened\n"), done.stderr


@pytest.mark.parametrize(
    "left",
    [
        "import threading, time; threading.Thread(target=lambda: model.logits([1] * 20_000), daemon=True).start(); time.sleep(0.2)",
        "generation = model.generate('a', max_tokens=10_000_000, ignore_eos=True, stream=True); next(generation)",
        "import threading; threading.Thread(target=lambda: model.generate('a', max_tokens=10_000_000, ignore_eos=True), daemon=True).start(); import time; time.sleep(0.2)",
        "import asyncio\nasync def main():\n    task = asyncio.create_task(text())\n    await asyncio.sleep(0.2)\nasync def text():\n    return await model.generate('a', max_tokens=10_000_000, ignore_eos=True, stream=True)\nasyncio.run(main())",
        "wingbeat.kept = model; wingbeat.more = [model.generate('a', max_tokens=1000000, ignore_eos=True, stream=True) for _ in range(9)]",
        "generation = model.generate('a', max_tokens=10_000_000, ignore_eos=True, stream=True); next(generation); del model",
        "raise SystemExit(0)",
    ],
)
def test_an_end_with_a_running_text_is_clean(left: str) -> None:
    for _ in range(3):
        done = run(OPEN + left)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_gpu_is_left_in_peace_at_the_end() -> None:
    code = OPEN.replace("cpu", "gpu") + (
        "generation = model.generate('a', max_tokens=10_000_000, ignore_eos=True, stream=True); next(generation); print('writes')"
    )
    done = run(code)
    if "DeviceError" in done.stderr:
        pytest.skip("no GPU and no software driver")
    assert (done.returncode, done.stdout) == (0, "writes\n"), done.stderr


def test_the_command_is_the_program() -> None:
    def command(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "wingbeat", *args], capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload, no-any-return]

    version = command("--version")
    assert (version.returncode, version.stdout.split()[0]) == (0, "wingbeat")
    done = command("generate", "--device", "cpu", "--temperature", "0", "-n", "8", "In the beginning")
    code = "import wingbeat; print(wingbeat.Model.embedded(device='cpu').generate('In the beginning', max_tokens=8, temperature=0))"
    assert done.returncode == 0 and run(code).stdout in done.stdout + "\n"
    assert command("generate", "--tempo", "1").returncode == 2
    assert command("generate", "-m", "/nowhere.pth", "a").returncode == 1
    piped = command("tokenize", "--json", input="In the")
    assert piped.returncode == 0 and "tokens" in piped.stdout
    wrong = command("generate", "-p", "\\q", "-e", "--device", "cpu")
    assert wrong.returncode == 2 and "--prompt" in wrong.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_ctrl_c_ends_the_command() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "wingbeat", "generate", "--device", "cpu", "-n", "-1", "--ignore-eos", "a"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.read(10)
    child.send_signal(signal.SIGINT)
    child.stdout.close()
    _, err = child.communicate(timeout=20)
    assert child.returncode in (0, 130) and b"Traceback" not in err
