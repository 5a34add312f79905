"""The resources of the actors of a pool: a pool must leave room for the tasks that read its rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import ray

from ..errors import InputError

# The CPUs of an actor if `num_cpus` is not given: the first of these numbers with which the pool fits.
_SHARES = (1, 0.5, 0.25, 0.1, 0)
# A task of ray.data asks for a whole CPU.
_READER = {"CPU": 1.0}


def resources(actors: int, ray_args: Mapping[str, Any], autoscaling: bool) -> dict[str, Any]:
    """Returns the arguments of Ray for each actor. Adds `num_cpus` if it is missing.

    Raises InputError if the actors and one task that reads can never run at the same time on the machines of the cluster. Ray would wait for ever.
    """
    if autoscaling:
        return {"num_cpus": 1, **ray_args}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for share in [ray_args["num_cpus"]] if "num_cpus" in ray_args else _SHARES:
        args = {**ray_args, "num_cpus": share}
        if _fits(nodes, actors, _needed(args)):
            return args
    asked = {name: amount for name, amount in _needed(ray_args).items() if amount}
    each = " and ".join(f"{amount:g} {name}" for name, amount in asked.items())
    has = ", ".join(f"{sum(node.get(name, 0) for node in nodes):g} {name}" for name in {"CPU": 1, **asked})
    hint = "use fewer actors or smaller ray_args, or autoscaling=True if Ray adds machines to this cluster"
    pool = f"{actors} actors{f' with {each} each' if each else ''} and 1 CPU for reading"
    message = f"actors: expected a pool that fits the cluster, found {pool} on {len(nodes)} machine(s) with {has} ({hint})"
    raise InputError(message, field="actors", hint=hint)


def _needed(args: Mapping[str, Any]) -> dict[str, float]:
    """Returns the amount of each resource that an actor needs, by the resource names of Ray's nodes."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
    return {**{names[name]: float(args[name] or 0) for name in names if name in args}, **(args.get("resources") or {})}


def _fits(nodes: list[dict[str, float]], actors: int, needed: Mapping[str, float]) -> bool:
    """Returns whether the nodes have room for all actors and a task that reads."""
    rooms = [_room(node, needed, actors) for node in nodes]
    # The task runs on one of the nodes and takes its CPU from the actors there.
    return any(
        _room(node, _READER, 1) and sum(rooms) - rooms[at] + _room({**node, "CPU": node["CPU"] - 1}, needed, actors) >= actors
        for at, node in enumerate(nodes)
    )


def _room(node: Mapping[str, float], needed: Mapping[str, float], most: int) -> int:
    """Returns how many actors (or tasks) with the amounts `needed` fit a node, at most `most`."""
    # Numbers such as 0.1 are not exact in binary, so a small term prevents a result that is too low by 1.
    return min([most, *(math.floor(node.get(name, 0) / amount + 1e-6) for name, amount in needed.items() if amount)])
