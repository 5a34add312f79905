"""Ray: many prompts with ray.data, and the server as an app of Ray Serve."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wingbeat

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

OPTIONS = {"device": "cpu", "dtype": "f32", "deterministic": True}
# Ray warns about changes in its next versions.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    # The cluster that a user gets, with all CPUs of this machine.
    ray.init(log_to_driver=False)
    yield
    ray.shutdown()


def lines(n: int) -> list[dict[str, Any]]:
    words = ["In the beginning", "And God said", "The king of", "A tree", "Light"]
    return [{"id": i, "prompt": f"{words[i % 5]} {i}", "max_tokens": 24 + i % 9, "temperature": 0.9} for i in range(n)]


def by_program(rows: list[dict[str, Any]], folder: Path, *flags: str) -> dict[Any, dict[str, Any]]:
    """Returns the results of `wingbeat batch` by id."""
    prompts, texts = folder / "prompts.jsonl", folder / "texts.jsonl"
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "wingbeat", "batch", str(prompts), "-o", str(texts), "--device", "cpu", "--dtype", "f32", "--deterministic"]
    done = subprocess.run([*command, "--seed", "5", *flags], capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    return {line["id"]: line for line in map(json.loads, texts.read_text().splitlines())}


def processes() -> Iterator[tuple[int, list[bytes]]]:
    """Yields the id and the command of each process."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield int(path.parent.name), path.read_bytes().split(b"\0")


def actors() -> list[int]:
    """Returns the process ids of the pool's actors."""
    return [pid for pid, command in processes() if b"_Worker" in command[0]]


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_a_killed_actor_loses_and_repeats_no_row(cluster: None, tmp_path: Path) -> None:
    from wingbeat.ray import RayBatch

    n = 500 if os.environ.get("WINGBEAT_TEST_ALL") else 240
    rows = lines(n)
    rows[77]["top_p"] = 2.0
    want = by_program(rows, tmp_path)
    batch = RayBatch(options=OPTIONS, actors=2, batch_size=16, seed=5, keep=["prompt"])
    folder = tmp_path / "results"
    killed = []

    def kill() -> None:
        while len(list(folder.glob("*.parquet"))) < n // 50:
            time.sleep(0.01)
        killed.append(actors()[0])
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    counts = batch.run(ray.data.from_items(rows), str(folder))
    thread.join()
    assert killed and counts == {"done": n - 1, "failed": 1, "kept": 0}
    results = ray.data.read_parquet(str(folder)).take_all()
    assert collections.Counter(row["id"] for row in results) == collections.Counter(range(n))
    for row in results:
        line = want[row["id"]]
        if row["id"] == 77:
            assert row["error"]["message"] == line["error"]["message"] and row["error"]["where"] == "top_p" and row["text"] is None
        else:
            assert [row[name] for name in ("text", "tokens", "finish", "seed", "usage")] == [
                line[name] for name in ("text", "tokens", "finish", "seed", "usage")
            ]
            assert row["prompt"] == rows[row["id"]]["prompt"] and row["error"] is None
    # Nothing is left to do.
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert batch.run(ray.data.from_items(rows), str(folder)) == {"done": 0, "failed": 1, "kept": n - 1}
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    # A run with other settings must not write into the same folder.
    for other, message in [
        (RayBatch(options={**OPTIONS, "quant": "i8"}, seed=5, keep=["prompt"]), "have quant = None, and this run has 'i8'"),
        (RayBatch(options=OPTIONS, seed=5, keep=["prompt"], max_tokens=7), "have max_tokens = 128, and this run has 7"),
    ]:
        with pytest.raises(wingbeat.InputError, match=message):
            other.run(ray.data.from_items(rows), str(folder))
    # With `retry_errors`, rows with errors run again.
    rows[77]["top_p"] = 0.5
    assert batch.run(ray.data.from_items(rows), str(folder), retry_errors=True) == {"done": 1, "failed": 0, "kept": n - 1}
    results = ray.data.read_parquet(str(folder)).take_all()
    assert sorted(row["id"] for row in results) == list(range(n)) and all(row["error"] is None for row in results)


def test_rows_have_the_fields_of_a_line(cluster: None, tmp_path: Path) -> None:
    from wingbeat.ray import RayBatch

    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"]}
    rows: list[dict[str, Any]] = [
        {"id": "chat", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "light"}]},
        {"id": "rule", "prompt": "A king: ", "json_schema": json.dumps(schema), "max_tokens": 40},
        {"id": "two", "prompt": "In the beginning", "n": 2, "logprobs": 1, "max_tokens": 3},
        {"id": "ids", "tokens": [74, 111, 1276], "stop": ["\n"]},
    ]
    want = by_program(rows, tmp_path, "-n", "12")
    text = json.dumps(rows[0]["messages"])
    given = [*rows, {"id": "text", "messages": text}, {"id": None, "prompt": "x"}, {"id": "none"}, {"id": "torn", "messages": "[{"}]
    # Arrow gives all rows of a batch the same type, so rows with messages as text are in another dataset.
    batch = RayBatch(options=OPTIONS, seed=5, max_tokens=12, batch_size=1)
    found = {row["id"]: row for part in (given[:4], given[4:]) for row in batch(ray.data.from_items(part)).take_all()}
    for id, line in want.items():
        for name, value in line.items():
            row = found[id][name]
            if name == "choices":
                assert [[choice[key] for key in ("text", "tokens", "finish", "seed")] for choice in row] == [
                    [choice[key] for key in ("text", "tokens", "finish", "seed")] for choice in value
                ]
                tops = [token["top"] for choice in row for token in choice["logprobs"]]
                assert tops == [[pytest.approx(pair) for pair in token["top"]] for choice in value for token in choice["logprobs"]]
            else:
                assert row == value, (id, name)
    assert found["text"]["error"] is None
    assert found[None]["error"]["message"] == "expected a text or a whole number as id, found None"
    assert found["none"]["error"]["kind"] == "input"
    assert found["torn"]["error"]["message"].startswith("expected JSON")


def test_a_row_replaces_the_settings_of_all_rows() -> None:
    from wingbeat.ray.records import request

    given = {"temperature": 0.5, "regex": "a", "ban": [1], "dry_base": 2, "max_tokens": 3}
    found = request({"id": 1, "prompt": "x", "preset": "greedy", "choice": ["b"], "seed": None, "label": 7}, "id", 5, given)
    assert found.pop("seed") == request({"id": 1}, "id", 5, {})["seed"] != request({"id": 1}, "id", 6, {})["seed"]
    assert found == {"prompt": "x", "preset": "greedy", "choice": ["b"], "ban": [1], "max_tokens": 3}
    assert request({"id": 1, "seed": 9}, "id", 5, {"seed": 8})["seed"] == 9


def test_wrong_settings_are_refused_at_once(tmp_path: Path) -> None:
    from wingbeat.ray import RayBatch

    for arguments, message in [
        ({"temprature": 1}, "unknown setting 'temprature'"),
        ({"actors": 0}, "actors: expected at least 1, found 0"),
        ({"batch_size": 0}, "batch_size: expected at least 1, found 0"),
        ({"keep": ["text"]}, "the results have a column 'text' of their own"),
    ]:
        with pytest.raises(wingbeat.InputError, match=message):
            RayBatch(**arguments)  # type: ignore[arg-type]


def test_a_pool_that_can_never_fit_is_refused_at_once(cluster: None, tmp_path: Path) -> None:
    from wingbeat.ray import RayBatch

    n = int(ray.cluster_resources()["CPU"])
    rows = ray.data.from_items(lines(1))
    for arguments, message in [
        ({"actors": n, "ray_args": {"num_cpus": 1}}, f"found {n} actors with 1 CPU each and 1 CPU for reading on 1 machine.* with {n} CPU"),
        ({"ray_args": {"resources": {"vulkan": 1}}}, f"found 1 actors with 1 vulkan each .* with {n} CPU, 0 vulkan"),
    ]:
        batch = RayBatch(options=OPTIONS, **arguments)  # type: ignore[arg-type]
        for use in (batch, lambda dataset, batch=batch: batch.run(dataset, str(tmp_path / "results"))):
            with pytest.raises(wingbeat.InputError, match=message) as found:
                use(rows)
            assert found.value.field == "actors" and "autoscaling=True" in str(found.value.hint)
    assert not (tmp_path / "results").exists()
    # Ray may add machines.
    RayBatch(options=OPTIONS, actors=n, ray_args={"num_cpus": 1}, autoscaling=True)(rows)


def test_a_pool_leaves_a_cpu_for_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    from wingbeat.ray import pool

    def share(nodes: list[dict[str, float]], actors: int, **ray_args: Any) -> Any:
        monkeypatch.setattr(pool.ray, "nodes", lambda: [{"Alive": True, "Resources": node} for node in nodes])
        try:
            return pool.resources(actors, ray_args, False)["num_cpus"]
        except wingbeat.InputError:
            return None

    for cpus, actors, want in [(1, 1, 0), (2, 1, 1), (2, 2, 0.5), (2, 10, 0.1), (2, 11, 0), (4, 2, 1), (4, 3, 1), (4, 4, 0.5)]:
        assert share([{"CPU": cpus}], actors) == want, (cpus, actors)
    # An actor or a task cannot use the CPUs of two machines.
    assert share([{"CPU": 2}, {"CPU": 2}], 1, num_cpus=3) is None
    assert share([{"CPU": 2}, {"CPU": 2}], 1, num_cpus=2) == 2
    assert share([{"CPU": 2}, {"CPU": 2}], 2, num_cpus=2) is None
    assert share([{"CPU": 1, "GPU": 1}, {"memory": 1}], 1, num_gpus=1) == 0
    assert share([{"CPU": 8, "GPU": 1}, {"CPU": 8}], 2, num_gpus=1) is None
    assert share([{"CPU": 8, "GPU": 1}, {"CPU": 8}], 2, num_gpus=0.5) == 1


def test_a_conversation_outlives_its_replicas(cluster: None, tmp_path: Path) -> None:
    with served(tmp_path, replicas=2) as ask:
        words = ["light", "darkness", "water", "earth", "a tree", "a king", "bread", "stone", "gold", "fire"]
        whole = wingbeat.Model.embedded(**OPTIONS)  # type: ignore[arg-type]
        messages: list[dict[str, Any]] = []
        for turn, word in enumerate(words):
            if turn == 5:
                for process in servers():
                    os.kill(process, signal.SIGKILL)
            messages.append({"role": "user", "content": word})
            answer = ask({"messages": messages, "max_tokens": 12, "temperature": 0}, {"x-session-id": "a1"})
            text = answer["choices"][0]["message"]["content"]
            want = whole.generate(messages=messages, max_tokens=12, temperature=0)
            assert text == want.text, turn
            usage = answer["usage"]
            if turn > 0:
                # Only the new message is prefilled.
                assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] < 20, (turn, usage)
            messages.append({"role": "assistant", "content": text})
        assert usage["prompt_tokens"] > 100


def test_a_rolling_restart_loses_no_answer(cluster: None, tmp_path: Path) -> None:
    n_clients, seconds = (64, 120) if os.environ.get("WINGBEAT_TEST_ALL") else (12, 20)
    with served(tmp_path, replicas=2) as ask:
        end = time.monotonic() + seconds
        wrong: list[str] = []
        texts: dict[str, set[str]] = collections.defaultdict(set)
        counts = [0] * n_clients

        def client(k: int) -> None:
            while time.monotonic() < end:
                prompt = f"In the beginning {k % 8}"
                try:
                    answer = ask({"messages": [{"role": "user", "content": prompt}], "max_tokens": 16, "temperature": 0}, {})
                    texts[prompt].add(answer["choices"][0]["message"]["content"])
                    counts[k] += 1
                except Exception as e:
                    wrong.append(repr(e))

        threads = [threading.Thread(target=client, args=(k,)) for k in range(n_clients)]
        for thread in threads:
            thread.start()
        time.sleep(seconds / 3)
        before = set(servers())
        run_app(tmp_path, replicas=2, slots=7)
        for thread in threads:
            thread.join()
        assert not wrong and min(counts) > 0, (wrong[:3], counts)
        assert len(texts) == 8 and all(len(of) == 1 for of in texts.values())
        assert before and not before & set(servers())


def test_the_app_says_what_is_wrong() -> None:
    from wingbeat.ray import app

    with pytest.raises(ValueError, match="unknown arguments of wingbeat.ray:app: modle"):
        app({"modle": "x"})
    with pytest.raises(RuntimeError, match="none.pth"):
        from wingbeat.ray.serving import Replica

        Replica(["--model", "none.pth"])


def run_app(folder: Path, **args: Any) -> None:
    from ray import serve

    from wingbeat.ray import app

    flags = "--device cpu --dtype f32 --deterministic"
    serve.run(app({"states": str(folder / "states"), "num_cpus": 0.5, "flags": flags, **args}), name="test")


@contextlib.contextmanager
def served(folder: Path, **args: Any) -> Iterator[Callable[[dict[str, Any], dict[str, str]], dict[str, Any]]]:
    """Runs the app. Returns a function that sends a chat request, and repeats it while the server answers 429 or 503."""
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"port": port})

    def ask(body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        for _ in range(300):
            request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json", **headers})
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except urllib.error.HTTPError as e:
                if e.code not in (429, 503):
                    raise RuntimeError(f"{e.code} {e.read()!r}") from None
                time.sleep(0.1)
        raise TimeoutError

    try:
        run_app(folder, **args)
        yield ask
    finally:
        serve.shutdown()


def servers() -> list[int]:
    """Returns the ids of the processes `wingbeat serve`."""
    return [pid for pid, command in processes() if b"wingbeat" in command and b"serve" in command]
