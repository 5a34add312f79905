#!/usr/bin/env python3
"""Compares the Python package with the command: tokens per second of one text and of 16 texts at once, in turn. Also times log-likelihoods with shared
beginnings against the same ones one by one.

usage: python.py [--program wingbeat] [--rounds 5] [--model rwkv7-0.1b] [--quant i8] [--tokens 256]
Run it with a Python that has the wheel of `make wheel`. --program is a release build of the command; by default, the wheel's own.
Each measurement is the difference of a long run and a short one, so that loading and the prompt do not count.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import wingbeat

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--program", default="")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--model", default="rwkv7-0.1b")
parser.add_argument("--quant", default="i8")
parser.add_argument("--tokens", type=int, default=256, help="tokens of each of 16 texts; a single text has three times as many")
options = parser.parse_args()
program = [options.program] if options.program else [sys.executable, "-m", "wingbeat"]
SHORT = 8

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "model.safetensors"
subprocess.run(
    [*program, "bench", "--synthetic", options.model, "--write", path, "--device", "cpu", "-p", "1", "-n", "1", "-r", "1"], check=True, capture_output=True
)
settings = {"temperature": 1.0, "seed": 1, "ignore_eos": True}
model = wingbeat.Model(path, device="cpu", quant=options.quant, slots=16)


def command(n_texts: int, n: int) -> float:
    """Returns the seconds that the command takes for texts of `n` tokens."""
    lines = [{"id": i, "tokens": [1 + i, 2, 3], "max_tokens": n, **settings} for i in range(n_texts)]
    file, out = Path(folder.name) / "in.jsonl", Path(folder.name) / "out.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out.unlink(missing_ok=True)
    arguments = ["batch", file, "-o", out, "-m", path, "--device", "cpu", "--quant", options.quant, "--slots", str(n_texts), "--force"]
    began = time.perf_counter()
    subprocess.run([*program, *arguments], check=True, capture_output=True)
    return time.perf_counter() - began


def package(n_texts: int, n: int) -> float:
    """Returns the seconds that the package takes for the same texts, with every event read in Python."""
    began = time.perf_counter()
    texts = [model.generate([1 + i, 2, 3], stream=True, max_tokens=n, no_cache=True, **settings) for i in range(n_texts)]
    for text in texts:
        for _ in text:
            pass
    return time.perf_counter() - began


package(16, SHORT)
for n_texts in (1, 16):
    ratios, speeds = [], []
    for _ in range(options.rounds):
        more = options.tokens * (3 if n_texts == 1 else 1)
        of_command = command(n_texts, SHORT + more) - command(n_texts, SHORT)
        of_package = package(n_texts, SHORT + more) - package(n_texts, SHORT)
        n = n_texts * more
        speeds.append((n / of_command, n / of_package))
        ratios.append(of_command / of_package)
    ours, theirs = (statistics.median(pair[i] for pair in speeds) for i in (1, 0))
    print(f"{n_texts} texts: package {ours:.1f} tokens/s, command {theirs:.1f}, ratio {statistics.median(ratios):.3f} ({', '.join(f'{r:.3f}' for r in ratios)})")

context = [1 + i % 999 for i in range(400)]
requests = [(context, [5 + i, 6]) for i in range(8)]
ratios = []
for _ in range(options.rounds):
    began = time.perf_counter()
    model.loglikelihoods(requests)
    middle = time.perf_counter()
    for request in requests:
        model.loglikelihoods([request])
    ratios.append((time.perf_counter() - middle) / (middle - began))
print(f"8 continuations of 400 tokens: together {statistics.median(ratios):.1f} times as fast as one by one")
