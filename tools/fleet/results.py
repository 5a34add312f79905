"""The numbers that a simulation counts, and the report of these numbers."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .simulate import Request, Simulation


class Results:
    """Counts what happens after `warm` seconds."""

    def __init__(self, warm: float) -> None:
        self.warm = warm
        self.n_answers = self.n_answer_tokens = self.n_prompt_tokens = self.n_cached_tokens = 0
        self.n_refused = self.n_lost = 0
        self.operations = {"head": 0, "get": 0, "put": 0}
        self.bytes = {"head": 0.0, "get": 0.0, "put": 0.0}
        self.first_tokens: list[float] = []
        self.last_answer = 0.0
        self.report: dict[str, Any] = {}

    def stored(self, now: float, operation: str, size: float) -> None:
        if now >= self.warm:
            self.operations[operation] += 1
            self.bytes[operation] += size

    def refused(self, now: float) -> None:
        self.n_refused += now >= self.warm

    def lost(self, now: float, requests: list[Request]) -> None:
        if now >= self.warm:
            self.n_lost += len(requests)

    def first_token(self, now: float, request: Request) -> None:
        if now >= self.warm:
            self.first_tokens.append(now - request.asked)

    def answered(self, now: float, request: Request) -> None:
        self.last_answer = now
        if now >= self.warm:
            self.n_answers += 1
            self.n_answer_tokens += request.answer
            self.n_prompt_tokens += request.prompt
            self.n_cached_tokens += request.cached

    def close(self, simulation: Simulation) -> Results:
        """Makes the report. Rates are per second."""
        fleet = simulation.fleet
        seconds = (self.last_answer if simulation.events == [] else simulation.seconds) - self.warm
        used = [server.slot_seconds / seconds / fleet.slots for server in simulation.servers]
        reading = sum(server.reading_seconds for server in simulation.servers)
        decoding = sum(server.decoding_seconds for server in simulation.servers)
        times = statistics.quantiles(self.first_tokens, n=100) if len(self.first_tokens) > 1 else [0.0] * 99
        store = sum(self.bytes.values()) / seconds / fleet.store_bandwidth
        self.report = {
            "seconds": seconds,
            "answers": self.n_answers,
            "answers_per_second": self.n_answers / seconds,
            "answer_tokens_per_second": self.n_answer_tokens / seconds,
            "read_tokens_per_second": (self.n_prompt_tokens - self.n_cached_tokens) / seconds,
            "cached_share": self.n_cached_tokens / max(1, self.n_prompt_tokens),
            "first_token_seconds": {"p50": times[49], "p95": times[94], "p99": times[98]},
            "refused_per_second": self.n_refused / seconds,
            "lost": self.n_lost,
            "slots_used": {"mean": statistics.fmean(used), "most": max(used)},
            "prefill_share": reading / max(1e-9, reading + decoding),
            "store": {
                "per_second": {name: n / seconds for name, n in self.operations.items()},
                "bytes_per_second": sum(self.bytes.values()) / seconds,
                "busy": store,
            },
        }
        self.report["limit"] = limit(self.report)
        return self


def limit(report: dict[str, Any]) -> str:
    """Returns what limits the servers: `store`, `prefill`, `decode`, `one server` (hot keys, or an uneven hash), or `nothing`."""
    used = report["slots_used"]
    if report["store"]["busy"] > 0.95:
        return "store"
    if used["mean"] > 0.9:
        # Beside texts that decode, prompts get at most half of the time.
        return "prefill" if report["prefill_share"] > 0.4 else "decode"
    return "one server" if used["most"] > 0.9 else "nothing"
