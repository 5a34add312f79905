"""The inputs of a simulation: the step times and sizes of a model, the callers, the servers and their store. Times are seconds, sizes are bytes."""

import bisect
import dataclasses
import json
import math
import pathlib
import random
from typing import Any


def _field(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass
class Profile:
    """A model on a device."""

    name: str
    # The time of a step that decodes one token of each of N texts, and the time to read a prompt of N tokens: lists of [N, seconds].
    decode: list[tuple[int, float]]
    prefill: list[tuple[int, float]]
    # The size of a state: a part that is always there, and a part per token (the keys and values of attention).
    state_bytes: float
    token_bytes: float
    # The time until a new server answers.
    load: float
    # How much slower a server is while N servers of its host compute: a list of [N, factor].
    shared: list[tuple[int, float]] = dataclasses.field(default_factory=lambda: [(1, 1.0)])
    # The time that a request takes besides its steps and the store.
    overhead: float = 0.003

    @staticmethod
    def read(path: str | pathlib.Path) -> "Profile":
        fields = json.loads(pathlib.Path(path).read_text())
        for name in ("decode", "prefill", "shared"):
            if name in fields:
                fields[name] = sorted((int(n), float(value)) for n, value in fields[name])
        return Profile(**fields)

    def write(self, path: str | pathlib.Path) -> None:
        pathlib.Path(path).write_text(json.dumps(dataclasses.asdict(self)) + "\n")

    def scaled(self, decode: float, prefill: float) -> "Profile":
        """Returns the profile of a device on which decode steps take `decode` times as long, and prompts `prefill` times as long."""
        times = {"decode": [(n, time * decode) for n, time in self.decode], "prefill": [(n, time * prefill) for n, time in self.prefill]}
        return dataclasses.replace(self, **times)

    def step_time(self, n_texts: int) -> float:
        """Returns the time of a step that decodes one token of each of `n_texts` texts."""
        return _between(self.decode, n_texts)

    def read_time(self, n_tokens: int, n_decoding: int) -> float:
        """Returns the time that a prompt adds to the steps of a server. If texts decode at the same time, both share the reads of the weights."""
        alone = _between([(0, 0.0), *self.prefill], n_tokens)
        if n_decoding == 0:
            return alone
        (n, first), (m, last) = self.prefill[-2], self.prefill[-1]
        return min(alone, n_tokens * (last - first) / (m - n))

    def slower(self, n_busy: int) -> float:
        """Returns how much slower a server is while `n_busy` servers of its host compute."""
        return _between(self.shared, n_busy)

    def size(self, n_tokens: int) -> float:
        """Returns the size of a state."""
        return self.state_bytes + n_tokens * self.token_bytes


def _between(points: list[tuple[int, float]], x: float) -> float:
    """Interpolates linearly between the points. Outside the points, continues the nearest line."""
    if len(points) == 1:
        return points[0][1]
    at = min(max(bisect.bisect_left(points, (x, -math.inf)), 1), len(points) - 1)
    (a, low), (b, high) = points[at - 1], points[at]
    return low + (high - low) * (x - a) / (b - a)


@dataclasses.dataclass
class Callers:
    """Callers with conversations: a message, an answer, a pause, the next message."""

    sessions: int = _field(10_000, "conversations at the same time")
    first: float = _field(400, "mean tokens of a first message; all numbers of tokens and all pauses are drawn from exponential distributions")
    message: float = _field(60, "mean tokens of a later message")
    answer: float = _field(200, "mean tokens of an answer")
    pause: float = _field(60, "mean pause between an answer and the next message")
    turns: int = _field(10, "messages of a conversation; then another one begins")
    hot_share: float = _field(0.0, "share of callers that have their routing keys in common, such as the names of tenants")
    hot_keys: int = _field(10, "number of such keys")


@dataclasses.dataclass
class Fleet:
    """The servers and their store."""

    replicas: int = _field(32, "number of servers")
    slots: int = _field(16, "texts that a server runs at once")
    queue: int = _field(256, "requests that wait for slots; more are refused, and their callers try again after a second")
    route: str = _field("hash", "server of a request: hash (consistent hashing of the key), bounded (the same, but passes over a server with 1.25 times the mean load), random, or two (the less busy one of two)")
    memory: float = _field(float(1 << 30), "memory of a server for states")
    store: bool = _field(True, "whether the servers share a store of states")
    latency: float = _field(0.02, "latency of an operation of the store")
    bandwidth: float = _field(250e6, "bytes per second between a server and the store")
    store_bandwidth: float = _field(20e9, "bytes per second of the store")
    failures: float = _field(0.0, "mean time between two failures of a server; 0: none")
    away: float = _field(30.0, "time until a failed server starts to load")
    restart: float = _field(0.0, "time at which a rolling restart begins; 0: none")
    restart_share: float = _field(0.02, "share of the servers that restart at once")
    grace: float = _field(30.0, "time that a server completes its texts before it restarts")
    per_host: int = _field(1, "servers of one host, which share its cores")
    # The servers that are killed at a time: (seconds, number of the server).
    kills: list[tuple[float, int]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Turn:
    """A turn of a conversation: tokens of the message, tokens of the answer, and the pause before."""

    message: int
    answer: int
    pause: float


def draw(callers: Callers, is_first: bool, chance: random.Random) -> Turn:
    """Draws the numbers of tokens and the pause of a turn at random."""
    message = chance.expovariate(1 / (callers.first if is_first else callers.message))
    return Turn(max(1, round(message)), max(1, round(chance.expovariate(1 / callers.answer))), chance.expovariate(1 / callers.pause))
