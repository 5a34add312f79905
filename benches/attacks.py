#!/usr/bin/env python3
"""Measures what attacks cost other callers of a server: the slowest /health, and the slowest 64 tokens of another key.

    python3 benches/attacks.py target/release/wingbeat [OTHER_PROGRAM …] [--seconds 10]

Each program serves the embedded model on the CPU, with two keys and default settings, and at most 1024 open files (`ulimit -n 1024`). The attacker
runs on the same machine, so its own work counts. Prints a table in Markdown.
"""
import argparse
import http.client
import json
import os
import resource
import socket
import subprocess
import tempfile
import threading
import time

ATTACKS = {
    "none": "nothing",
    "openapi": "100 connections without a key ask for /openapi.json, 200 times in one write, and read slowly",
    "page": "the same for the page at /",
    "idle": "1100 connections without a key that send nothing",
    "texts": "300 requests of one key for 2000 tokens each",
    "bodies": "16 requests of one key with bodies of 16 MiB",
}
HEALTH = "slowest /health, s"
TOKENS = "slowest 64 tokens, s"


def request(port, method, path, body=None, key=None, timeout=60):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def probe(until, call):
    """Repeats `call` until the time `until`. Returns the seconds of the slowest call, at most 60. If a call fails, returns the time of all calls."""
    slowest = 0.0
    begin = time.monotonic()
    while time.monotonic() < until:
        started = time.monotonic()
        try:
            status, _ = call()
            took = time.monotonic() - started if status == 200 else float("inf")
        except OSError:
            took = float("inf")
        slowest = max(slowest, took)
        time.sleep(0.02)
    return min(slowest, 60.0) if slowest != float("inf") else time.monotonic() - begin


def pipelining(port, path, until):
    line = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n".encode() * 200

    def one():
        while time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=5) as stream:
                    stream.settimeout(1)
                    stream.sendall(line)
                    while time.monotonic() < until and stream.recv(1 << 16):
                        pass
            except OSError:
                time.sleep(0.05)

    return [threading.Thread(target=one, daemon=True) for _ in range(100)]


def attackers(name, port, until):
    if name == "openapi":
        return pipelining(port, "/openapi.json", until)
    if name == "page":
        return pipelining(port, "/", until)
    if name == "idle":

        def hold():
            held = []
            while time.monotonic() < until:
                try:
                    if len(held) < 1100:
                        held.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                        continue
                except OSError:
                    pass
                time.sleep(0.05)

        return [threading.Thread(target=hold, daemon=True)]
    if name == "texts":

        def texts():
            try:
                request(port, "POST", "/v1/completions", {"prompt": "a", "max_tokens": 2000, "ignore_eos": True}, "one-key-of-the-attacker", 600)
            except OSError:
                pass

        return [threading.Thread(target=texts, daemon=True) for _ in range(300)]
    if name == "bodies":
        body = {"prompt": "a " * (8 << 20), "max_tokens": 1}

        def bodies():
            while time.monotonic() < until:
                try:
                    request(port, "POST", "/v1/completions", body, "one-key-of-the-attacker", 60)
                except OSError:
                    pass

        return [threading.Thread(target=bodies, daemon=True) for _ in range(16)]
    return []


def measure(program, name, seconds):
    with tempfile.TemporaryDirectory() as folder:
        keys = os.path.join(folder, "keys")
        with open(keys, "w") as file:
            file.write("attacker one-key-of-the-attacker\nother another-key-of-a-caller\n")
        os.chmod(keys, 0o600)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]

        def limits():
            resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

        environment = {**os.environ, "WINGBEAT_DEVICE": "cpu"}
        command = [program, "serve", "--port", str(port), "--key-file", keys, "--grace", "0"]
        server = subprocess.Popen(command, preexec_fn=limits, env=environment, stderr=subprocess.DEVNULL)
        try:
            while True:
                try:
                    if request(port, "GET", "/health", timeout=1)[0] == 200:
                        break
                except OSError:
                    pass
                time.sleep(0.1)
            until = time.monotonic() + seconds
            for thread in attackers(name, port, until):
                thread.start()
            time.sleep(0.5)
            found = {}
            text = {"prompt": "In the beginning", "max_tokens": 64, "ignore_eos": True}
            calls = {
                HEALTH: lambda: request(port, "GET", "/health"),
                TOKENS: lambda: request(port, "POST", "/v1/completions", text, "another-key-of-a-caller"),
            }
            probes = [threading.Thread(target=lambda what=what: found.update({what: probe(until, calls[what])})) for what in calls]
            for thread in probes:
                thread.start()
            for thread in probes:
                thread.join()
            return found
        finally:
            server.kill()
            server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="+")
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print("| Attack | " + " | ".join(f"{what}, program {i + 1}" for what in (HEALTH, TOKENS) for i in range(len(args.program))) + " |")
    print("|---|" + "---|" * (2 * len(args.program)))
    for name, what in ATTACKS.items():
        found = [measure(program, name, args.seconds) for program in args.program]
        cells = [f"{of[row]:.3f}" for row in (HEALTH, TOKENS) for of in found]
        print(f"| {what} | " + " | ".join(cells) + " |", flush=True)


main()
