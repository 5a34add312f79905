"""Ends of a server: SIGTERM with a running stream, kill -9, and the time in which models load."""

import http.client
import json
import random
import signal
import threading
import time

from server import Server, equal, folder, models

from .shared import CHAT, LONG, SHORT, Background


def sigterm_ends_streams():
    with Server("--grace", "1") as server:
        stream = Background(server, LONG)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        health = refused_or(server, "/health")
        assert health in (None, 503), f"/health while the server ends: expected 503 or a closed port, found {health}"
        equal(server.stop(), 0, "exit code after SIGTERM")
        stream.join(10)
        assert not stream.is_alive() and stream.error is None, f"a stream after SIGTERM: expected its end, found {stream.error}"
        last = stream.events[-1]
        assert last == "[DONE]" or "error" in json.loads(last), f"last event of a stream after SIGTERM: expected [DONE] or an error, found {last}"


def refused_or(server, path):
    try:
        return server.get(path).status
    except OSError:
        return None


def sigterm_waits_for_answers():
    with Server("--grace", "30") as server:
        stream = Background(server, {**LONG, "max_tokens": 200})
        equal(server.stop(), 0, "exit code after SIGTERM")
        stream.join(10)
        equal(stream.events[-1], "[DONE]", "last event of a stream that ends within the grace")
        reasons = [c["finish_reason"] for event in stream.events[:-1] for c in json.loads(event)["choices"] if c["finish_reason"]]
        equal(reasons, ["length"], "finish_reason of a stream that ends within the grace")
        tokens = sum(1 for event in stream.events[:-1] if json.loads(event)["choices"][0]["text"])
        assert tokens > 20, f"a stream of 200 tokens: expected many deltas, found {tokens}"


def sigint_ends_the_server():
    server = Server()
    code = server.stop(signal.SIGINT)
    assert code in (0, 130), f"exit code after SIGINT: expected 0 or 130, found {code}"


def states_survive_a_kill():
    with folder() as path:
        server = Server("--states", path, "--deterministic")
        saved = server.post(CHAT, {**SHORT, "save_state": "story"})
        equal(saved.status, 200, f"an answer with save_state: {saved.body[:300]!r}")
        then = {"messages": [{"role": "user", "content": "more"}], "state": "story", "max_tokens": 8, "seed": 2}
        expected = server.post(CHAT, then).json["choices"][0]["message"]["content"]
        kept = server.post("/v1/responses", {"input": "light", "max_output_tokens": 8}).json["id"]
        # The server is killed while streams run and states are being written.
        streams = [Background(server, {**LONG, "save_state": f"lost-{i}", "max_tokens": 300 + i}) for i in range(2)]
        for i in range(10):
            server.post("/v1/states", {"action": "save", "name": f"text-{i}", "prompt": f"In the beginning {i}"})
        server.stop(signal.SIGKILL)
        for stream in streams:
            stream.join(10)
        with Server("--states", path, "--deterministic") as server:
            listed = server.get("/v1/states").json["data"]
            names = {state["name"] for state in listed}
            missing = {"story", *(f"text-{i}" for i in range(10))} - names
            assert not missing, f"states after a kill: expected also {missing}, found {names}"
            for name in names:
                answer = server.post("/v1/completions", {"prompt": "a", "state": name, "max_tokens": 1})
                equal(answer.status, 200, f"an answer from the state {name} after a kill: {answer.body[:200]!r}")
            found = server.post(CHAT, then).json["choices"][0]["message"]["content"]
            equal(found, expected, "text from a state after a kill")
            answer = server.post("/v1/responses", {"input": "more", "previous_response_id": kept, "max_output_tokens": 4})
            equal(answer.status, 200, f"a response that continues after a kill: {answer.body[:300]!r}")


def kills_leave_whole_files():
    """States are overwritten without a pause, and the server is killed at any moment: each state is the old or the new one."""
    rng = random.Random(1)
    with folder() as path:
        for _ in range(4):
            server = Server("--states", path)
            writers = [threading.Thread(target=overwrite, args=(server, f"state-{i}"), daemon=True) for i in range(3)]
            for writer in writers:
                writer.start()
            time.sleep(0.3 + rng.random() / 3)
            server.stop(signal.SIGKILL)
            for writer in writers:
                writer.join(10)
        with Server("--states", path) as server:
            names = [state["name"] for state in server.get("/v1/states").json["data"]]
            equal(names, ["state-0", "state-1", "state-2"], "states after four kills")
            for name in names:
                answer = server.post("/v1/completions", {"prompt": "a", "state": name, "max_tokens": 1})
                equal(answer.status, 200, f"an answer from the state {name} after four kills: {answer.body[:200]!r}")


def overwrite(server, name):
    number = 0
    try:
        while True:
            number += 1
            server.post("/v1/states", {"action": "save", "name": name, "prompt": f"In the beginning {number}"})
    except (OSError, http.client.HTTPException):
        pass  # The server was killed.


def health_while_loading():
    flags = [flag for version in (4, 5, 6) for flag in ("-m", f"m{version}={models()}/tiny-rwkv{version}.safetensors")]
    with Server(*flags, wait=False) as server:
        first = server.get("/health")
        assert (first.status, first.json["status"]) in ((503, "loading"), (200, "ok")), f"/health while loading: expected 503 loading, found {first.status} {first.body!r}"
        if first.status == 503:
            answer = server.post(CHAT, {**SHORT, "model": "m6"})
            assert answer.status in (200, 503), f"an answer while loading: expected 503, found {answer.status} {answer.body[:200]!r}"
        server.wait_ready()
        equal(server.get("/health").json, {"status": "ok"}, "/health when all models are loaded")
        statuses = {model["status"] for model in server.get("/v1/models").json["data"]}
        equal(statuses, {"ready"}, "status of all models")


def sigterm_while_loading():
    server = Server(wait=False)
    equal(server.stop(), 0, "exit code after SIGTERM while a model loads")


CHECKS = [sigterm_ends_streams, sigterm_waits_for_answers, sigint_ends_the_server, states_survive_a_kill, kills_leave_whole_files, health_while_loading, sigterm_while_loading]
