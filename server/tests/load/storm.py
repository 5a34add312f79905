"""64 clients at once: answers, streams, disconnects, malformed and oversized bodies. Then every slot must be free, and the memory as before.

usage: storm.py [--seconds 10] [--clients 64] [--slots 16]
"""

import argparse
import collections
import json
import pathlib
import random
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import server  # noqa: E402
from server import Server, equal  # noqa: E402

MAX_BODY = 100_000
# Different questions, so that prompts have different lengths and share beginnings.
ASKED = ["light", "In the beginning God created the heaven and the earth.", "In the beginning was the Word, " * 6, "Who?"]
N_SEEDS = 12
# Bodies that the server must refuse.
WRONG = [
    b"", b"{", b"null", b"[1]", b'"text"', b"\xff\xfe\x00", b'{"messages": 1}', b'{"messages": [{"role": "user", "content": 5}]}', b'{"messages": []}',
    b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": -5}', b'{"messages": [{"role": "user", "content": "a"}], "temperature": 1e999}',
    b'{"messages": [{"role": "user", "content": "a"}], "stop": {"a": 1}}', b"[" * 5000, b'{"a":' * 5000,
]


def question(seed):
    asked = [{"role": "user", "content": ASKED[seed % len(ASKED)]}]
    return {"messages": asked, "seed": seed, "temperature": 1.2, "max_tokens": 8 + 4 * (seed % 5), "ignore_eos": True}


class Storm:
    def __init__(self, served, seconds, n_clients):
        self.served, self.n_clients = served, n_clients
        self.expected = [self.ask(seed) for seed in range(N_SEEDS)]
        self.counts, self.wrong, self.lock = collections.Counter(), [], threading.Lock()
        self.seconds = seconds

    def ask(self, seed):
        answer = self.served.post("/v1/chat/completions", question(seed))
        equal(answer.status, 200, f"status of an answer with seed {seed}: {answer.body[:200]!r}")
        return answer.json["choices"][0]["message"]["content"]

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] += n

    def fail(self, text):
        with self.lock:
            self.wrong.append(text)

    def answer(self, rng):
        seed = rng.randrange(N_SEEDS)
        answer = self.served.post("/v1/chat/completions", question(seed))
        if answer.status == 429:
            return self.count("queue full")
        if answer.status != 200:
            return self.fail(f"an answer: expected 200, found {answer.status} {answer.body[:200]!r}")
        found = answer.json["choices"][0]["message"]["content"]
        if found != self.expected[seed]:
            self.fail(f"answer with seed {seed}: expected {self.expected[seed]!r}, found {found!r}")
        self.count("answers")
        self.count("tokens", answer.json["usage"]["completion_tokens"])

    def stream(self, rng):
        seed, text, last = rng.randrange(N_SEEDS), "", None
        try:
            for last in self.served.stream("/v1/chat/completions", question(seed)):
                if last != "[DONE]":
                    text += "".join(c["delta"].get("content") or "" for c in json.loads(last)["choices"])
        except AssertionError as e:
            return self.count("queue full") if "found 429" in str(e) else self.fail(str(e))
        if (last, text) != ("[DONE]", self.expected[seed]):
            self.fail(f"stream with seed {seed}: expected {self.expected[seed]!r} and [DONE], found {text!r} and {str(last)[:200]}")
        self.count("streams")

    def leave(self, rng):
        """Closes the connection in the middle of the header, the body or the answer."""
        body = json.dumps({**question(rng.randrange(N_SEEDS)), "stream": rng.random() < 0.7, "max_tokens": 2000}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self.served.host}:{self.served.port}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        sent = head + body
        whole = rng.random() < 0.7
        with socket.create_connection((self.served.host, self.served.port), timeout=30) as connection:
            connection.sendall(sent if whole else sent[: rng.randrange(1, len(sent))])
            if whole:
                connection.settimeout(rng.random() * 0.3 + 0.001)
                try:
                    for _ in range(rng.randrange(1, 8)):
                        connection.recv(500)
                except TimeoutError:
                    pass
            if rng.random() < 0.3:
                # Resets the connection instead of closing it in order.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.count("disconnects")

    def malformed(self, rng):
        body = rng.choice(WRONG)
        status = self.served.request("POST", rng.choice(["/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize"]), body).status
        if status != 400:
            self.fail(f"body {body[:80]!r}: expected 400, found {status}")
        self.count("malformed")

    def oversized(self, rng):
        try:
            status = self.served.request("POST", "/v1/chat/completions", b" " * (MAX_BODY * rng.randrange(2, 20))).status
            if status != 413:
                self.fail(f"an oversized body: expected 413, found {status}")
        except (BrokenPipeError, ConnectionResetError):
            pass  # The server closed the connection before it read the whole body.
        self.count("oversized")

    def client(self, number, end):
        rng = random.Random(number)
        while time.monotonic() < end:
            kind = rng.choices([self.answer, self.stream, self.leave, self.malformed, self.oversized], [5, 3, 3, 1, 1])[0]
            try:
                kind(rng)
            except Exception as e:  # noqa: BLE001
                self.fail(f"{kind.__name__}: expected an answer, found {type(e).__name__}: {e}")

    def blow(self, seconds):
        end = time.monotonic() + seconds
        clients = [threading.Thread(target=self.client, args=(number, end), daemon=True) for number in range(self.n_clients)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join(seconds + 120)
        assert not any(thread.is_alive() for thread in clients), "clients: expected all to end within 120 s after the storm, found some waiting"

    def throughput(self, n_clients, seconds):
        """Returns the tokens per second of `n_clients` clients that only send questions."""
        tokens, end, began = collections.Counter(), time.monotonic() + seconds, time.monotonic()

        def ask(number):
            while time.monotonic() < end:
                fields = {**question(number), "max_tokens": 24, "no_cache": True}
                answer = self.served.post("/v1/chat/completions", fields)
                tokens[number] += answer.json["usage"]["completion_tokens"] if answer.status == 200 else 0

        clients = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(n_clients)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join(seconds + 60)
        return sum(tokens.values()) / (time.monotonic() - began)


def slots_are_free(served, what):
    for _ in range(200):
        all_ = served.get("/slots").json
        if all(one["free_slots"] == one["slots"] and not one["running"] and not one["waiting"] and not one["requests"] for one in all_):
            return
        time.sleep(0.05)
    raise AssertionError(f"/slots after {what}: expected all slots free within 10 s, found {all_}")


def storm():
    seconds = arguments.seconds
    with Server("--deterministic", "--slots", arguments.slots, "--queue", "256", "--max-body", MAX_BODY, "--cache", 32 << 20) as served:
        storm = Storm(served, seconds, arguments.clients)
        # The warm-up fills the prefix cache and the buffers.
        storm.blow(max(2, seconds * 0.3))
        slots_are_free(served, "the warm-up")
        before = served.rss()
        storm.counts.clear()
        storm.blow(seconds)
        slots_are_free(served, "the storm")
        time.sleep(0.3)
        after = served.rss()
        counts = dict(sorted(storm.counts.items()))
        print(f"  {arguments.clients} clients for {seconds} s: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
        print(f"  memory: {before:.0f} MiB after the warm-up, {after:.0f} MiB after the storm")
        assert not storm.wrong, f"{len(storm.wrong)} wrong: {storm.wrong[0]}"
        for what in ("answers", "streams", "disconnects", "malformed", "oversized"):
            assert counts.get(what), f"{what}: expected at least one, found none"
        for seed in range(N_SEEDS):
            equal(storm.ask(seed), storm.expected[seed], f"answer with seed {seed} after the storm")
        most = before * 1.15 + 24
        assert after < most, f"memory after the storm: expected less than {most:.0f} MiB, found {after:.0f} MiB"
        one, many = storm.throughput(1, max(1.5, seconds / 10)), storm.throughput(arguments.clients, max(3, seconds / 5))
        slots_are_free(served, "the measurement")
        print(f"  throughput: {one:.0f} tokens per second with 1 client, {many:.0f} with {arguments.clients} clients: ratio {many / one:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--slots", type=int, default=16)
    arguments = parser.parse_args()
    server.run(storm)
