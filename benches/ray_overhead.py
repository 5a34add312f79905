#!/usr/bin/env python3
"""Measures what Ray costs: 500 prompts with RayBatch and with `wingbeat batch`, and the time to the first token of the app on Ray Serve and of the bare
server, in turn.

usage: ray_overhead.py [--rounds 3] [--model PATH] [--quant i8] [--prompts 500] [--tokens 24] [--requests 60]
Run it with a Python that has the wheel of `make wheel` and ray[data,serve]. --model is a checkpoint; by default, a synthetic rwkv7-0.1b.
A time for prompts is the difference of a run with all prompts and a run with 20, so that starting Ray, its actors and the model does not count.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
import ray  # noqa: E402
from ray import serve  # noqa: E402

from wingbeat.ray import RayBatch, app  # noqa: E402

FEW = 20

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--model", default="")
parser.add_argument("--quant", default="i8")
parser.add_argument("--prompts", type=int, default=500)
parser.add_argument("--tokens", type=int, default=24)
parser.add_argument("--requests", type=int, default=60)
options = parser.parse_args()
program = [sys.executable, "-m", "wingbeat"]
folder = Path(tempfile.mkdtemp())
model = options.model or str(folder / "model.safetensors")
if not options.model:
    made = [*program, "bench", "--synthetic", "rwkv7-0.1b", "--write", model, "--device", "cpu", "-p", "1", "-n", "1", "-r", "1"]
    subprocess.run(made, check=True, capture_output=True)
cores = os.cpu_count() or 1
ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False


def rows(n: int) -> list[dict]:
    return [{"id": i, "tokens": [1 + i, 2, 3, 4, 5, 6, 7, 8], "max_tokens": options.tokens, "ignore_eos": True} for i in range(n)]


def command(n: int) -> float:
    file, out = folder / "in.jsonl", folder / "out.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(n)))
    out.unlink(missing_ok=True)
    began = time.perf_counter()
    arguments = ["batch", file, "-o", out, "-m", model, "--device", "cpu", "--quant", options.quant, "--slots", "16", "--force"]
    subprocess.run([*program, *arguments], check=True, capture_output=True)
    return time.perf_counter() - began


def on_ray(n: int) -> float:
    batch = RayBatch(model, options={"device": "cpu", "quant": options.quant, "slots": 16, "threads": cores})
    began = time.perf_counter()
    found = batch(ray.data.from_items(rows(n), override_num_blocks=1)).take_all()
    took = time.perf_counter() - began
    assert len(found) == n and all(len(row["tokens"]) == options.tokens for row in found)
    return took


def first_token(port: int) -> float:
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 2, "stream": True, "ignore_eos": True, "no_cache": True}
    connection = http.client.HTTPConnection("127.0.0.1", port)
    began = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    while True:
        line = answer.fp.readline()
        if b'"content":"' in line.replace(b'"content":""', b""):
            took = time.perf_counter() - began
            break
        assert line, answer.status
    connection.close()
    return took


times: dict[str, list[float]] = {"wingbeat batch": [], "RayBatch": []}
for _ in range(options.rounds):
    for name, run in (("wingbeat batch", command), ("RayBatch", on_ray)):
        times[name].append(run(options.prompts) - run(FEW))
ratio = statistics.median(b / a for a, b in zip(*times.values()))
for name, found in times.items():
    print(f"{name}: {options.prompts - FEW} prompts in {statistics.median(found):.2f} s")
print(f"RayBatch takes {ratio:.3f} times as long (median of {options.rounds} rounds)")

bare = subprocess.Popen([*program, "serve", "--device", "cpu", "--port", "18765"], stderr=subprocess.DEVNULL)
serve.start(http_options={"port": 18766})
serve.run(app({"flags": "--device cpu", "num_cpus": 0.5}))
firsts: dict[int, list[float]] = {18765: [], 18766: []}
for i in range(options.requests + 5):
    for port, found in firsts.items():
        took = first_token(port)
        if i >= 5:
            found.append(took)
bare.terminate()
serve.shutdown()
a, b = (1e3 * statistics.median(found) for found in firsts.values())
print(f"first token, embedded model, one client: bare server {a:.1f} ms, Ray Serve {b:.1f} ms")
