"""The figures of docs/scale.md. Each point of a line is a simulation."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

from .plan import Callers, Fleet, Profile  # noqa: E402
from .simulate import Simulation  # noqa: E402

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "wingbeat",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "figure.figsize": (7.2, 3.6),
    "figure.constrained_layout.use": True,
}
# Conversations per server, in figures with many servers.
PER_SERVER = 500


@dataclasses.dataclass
class Case:
    profile: pathlib.Path
    callers: dict[str, Any]
    fleet: dict[str, Any]
    seconds: float = 300
    warm: float = 120


@dataclasses.dataclass
class Figure:
    """A figure: its labels, the number of a report that it shows, and the cases of each line by x."""

    file: str
    title: str
    x: str
    y: str
    shown: Callable[[dict[str, Any]], float]
    lines: dict[str, dict[float, Case]]
    logarithmic: str = ""
    # A line across the figure: its height and its name.
    mark: tuple[float, str] | None = None


def write(folder: pathlib.Path, profiles: pathlib.Path, only: str) -> None:
    """Simulates all cases and writes the figures whose names contain `only`."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as pool, plt.rc_context(STYLE):
        for figure in _figures(profiles):
            if only not in figure.file:
                continue
            cases = [case for line in figure.lines.values() for case in line.values()]
            found = iter(list(pool.map(_report, cases)))
            image, axes = plt.subplots()
            for (name, line), marker in zip(figure.lines.items(), "osD^v", strict=False):
                axes.plot(list(line), [figure.shown(next(found)) for _ in line], marker=marker, markersize=4, label=name)
            if figure.mark:
                axes.axhline(figure.mark[0], color="gray", linestyle="--", label=figure.mark[1])
            for axis in figure.logarithmic:
                getattr(axes, f"set_{axis}scale")("log")
            axes.set(title=figure.title, xlabel=figure.x, ylabel=figure.y)
            axes.legend(frameon=False)
            image.savefig(folder / figure.file, metadata={"Date": None})
            plt.close(image)


def _report(case: Case) -> dict[str, Any]:
    return Simulation(Profile.read(case.profile), Callers(**case.callers), Fleet(**case.fleet), case.seconds, case.warm).run().report


def _figures(profiles: pathlib.Path) -> Sequence[Figure]:
    rwkv, large, glm = profiles / "rwkv7-1.5b-4090.json", profiles / "rwkv7-7.2b-h100.json", profiles / "glm4-9b-h100.json"
    p95 = lambda report: report["first_token_seconds"]["p95"]  # noqa: E731
    routes = {
        "hash, store": {"route": "hash"},
        "random, store": {"route": "random"},
        "hash, no store": {"route": "hash", "store": False},
        "random, no store": {"route": "random", "store": False},
    }
    sessions = (2000, 4000, 6000, 8000, 10000, 12000, 14000)
    all_sessions = (10_000, 30_000, 100_000, 300_000, 1_000_000)
    contexts = (250, 500, 1000, 2000, 4000, 8000, 16000)
    hot = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3)
    restarts = (0.05, 0.1, 0.2, 0.3, 0.5)

    def grown(n: int, profile: pathlib.Path, **fleet: Any) -> Case:
        return Case(profile, {"sessions": n}, {"replicas": n // PER_SERVER, **fleet}, seconds=160, warm=80)

    return [
        Figure(
            "scale-stickiness.svg", "16 servers: what routes and the store are worth", "conversations", "first token, p95 (s)", p95,
            {name: {n: Case(rwkv, {"sessions": n}, {"replicas": 16, **options}) for n in sessions} for name, options in routes.items()}, logarithmic="y",
        ),
        Figure(
            "scale-store.svg", "The store's traffic", "conversations", "GB/s", lambda report: report["store"]["bytes_per_second"] / 1e9,
            {
                "RWKV-7 1.5B, hash": {n: grown(n, rwkv, store_bandwidth=1e15) for n in all_sessions},
                "RWKV-7 1.5B, hash, 8 GB of states per server": {n: grown(n, rwkv, store_bandwidth=1e15, memory=8e9) for n in all_sessions},
                "RWKV-7 7.2B, hash": {n: grown(n, large, store_bandwidth=1e15) for n in all_sessions},
                "GLM-4 9B, hash": {n: grown(n, glm, store_bandwidth=1e15) for n in all_sessions},
            },
            logarithmic="xy", mark=(20.0, "a store of 20 GB/s"),
        ),
        Figure(
            "scale-prefill.svg", "Share of the servers' time with prompts", "tokens of the first message", "share", lambda report: report["prefill_share"],
            {
                name: {n: Case(rwkv, {"sessions": 2000, "first": n}, {"replicas": 16, **options}) for n in contexts}
                for name, options in routes.items() if name in ("hash, store", "hash, no store", "random, no store")
            },
            logarithmic="x",
        ),
        Figure(
            "scale-hot.svg", "16 servers, 8000 conversations, 4 hot keys", "share of callers with a hot key", "first token, p95 (s)", p95,
            {route: {x: Case(rwkv, {"sessions": 8000, "hot_share": x, "hot_keys": 4}, {"replicas": 16, "route": route}) for x in hot} for route in ("hash", "bounded", "random")},
            logarithmic="y",
        ),
        Figure(
            "scale-restart.svg", "A rolling restart of 20 servers, 8000 conversations", "share of the servers that restart at once", "first token, p95 (s)", p95,
            {
                name: {x: Case(rwkv, {"sessions": 8000}, {"replicas": 20, "restart": 120.0, "restart_share": x, **options}, seconds=120 + 50 * math.ceil(1 / x)) for x in restarts}
                for name, options in routes.items() if name in ("hash, store", "hash, no store")
            },
            logarithmic="y",
        ),
    ]
