"""Attacks of one caller on another: slow grammars, slots that are never freed, large and unfinished bodies, slow uploads, idle connections.

usage: attacks.py [--seconds 5] [--full] [CHECK…]

Each check prints the times of the other caller. The bounds are in docs/safety.md, with a margin for a busy machine.
"""

import argparse
import json
import pathlib
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import server  # noqa: E402
from server import Server, equal, folder  # noqa: E402

ADA, BOB = ({"authorization": f"Bearer {key}"} for key in ("key-of-ada-0123456789", "key-of-bob-0123456789"))
# A request of the other caller.
QUICK = {"prompt": "In the beginning", "max_tokens": 64, "ignore_eos": True, "seed": 1}


def keyed(*flags):
    """Returns a server with two keys, and the temporary folder that contains the file of keys."""
    held = folder()
    keys = pathlib.Path(held.name) / "keys"
    keys.write_text("ada key-of-ada-0123456789\nbob key-of-bob-0123456789\n")
    keys.chmod(0o600)
    return Server("--key-file", keys, "--slots", "8", *flags), held


def seconds(f):
    began = time.monotonic()
    f()
    return time.monotonic() - began


def quick(at):
    equal(at.post("/v1/completions", QUICK, headers=BOB).status, 200, "the other caller's request")


def raw(at, head, body=b""):
    """Sends bytes on a new connection and returns the connection."""
    connection = socket.create_connection((at.host, at.port), timeout=30)
    connection.sendall(head.encode() + body)
    return connection


def slow_grammars():
    """A grammar of 13 KB whose alternatives all match at once takes about a second per token."""
    rules = " | ".join(f'[a-z]* "{chr(97 + i % 26)}{i}" [a-z ]*' for i in range(550))
    grammar = f'root ::= (item ","?)*\nitem ::= {rules}'
    at, held = keyed()
    with held, at:
        alone = statistics.median(seconds(lambda: quick(at)) for _ in range(9))

        def attack(i):
            # The answer is not used. The connection may break when the server ends.
            try:
                at.post("/v1/completions", {"prompt": "a", "max_tokens": 1000, "grammar": grammar, "seed": i}, headers=ADA)
            except OSError:
                pass

        for i in range(6):
            threading.Thread(target=attack, args=(i,), daemon=True).start()
        time.sleep(1)
        texts, health, end = [], [], time.monotonic() + LENGTH
        while time.monotonic() < end:
            texts.append(seconds(lambda: quick(at)))
            health.append(seconds(lambda: at.get("/health")))
        print(f"  grammars: 64 tokens alone {alone:.3f} s, beside 6 slow grammars median {statistics.median(texts):.3f} s, most {max(texts):.3f} s; /health at most {max(health):.3f} s")
        assert max(texts) < 2 + 3 * alone, f"the other caller waited {max(texts):.2f} s"
        assert statistics.median(texts) < 3 * alone + 0.2, f"median {statistics.median(texts):.3f} s, alone {alone:.3f} s"
        at.stop(server.signal.SIGKILL)


def bytes_left_behind():
    """Connections end after a byte that follows the body: their requests must end, too."""
    with Server("--slots", "4") as at:
        body = json.dumps({"prompt": "a", "max_tokens": -1, "ignore_eos": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        for connection in [raw(at, head, body + b"\n") for _ in range(4)]:
            time.sleep(0.1)
            connection.close()
        began = time.monotonic()
        while at.get("/slots").json[0]["free_slots"] < 4:
            assert time.monotonic() - began < 10, "slots of clients that have left are still taken"
            time.sleep(0.02)
        print(f"  bytes left behind: 4 slots free after {time.monotonic() - began:.1f} s")


def held_slots():
    """One caller fills all slots with endless streams, and reads only half of the streams."""
    at, held = keyed()
    with held, at:
        alone = statistics.median(seconds(lambda: quick(at)) for _ in range(9))
        body = json.dumps({"prompt": "a", "max_tokens": 4 * 10**9, "ignore_eos": True, "stream": True})
        head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: {ADA['authorization']}\r\ncontent-length: {len(body)}\r\n\r\n"
        streams = [raw(at, head, body.encode()) for _ in range(16)]

        def read(connection):
            try:
                while connection.recv(1 << 16):
                    pass
            except OSError:
                pass

        [threading.Thread(target=read, args=(stream,), daemon=True).start() for stream in streams[::2]]
        time.sleep(1)
        texts, end = [], time.monotonic() + LENGTH
        while time.monotonic() < end:
            texts.append(seconds(lambda: quick(at)))
        print(f"  held slots: 64 tokens alone {alone:.3f} s, beside 16 endless streams in 8 slots median {statistics.median(texts):.3f} s, most {max(texts):.3f} s")
        assert max(texts) < 2 + 3 * alone, f"the other caller waited {max(texts):.2f} s"
        [stream.close() for stream in streams]


def peak(at):
    """Returns the peak of resident memory, in MiB."""
    return int(pathlib.Path(f"/proc/{at.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


class Beside:
    """Measures the other caller and /health while an attack runs."""

    def __init__(self, at):
        self.at, self.texts, self.health, self.runs = at, [], [], True
        self.threads = [threading.Thread(target=self.measure, args=of, daemon=True) for of in ((self.texts, lambda: quick(at)), (self.health, lambda: at.get("/health")))]
        [thread.start() for thread in self.threads]

    def measure(self, times, f):
        while self.runs:
            times.append(seconds(f))
            time.sleep(0.02)

    def end(self):
        self.runs = False
        [thread.join() for thread in self.threads]
        return f"64 tokens of another key at most {max(self.texts):.2f} s, /health at most {max(self.health) * 1e3:.0f} ms, median {statistics.median(self.health) * 1e3:.0f} ms"


def unfinished_bodies():
    """One caller sends bodies of 15 MiB without their last byte."""
    at, held = keyed("--read-timeout", "60")
    with held, at:
        idle, n = at.rss(), 60 if FULL else 24
        size = 15 << 20
        head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: {ADA['authorization']}\r\ncontent-length: {size + 1}\r\n\r\n"
        beside, connections = Beside(at), []
        for _ in range(n):
            try:
                connections.append(raw(at, head, b" " * size))
            except OSError:
                pass  # The server refused the rest of the body.
        text = beside.end()
        print(f"  unfinished bodies: {n} of 15 MiB: {peak(at) - idle:.0f} MiB above idle; {text}")
        assert peak(at) < idle + 512, f"{peak(at):.0f} MiB, {idle:.0f} MiB before"
        assert max(beside.texts) < 2 and statistics.median(beside.health) < 0.1, text
        [connection.close() for connection in connections]


def large_lists():
    """One caller sends many lists of token ids at the same time, of 16 MiB each."""
    at, held = keyed()
    with held, at:
        idle, n = at.rss(), 64 if FULL else 12
        body = b'{"max_tokens": 4, "prompt": [' + b"100, " * ((16 << 20) // 5 - 100) + b"100]}"
        statuses = []

        def send():
            try:
                statuses.append(at.request("POST", "/v1/completions", body, ADA, timeout=900).status)
            except OSError as e:
                statuses.append(type(e).__name__)

        beside = Beside(at)
        senders = [threading.Thread(target=send, daemon=True) for _ in range(n)]
        [sender.start() for sender in senders]
        end = time.monotonic() + max(LENGTH, 10)
        while time.monotonic() < end and any(sender.is_alive() for sender in senders):
            time.sleep(0.1)
        text = beside.end()
        print(f"  lists: {n} of 16 MiB: {peak(at) - idle:.0f} MiB above idle; {text}; {statuses.count(429)} refused")
        assert peak(at) < idle + 1024, f"{peak(at):.0f} MiB, {idle:.0f} MiB before"
        assert max(beside.texts) < 2 and statistics.median(beside.health) < 0.1, text
        at.stop(server.signal.SIGKILL)


def idle_connections():
    """Idle connections without a key take all places for connections."""
    at, held = keyed()
    with held, at:
        connections = [socket.create_connection((at.host, at.port), timeout=30) for _ in range(1024)]
        took = [seconds(lambda: quick(at)) for _ in range(5)]
        print(f"  connections: 1024 without a key, another caller at most {max(took):.2f} s")
        assert max(took) < 2, f"the other caller waited {max(took):.1f} s"
        [connection.close() for connection in connections]


def large_tokenizations():
    """Tokenizes 4 MiB of characters, each of which becomes four tokens, one per byte."""
    with Server("--slots", "2") as at:
        idle = at.rss()
        answer = at.post("/tokenize", {"content": "\U0001f600" * (1 << 20), "with_pieces": True})
        equal((answer.status, len(answer.json["tokens"])), (200, 4 << 20), "/tokenize")
        print(f"  tokenize: idle {idle:.0f} MiB, peak {peak(at):.0f} MiB")
        assert peak(at) < idle + 200, f"{peak(at):.0f} MiB at the peak, {idle:.0f} MiB before"


def slow_uploads():
    """Three uploads announce a file and never send it: another upload must not wait for them."""
    with Server("--slots", "2") as at:
        equal(at.post("/v1/states", {"action": "save", "name": "good", "prompt": "a"}).status, 200, "save")
        state = at.get("/v1/states/good/content").body
        head = "PUT /v1/states/{}/content HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8388608\r\n\r\n"
        slow = [raw(at, head.format(f"slow{i}")) for i in range(3)]
        took = seconds(lambda: equal(at.request("PUT", "/v1/states/other/content", state).status, 201, "an upload"))
        print(f"  uploads: {took:.2f} s beside 3 slow ones")
        assert took < 2, f"the upload waited {took:.1f} s"
        [connection.close() for connection in slow]


CHECKS = [slow_grammars, held_slots, bytes_left_behind, large_tokenizations, slow_uploads, unfinished_bodies, large_lists, idle_connections]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--full", action="store_true", help="attacks at full size")
    parser.add_argument("check", nargs="*", help=", ".join(check.__name__ for check in CHECKS))
    asked = parser.parse_args()
    LENGTH, FULL = asked.seconds, asked.full
    server.run(*(check for check in CHECKS if not asked.check or check.__name__ in asked.check))
