"""The check of the simulation: the same conversations on real servers of this machine."""

import dataclasses
import http.client
import json
import random
import re
import subprocess
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

from . import measure
from .plan import Callers, Fleet, Profile, Turn, draw
from .ring import Ring
from .simulate import Simulation

# Words that are one token each in RWKV's vocabulary. `logit_bias` makes every answer repeat the first word, so that the tokens of a text are known.
WORDS = [" the", " water", " light", " earth", " king", " tree", " house", " people"]
# The largest difference between prediction and measurement that passes, as a share of the measurement.
TOLERANCE = 0.15

SCENARIOS: dict[str, dict[str, Any]] = {
    "hash, store": {"route": "hash", "store": True},
    "hash, store, one server killed": {"route": "hash", "store": True, "kills": [(30.0, 1)]},
    "random, store": {"route": "random", "store": True},
    "random, no store": {"route": "random", "store": False},
}


@dataclasses.dataclass
class Setting:
    program: str
    model: str
    flags: list[str]
    callers: Callers
    fleet: Fleet
    seconds: float
    warm: float


class Group:
    """Servers on this machine."""

    def __init__(self, setting: Setting, fleet: Fleet, folder: str) -> None:
        self.setting, self.fleet, self.folder = setting, fleet, folder
        self.ring = Ring(fleet.replicas)
        self.chance = random.Random(7)
        self.processes: list[subprocess.Popen[str]] = []
        # The last counts of `states` for processes that were killed.
        self.killed: dict[int, tuple[int, int]] = {}
        self.addresses: list[str | None] = [None] * fleet.replicas
        for number in range(fleet.replicas):
            self.processes.append(self._process())
        for number, process in enumerate(self.processes):
            self.addresses[number] = _address(process)

    def _process(self) -> subprocess.Popen[str]:
        setting = self.setting
        command = [setting.program, "serve", "--port", "0", "-m", setting.model, "--slots", str(self.fleet.slots), "--queue", str(self.fleet.queue)]
        command += [*setting.flags, "--state-quota", "0", "--states", self.folder]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def route(self, key: str) -> int:
        alive = [number for number, address in enumerate(self.addresses) if address]
        if self.fleet.route == "random":
            return self.chance.choice(alive)
        return next(number for number in self.ring.servers(self.ring.place(key)) if number in alive)

    def states(self) -> dict[int, tuple[int, int]]:
        """Returns the numbers of states that each process has read from the store and written to the store, by process id."""
        found = dict(self.killed)
        for process, address in zip(self.processes, self.addresses, strict=True):
            if address:
                text = _get(address, "/metrics").decode()
                reads, writes = (int(re.findall(rf"wingbeat_state_{name}_total (\d+)", text)[0]) for name in ("reads", "writes"))
                found[process.pid] = (reads, writes)
        return found

    def kill(self, number: int) -> None:
        self.killed.update(pid_counts for pid_counts in self.states().items() if pid_counts[0] == self.processes[number].pid)
        self.addresses[number] = None
        self.processes[number].kill()
        self.processes[number].wait()

    def start_again(self, number: int) -> None:
        self.processes[number] = self._process()
        self.addresses[number] = _address(self.processes[number])

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


class Run:
    """Conversations with a group, for some seconds. Counts what completes after the first `warm` seconds."""

    def __init__(self, group: Group, setting: Setting, turns: list[list[Turn]]) -> None:
        self.group, self.setting = group, setting
        self.lock = threading.Lock()
        self.counts = {"answers": 0, "answer": 0, "prompt": 0, "cached": 0, "lost": 0, "refused": 0, "reads": 0, "writes": 0}
        self.errors: list[str] = []
        first = group.addresses[0] or ""
        ids = [_post(first, "/tokenize", {"content": word})["tokens"] for word in WORDS]
        if any(len(found) != 1 for found in ids):
            raise SystemExit(f"check: expected a token for each of {WORDS}, found {ids}")
        self.first_word = str(ids[0][0])
        self.began = time.monotonic()
        threads = [threading.Thread(target=self._caller, args=(number, of_caller), daemon=True) for number, of_caller in enumerate(turns)]
        for thread in threads:
            thread.start()
        self._wait(setting.warm)
        before = group.states()
        for at, number in group.fleet.kills:
            self._wait(at)
            group.kill(number)
            self._wait(at + group.fleet.away)
            group.start_again(number)
        self._wait(setting.seconds)
        for process, (reads, writes) in group.states().items():
            earlier = before.get(process, (0, 0))
            self.counts["reads"] += reads - earlier[0]
            self.counts["writes"] += writes - earlier[1]
        if self.errors:
            raise SystemExit(f"check: {self.errors[0]}")

    def _wait(self, until: float) -> None:
        time.sleep(max(0.0, self.began + until - time.monotonic()))

    def _caller(self, number: int, turns: list[Turn]) -> None:
        try:
            chance, text = random.Random(number), ""
            for at, turn in enumerate(turns):
                time.sleep(turn.pause)
                if time.monotonic() - self.began > self.setting.seconds:
                    return
                conversation = at // self.setting.callers.turns
                if at % self.setting.callers.turns == 0:
                    text = f" {number} {conversation}"
                text += "".join(chance.choices(WORDS[1:], k=turn.message))
                text += self._answer(f"{number}/{conversation}", text, turn.answer)
        except Exception as e:  # The main thread reports the error.
            self.errors.append(f"{type(e).__name__}: {e}")

    def _answer(self, key: str, text: str, n_tokens: int) -> str:
        body = {"prompt": text, "max_tokens": n_tokens, "ignore_eos": True, "temperature": 0, "logit_bias": {self.first_word: 100}}
        if self.group.fleet.store:
            body["session_id"] = key.replace("/", "-")
        while True:
            address = self.group.addresses[self.group.route(key)]
            try:
                answer = _post(address, "/v1/completions", body)
            except (OSError, http.client.HTTPException):
                self._count(lost=1)
                time.sleep(0.01)
                continue
            except Refused:
                self._count(refused=1)
                time.sleep(1)
                continue
            usage = answer["usage"]
            if usage["completion_tokens"] != n_tokens:
                raise ValueError(f"expected {n_tokens} tokens, found {usage}")
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            self._count(answers=1, answer=n_tokens, prompt=usage["prompt_tokens"], cached=cached)
            return answer["choices"][0]["text"]

    def _count(self, **counts: int) -> None:
        passed = time.monotonic() - self.began
        if self.setting.warm <= passed <= self.setting.seconds:
            with self.lock:
                for name, n in counts.items():
                    self.counts[name] += n


def check(setting: Setting, profile: Profile, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Runs every scenario, and returns the measured and the predicted numbers."""
    chance = random.Random(3)
    n_turns = 400
    turns = [[draw(setting.callers, at % setting.callers.turns == 0, chance) for at in range(n_turns)] for _ in range(setting.callers.sessions)]
    rows = []
    for name, options in SCENARIOS.items():
        fleet = dataclasses.replace(setting.fleet, **options)
        tell(f"{name}: {setting.seconds:.0f} s on {fleet.replicas} servers")
        now = (setting.program, setting.model, setting.flags, profile, fleet.replicas)
        before = measure.drift(*now)
        with tempfile.TemporaryDirectory() as folder:
            group = Group(setting, fleet, folder)
            try:
                counts = Run(group, setting, turns).counts
            finally:
                group.end()
        drift = [(early + late) / 2 for early, late in zip(before, measure.drift(*now), strict=True)]
        found = Simulation(profile.scaled(*drift), setting.callers, fleet, setting.seconds, setting.warm, given=turns).run().report
        seconds = setting.seconds - setting.warm
        measured = {"answer_tokens_per_second": counts["answer"] / seconds, "cached_share": counts["cached"] / max(1, counts["prompt"])}
        operations = found["store"]["per_second"]
        traffic = {"reads": {"measured": counts["reads"] / seconds, "predicted": operations["get"]}, "writes": {"measured": counts["writes"] / seconds, "predicted": operations["put"]}}
        row: dict[str, Any] = {"scenario": name, "answers": counts["answers"], "lost": counts["lost"], "drift": drift, "store": traffic}
        for of, value in measured.items():
            row[of] = {"measured": value, "predicted": found[of], "ratio": found[of] / value}
        row["is_close"] = all(abs(row[of]["ratio"] - 1) <= TOLERANCE for of in measured)
        rows.append(row)
    return rows


class Refused(Exception):
    """The server asks the caller to try again."""


def _post(address: str | None, path: str, body: dict[str, Any]) -> Any:
    return json.loads(_request(address, "POST", path, json.dumps(body)))


def _get(address: str, path: str) -> bytes:
    return _request(address, "GET", path, None)


def _request(address: str | None, method: str, path: str, body: str | None) -> bytes:
    if address is None:
        raise OSError("the server is away")
    connection = http.client.HTTPConnection(address, timeout=300)
    try:
        connection.request(method, path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status in (429, 503):
        raise Refused
    if answer.status != 200:
        raise ValueError(f"{path}: expected status 200, found {answer.status}: {content[:300]!r}")
    return content


def _address(process: subprocess.Popen[str]) -> str:
    """Waits until a server is ready. Returns its host and port."""
    assert process.stderr
    seen = []
    for line in process.stderr:
        seen.append(line.strip())
        _, found, url = line.partition("listening on ")
        if found:
            break
    else:
        raise SystemExit(f"check: a server ended: {seen[-1] if seen else 'no message'}")
    threading.Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True).start()
    address = urllib.parse.urlparse(url.strip()).netloc
    while True:
        try:
            _get(address, "/health")
            return address
        except (OSError, Refused):
            time.sleep(0.05)
