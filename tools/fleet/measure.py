"""Profiles of models: step times that `wingbeat bench` measures on this machine, or that it estimates for a GPU."""

import json
import pathlib
import statistics
import subprocess
import tempfile
from collections.abc import Sequence

from .plan import Profile

PROMPTS = (16, 64, 256)


def measured(program: str, model: str, flags: list[str], texts: list[int], load: float, together: tuple[int, ...] = ()) -> Profile:
    """Measures a model. `flags` are flags of `bench`, such as --device and --quant. `together` are numbers of processes that are measured at once, for
    servers that share a host."""
    decode, prefill = _bench(program, model, _decode(flags, texts)), _bench(program, model, _prefill(flags, PROMPTS))
    shared = [(1, 1.0)]
    for n in together:
        slower = _bench(program, model, _decode(flags, texts[-1:]), n)[texts[-1]] / decode[texts[-1]]
        slower_prefill = _bench(program, model, _prefill(flags, PROMPTS[-1:]), n)[PROMPTS[-1]] / prefill[PROMPTS[-1]]
        shared.append((n, (slower + slower_prefill) / 2))
    state, token = _sizes(program, model)
    name = pathlib.Path(model).stem
    return Profile(name, sorted(decode.items()), sorted(prefill.items()), state, token, load, shared)


def drift(program: str, model: str, flags: list[str], profile: Profile, n_processes: int) -> tuple[float, float]:
    """Returns how many times as long decoding and prefill take now as in the profile: a shared machine changes its speed by 20 % within a minute."""
    (n_texts, step), (n_prompt, time) = profile.decode[-2], profile.prefill[-2]
    decode = _bench(program, model, _decode(flags, [n_texts]), n_processes)[n_texts]
    prefill = _bench(program, model, _prefill(flags, [n_prompt]), n_processes)[n_prompt]
    slower = profile.slower(n_processes)
    return decode / step / slower, prefill / time / slower


def estimated(program: str, model: str, gpu: str, texts: list[int], load: float, token_bytes: float) -> Profile:
    """Takes the estimates of `wingbeat bench --predict`. `token_bytes` is the size of one token in a model with attention."""
    command = [program, "bench", "--synthetic", model, "--predict", gpu, "--json", "-b", ",".join(map(str, texts)), "-p", "64,512", "-n", "32"]
    (found,) = json.loads(_run(command))
    decode, prefill = [], []
    for step in found["steps"]:
        kind, n = step["test"][:2], int(step["test"][2:])
        if kind == "tg":
            decode.append((step["n_batch"], step["n_batch"] / step["tokens_per_second"]))
        elif step["n_batch"] == min(texts):
            prefill.append((n, n / step["tokens_per_second"]))
    published = {entry["name"]: entry for entry in json.loads(_run([program, "inspect", "--published", "--json"]))}
    state = 0.0 if token_bytes else published[model]["state_per_slot"]
    return Profile(f"{model} on {found['gpu']} (estimated)", decode, prefill, state, token_bytes, load)


def _decode(flags: list[str], texts: Sequence[int]) -> list[str]:
    return [*flags, "-p", "0", "-n", "24", "-b", ",".join(map(str, texts))]


def _prefill(flags: list[str], prompts: Sequence[int]) -> list[str]:
    return [*flags, "-n", "0", "-p", ",".join(map(str, prompts))]


def _bench(program: str, model: str, flags: list[str], n_processes: int = 1) -> dict[int, float]:
    """Returns seconds per step by number of texts, or per prompt by number of tokens: medians of all rounds of all processes, which run at once."""
    # Several processes do not begin and end together, so they need many rounds.
    command = [program, "bench", "-m", model, "--json", "-r", "3" if n_processes == 1 else "12", *flags]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(n_processes)]
    reports = [json.loads(_output(process)) for process in running]
    times = {}
    for tests in zip(*reports, strict=True):
        first = tests[0]
        n, n_steps = (first["n_batch"], first["n_gen"]) if first["n_gen"] else (first["n_prompt"], 1)
        times[n] = statistics.median(ns for test in tests for ns in test["samples_ns"]) / n_steps / 1e9
    return times


def _sizes(program: str, model: str) -> tuple[float, float]:
    """Returns the size of a state file without tokens, and the growth of the file per token, in bytes."""
    sizes = []
    with tempfile.TemporaryDirectory() as folder:
        for n in (16, 272):
            file = pathlib.Path(folder, str(n))
            _run([program, "generate", "-m", model, "--device", "cpu", "--save-state", str(file), "--ignore-eos", "-n", str(n), "light"])
            sizes.append(file.stat().st_size)
    per_token = (sizes[1] - sizes[0]) / 256
    return sizes[0] - 17 * per_token, per_token


def _run(command: list[str]) -> str:
    return _output(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


def _output(process: subprocess.Popen[str]) -> str:
    out, error = process.communicate()
    if process.returncode != 0:
        last = error.strip().splitlines()[-1:]
        raise SystemExit(f"wingbeat: exit code {process.returncode}: {' '.join(last)}")
    return out
