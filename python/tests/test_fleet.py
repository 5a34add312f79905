"""Tests the simulation of `tools/fleet.py`: the properties that every group of servers must have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from fleet.plan import Callers, Fleet, Profile, Turn  # noqa: E402
from fleet.ring import Ring  # noqa: E402
from fleet.simulate import Simulation  # noqa: E402

# A step takes 10 ms for 1 text and 17 ms for 8; 100 tokens of a prompt take 100 ms.
PROFILE = Profile("test", [(1, 0.01), (8, 0.017)], [(100, 0.1), (200, 0.2)], state_bytes=1e6, token_bytes=0, load=5, overhead=0.0)


def run(turns: list[list[Turn]], profile: Profile = PROFILE, **fleet: Any) -> dict[str, Any]:
    callers = Callers(sessions=len(turns), turns=4)
    return Simulation(profile, callers, Fleet(**{"replicas": 1, **fleet}), float("inf"), given=turns).run().report


def talks(n: int) -> list[list[Turn]]:
    return [[Turn(30 + (7 * k + j) % 40, 20 + (5 * k + j) % 30, 0.5 + (k + j) % 3) for j in range(8)] for k in range(n)]


def test_one_caller_takes_the_time_of_its_steps() -> None:
    # Prompts of 100 and 50 tokens, with answers of 10 and 20 tokens, whose states are stored: one step per token.
    found = run([[Turn(100, 10, 0.0), Turn(50, 20, 2.0)]], latency=0.0, bandwidth=1e12, store_bandwidth=1e12)
    assert found["seconds"] == pytest.approx(0.1 + 10 * 0.01 + 2.0 + 0.05 + 20 * 0.01)
    assert found["cached_share"] == pytest.approx(110 / (100 + 160))
    assert found["first_token_seconds"]["p50"] == pytest.approx(0.075, rel=0.4)


def test_texts_share_steps() -> None:
    # Eight texts of 100 tokens decode together, after their prompts of one token.
    found = run([[Turn(1, 100, 0.0)] for _ in range(8)], slots=8, store=False)
    assert found["seconds"] == pytest.approx(99 * 0.017, rel=0.03)


def test_a_state_travels_through_the_store() -> None:
    # Two servers, random routes: each turn reads its state if the other server has written it.
    stored = run(talks(6), replicas=2, route="random", latency=0.0)
    assert stored["store"]["per_second"]["put"] * stored["seconds"] == pytest.approx(48)
    assert 5 < stored["store"]["per_second"]["get"] * stored["seconds"] < 36
    alone = run(talks(6), replicas=2, route="random", store=False)
    assert alone["cached_share"] < stored["cached_share"] - 0.05
    # With little memory, the server of a key reads the state, too.
    small = run(talks(6), replicas=2, memory=1.5e6)
    assert small["store"]["per_second"]["get"] > 0
    assert run(talks(6), replicas=2)["store"]["per_second"]["get"] == 0


def test_a_slow_store_is_the_limit() -> None:
    found = run(talks(40), replicas=8, store_bandwidth=2e6)
    assert found["store"]["bytes_per_second"] <= 2e6 * 1.01 and found["limit"] == "store"


@pytest.mark.parametrize("route", ["hash", "bounded", "random", "two"])
def test_every_turn_is_answered_once(route: str) -> None:
    plan: dict[str, Any] = {"replicas": 4, "slots": 2, "queue": 1, "route": route}
    quiet = run(talks(24), **plan)
    killed = run(talks(24), **plan, kills=[(1.0, 0), (3.0, 1)], away=2.0)
    restarted = run(talks(24), **plan, restart=2.0, restart_share=0.25, grace=1.0)
    assert quiet["answers"] == killed["answers"] == restarted["answers"] == 24 * 8
    assert quiet["refused_per_second"] > 0 and quiet["lost"] == 0 and killed["lost"] > 0
    assert killed["seconds"] > quiet["seconds"]


def test_a_server_opens_when_it_has_loaded() -> None:
    # Server 0 fails, and a restart reaches the server before it is back. Server 1 fails twice.
    plan = Fleet(replicas=2, kills=[(5.0, 0), (5.0, 1), (40.0, 1)], away=30.0, restart=30.0, restart_share=0.5, grace=30.0)
    profile = Profile("test", PROFILE.decode, PROFILE.prefill, 1e6, 0, load=20, overhead=0.0)
    simulation = Simulation(profile, Callers(sessions=50, pause=1, answer=5), plan, 200, seed=2)
    opened = []
    mend = simulation._open
    simulation._open = lambda about: (mend(about), opened.append((simulation.now, about[0].number, about[0].accepts)))  # type: ignore[method-assign]
    simulation.run()
    accepted = [(round(time), number) for time, number, accepts in opened if accepts]
    # Server 0 drains from 30 s to 60 s and loads; server 1 is back 50 s after its second death, or after its own restart.
    assert accepted[0] == (80, 0) and (55, 1) not in accepted and len(simulation.servers) == simulation.n_accepting
    assert simulation.n_loaded == sum(server.load() for server in simulation.servers)


def test_hot_keys_need_a_bounded_route() -> None:
    def p95(route: str) -> float:
        callers = Callers(sessions=300, pause=20, answer=40, hot_share=0.4, hot_keys=1)
        simulation = Simulation(PROFILE, callers, Fleet(replicas=8, slots=8, route=route), 200, warm=50)
        return simulation.run().report["first_token_seconds"]["p95"]

    assert p95("hash") > 3 * p95("bounded")


def test_servers_of_a_host_share_its_cores() -> None:
    both = Profile("test", PROFILE.decode, PROFILE.prefill, 1e6, 0, 5, shared=[(1, 1.0), (2, 2.0)], overhead=0.0)
    turns = [[Turn(1, 100, 0.0)] for _ in range(200)]
    apart = run(turns, replicas=2, slots=8)["seconds"]
    # The server with more keys has the host to itself at the end.
    assert 1.5 * apart < run(turns, both, replicas=2, slots=8, per_host=2)["seconds"] < 2.01 * apart


def test_a_server_that_goes_away_moves_only_its_own_keys() -> None:
    ring = Ring(8)
    owners = {key: [number for number in ring.servers(ring.place(key))] for key in map(str, range(400))}
    shares = [sum(1 for order in owners.values() if order[0] == number) for number in range(8)]
    assert min(shares) > 20
    for order in owners.values():
        assert sorted(set(order)) == list(range(8))
    moved = {next(n for n in order if n != 3) for order in owners.values() if order[0] == 3}
    assert len(moved) > 3
