"""A soak: 64 clients of four keys for an hour, while SIGTERM and kill -9 end the server. Checks every text and every kept state.

usage: soak.py [--hours 1 | --seconds N] [--clients 64] [--out target/soak]

The folder of --out gets samples.jsonl (a line per second), soak.svg (their picture), summary.json, and if anything is wrong failures.jsonl and server.log.
In the middle half of the run no server ends. There the memory may grow by at most 5 % after the first ten minutes; runs of less than 20 minutes only print the growth.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import server  # noqa: E402
import soak_samples  # noqa: E402
from server import Server, folder  # noqa: E402
from soak_asks import KEYS, MAX_BODY, NAMES, Wrong  # noqa: E402
from soak_clients import Clients  # noqa: E402

# After the grace, `serve` waits 5 s for the last answers, and 5 s for clients that read them.
SLOTS, GRACE, LONGEST_END = 16, 3, 15
# Handles that may stay open without clients, above those of a new server.
SPARE_HANDLES = 6
MOST_GROWTH = 5


# Counters that must not be zero, even after a short soak.
WANTED = [
    "chat answers", "chat streams", "long streams", "grammar answers", "schema answers", "states saved", "states uploaded", "states continued", "responses", "sessions",
    "disconnects", "slow readers", "unread streams", "malformed bodies", "oversized bodies", "kept states checked",
]  # fmt: skip


class Soaked(Server):
    """A server whose log does not fill the memory of a long run: `lines` has the last 20,000 lines, `panics` the lines about panics."""

    def _read(self):
        self.lines, self.panics = collections.deque(maxlen=20_000), []
        for line in self.process.stderr:
            self.lines.append(line)
            if "panicked" in line:
                self.panics.append(line.strip())
            if self.url is None and (found := re.search(r"listening on (http://(\S+):(\d+))", line)):
                self.url, self.host, self.port = found.group(1), found.group(2), int(found.group(3))
                self.listens.set()
        self.listens.set()


def free_port():
    """Returns a free port that the system gives to no client, so that no client connects to itself while the server is down."""
    rng = random.Random()
    for _ in range(100):
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port := rng.randrange(15_000, 32_000)))
            return port
    raise AssertionError("expected a free port from 15000 to 32000, found none")


class Soak:
    def __init__(self, seconds, n_clients, out, held):
        self.seconds, self.n_clients, self.out, self.held = seconds, n_clients, out, pathlib.Path(held)
        self.began, self.restarts, self.idle = time.monotonic(), [], {}
        keys = self.held / "keys"
        keys.write_text("".join(f"{name} {key}\n" for name, key in zip(NAMES, KEYS)))
        keys.chmod(0o600)
        self.port, self.clients, self.served = free_port(), Clients(self.began), None
        self.sampler = soak_samples.Sampler(out / "samples.jsonl", self.port, KEYS[0], self.began)

    def start_server(self):
        self.served = self.clients.served = Soaked(
            "--port", self.port, "--deterministic", "--slots", SLOTS, "--queue", 40, "--grace", GRACE, "--max-body", MAX_BODY, "--cache", 32 << 20, "--read-timeout", 5,
            "--key-file", self.held / "keys", "--states", self.held / "states",
        )  # fmt: skip
        self.sampler.pid.value = self.served.process.pid

    def end_server(self, how):
        """Ends the server with the signal `how`, and checks the exit code, the time and the log."""
        began = time.monotonic()
        code, took = self.served.stop(how), time.monotonic() - began
        self.sampler.pid.value = 0
        self.restarts.append({"t": round(began - self.began, 3), "how": how.name, "seconds": round(took, 3)})
        expected = 0 if how == signal.SIGTERM else -how
        if code != expected or took > LONGEST_END:
            self.clients.fail("ends", Wrong(f"end after {how.name}", f"exit code {expected} within {LONGEST_END} s", f"{code} after {took:.1f} s"))
        for line in self.served.panics:
            self.clients.fail("log", Wrong("log", "no panic", line))

    def restart(self, how, checked=True):
        """Ends the server under load, starts the next one, and loads all kept states while the clients wait."""
        self.clients.epoch += 1
        self.end_server(how)
        time.sleep(0.2)
        self.start_server()
        self.clients.epoch += 1
        if checked:
            self.clients.halt()
            self.check_idle(f"the start {len(self.restarts)}")
            self.clients.go()

    def check_idle(self, after):
        """Without clients, all slots are free, handles are as before, and every acknowledged state loads."""
        end = time.monotonic() + 10
        while True:
            slots = self.served.get("/slots", headers={"authorization": f"Bearer {KEYS[0]}"}).json[0]
            n = soak_samples.look(self.served.process.pid)["handles"]
            free = slots["free_slots"] == SLOTS and not slots["running"] and not slots["waiting"]
            if free and n <= self.idle.get("handles", n) + SPARE_HANDLES:
                break
            if time.monotonic() > end:
                expected = f"{SLOTS} free slots and about {self.idle['handles']} handles within 10 s"
                self.clients.fail("idle", Wrong(f"slots and handles after {after}", expected, f"{n} handles, {slots}"))
                break
            time.sleep(0.1)
        self.clients.check_kept()
        return n

    def times(self):
        """Returns the times of the restarts, half of them in the first quarter of the run and half in the last."""
        # With these clients, the server takes up to 8 s to end after SIGTERM, so at least 20 s are between two restarts.
        half, quarter = max(1, min(6, int(self.seconds / 80))), self.seconds / 4
        first = [quarter * (i + 1) / half for i in range(half)]
        return [*first, *(self.seconds - quarter * (i + 1) / half for i in reversed(range(half)))]

    def run(self):
        self.start_server()
        self.idle = soak_samples.look(self.served.process.pid)
        self.clients.learn()
        times = self.times()
        begin = time.monotonic()
        self.clients.start(self.n_clients)
        for number, at in enumerate(times):
            self.wait(begin + at)
            self.restart((signal.SIGKILL, signal.SIGTERM)[number % 2])
            if number == len(times) // 2 - 1:
                stretch = [time.monotonic() - self.began]
            elif number == len(times) // 2:
                stretch.append(self.restarts[-1]["t"])
        self.wait(begin + self.seconds)
        self.clients.finish()
        self.idle["at the end"] = self.check_idle("the soak")
        self.clients.ask_all()
        # The server is killed once more, without load, and then ended in order.
        self.restart(signal.SIGKILL, checked=False)
        self.clients.check_kept()
        self.end_server(signal.SIGTERM)
        return stretch

    def wait(self, end):
        while time.monotonic() < end:
            time.sleep(min(0.2, max(0, end - time.monotonic())))
            if self.served.process.poll() is not None:
                raise Wrong("server", "a running process", f"exit code {self.served.process.returncode}")
            assert self.clients.n_failed < 1000, "the soak ends after 1000 failures"

    def report(self, stretch):
        """Prints a summary, writes the files of --out, and records a failure if the memory grew too much."""
        samples, clients = self.sampler.end(), self.clients
        health = sorted(s["health_ms"] for s in samples if s.get("health") == 200)
        assert health, f"samples: expected a server that answers /health, found none; {clients.failures[:1]}"
        n_left = sum(1 for path in (self.held / "states").rglob("*") if path.is_file() and path.suffix not in (".state", ".json"))
        grown = soak_samples.growth(samples, *stretch)
        length = f"{self.seconds / 60:g} minutes" if self.seconds >= 120 else f"{self.seconds:g} seconds"
        ends = {how: [r["seconds"] for r in self.restarts if r["how"] == how] for how in ("SIGTERM", "SIGKILL")}
        refused = {what: n for what, n in clients.counts.items() if what[0].isdigit()}
        done = {what: n for what, n in clients.counts.items() if what not in refused}
        for title, counts in ((f"{self.n_clients} clients of {len(KEYS)} keys for {length}", done), ("refused", refused)):
            print(f"  {title}: " + (", ".join(f"{n} {what}" for what, n in sorted(counts.items())) or "none"))
        print(f"  {len(ends['SIGTERM'])} ends by SIGTERM, at most {max(ends['SIGTERM'], default=0):.1f} s; {len(ends['SIGKILL'])} by kill -9")
        print(f"  unfinished files in the folder of states: {n_left}")
        if grown:
            print(f"  memory without a restart for {stretch[1] - stretch[0]:.0f} s: {grown[0]:.1f} MiB after the first part, {grown[1]:.1f} MiB at the end: {grown[2]:+.1f} %")
        most = {what: max(s.get(what, 0) for s in samples) for what in ("handles", "threads", "waiting")}
        print(f"  handles: {self.idle['handles']} at the start, at most {most['handles']}, {self.idle.get('at the end')} at the end")
        print(f"  at most {most['threads']} threads and {most['waiting']} waiting requests")
        rank = health[int(len(health) * 0.99)]
        print(f"  /health: median {statistics.median(health):.1f} ms, 99 % within {rank:.1f} ms, at most {health[-1]:.1f} ms, of {len(health)} samples")
        cpu = {who: statistics.fmean(s[f"cpu_{who}"] for s in samples if f"cpu_{who}" in s) for who in ("server", "clients")}
        print(f"  cores in use, of {os.cpu_count()}: server {cpu['server']:.2f}, clients {cpu['clients']:.2f}")
        if self.seconds >= 1200 and (not grown or grown[2] > MOST_GROWTH):
            clients.fail("memory", Wrong("growth of the memory", f"at most {MOST_GROWTH} %", grown and f"{grown[2]:.1f} %"))
        summary = {
            "title": f"wingbeat serve: {self.n_clients} clients of {len(KEYS)} keys for {length}", "seconds": self.seconds, "restarts": self.restarts, "stretch": stretch,
            "counts": dict(clients.counts), "memory_mib": grown, "health_ms": {"median": statistics.median(health), "p99": rank, "max": health[-1]}, "cores": cpu,
            "n_failures": clients.n_failed,
        }  # fmt: skip
        (self.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        (self.out / "soak.svg").write_text(soak_samples.picture(samples, summary))
        print(f"  picture: {os.path.relpath(self.out / 'soak.svg')}")


def soak():
    seconds, out = arguments.seconds or arguments.hours * 3600, pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    for name in ("failures.jsonl", "server.log"):
        (out / name).unlink(missing_ok=True)
    with folder() as held:
        run = Soak(seconds, arguments.clients, out, held)
        stretch = [seconds / 4, seconds * 3 / 4]
        try:
            stretch = run.run()
        except Exception as e:  # noqa: BLE001
            run.clients.fail("soak", e)
        finally:
            run.clients.open.clear()
            log = run.served.log() if run.served else ""
            if run.served and run.served.process.poll() is None:
                run.served.stop(signal.SIGKILL)
        run.report(stretch)
        failures = run.clients.failures
        if failures:
            (out / "failures.jsonl").write_text("".join(json.dumps(one) + "\n" for one in failures))
            (out / "server.log").write_text(log)
            for one in failures[:10]:
                print(f"  wrong at {one['t']:.1f} s, {one['kind']}: {one['what'][:200]}: expected {one['expected'][:300]}, found {one['found'][:300]}")
        missing = [what for what in WANTED if not run.clients.counts[what] and not (seconds < 60 and what == "long streams")]
        assert not failures, f"{run.clients.n_failed} wrong; {os.path.relpath(out / 'failures.jsonl')} has the first {len(failures)}"
        assert not missing, f"expected at least one of {missing}, found none"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hours", type=float, default=1)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--out", default=server.ROOT / "target/soak")
    arguments = parser.parse_args()
    server.run(soak)
