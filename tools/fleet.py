#!/usr/bin/env python3
"""Simulates a group of servers with many conversations, and checks the simulation against real servers. docs/scale.md shows what it says.

  fleet.py simulate --sessions 100000 --replicas 120 --failures 86400
  fleet.py simulate --profile cpu.json --route random --no-store --json
  fleet.py profile -m model.safetensors --flags "--device cpu --quant i8" -o cpu.json
  fleet.py profile --predict 4090 -m rwkv7-1.5b -o 4090.json
  fleet.py check -m model.safetensors
  fleet.py figures -o docs/images

Needs Python 3.10; `figures` needs matplotlib. `profile` and `check` need the program: WINGBEAT_BIN, or target/release/wingbeat.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shlex
import sys
import time
from typing import Any

from fleet.plan import Callers, Fleet, Profile
from fleet.simulate import ROUTES, Simulation

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("WINGBEAT_BIN", str(ROOT / "target/release/wingbeat"))
PROFILES = pathlib.Path(__file__).parent / "fleet/profiles"


def simulate(options: argparse.Namespace) -> int:
    if options.warm >= options.seconds:
        sys.exit(f"fleet.py: expected --warm below --seconds, found {options.warm:g} and {options.seconds:g}")
    profile = Profile.read(options.profile)
    began = time.perf_counter()
    simulation = Simulation(profile, _of(Callers, options), _of(Fleet, options), options.seconds, options.warm, options.seed)
    report = {"profile": profile.name, **simulation.run().report}
    report["cost_per_million_tokens"] = options.price * simulation.fleet.replicas / 3600 / max(1e-9, report["answer_tokens_per_second"]) * 1e6
    if options.json:
        print(json.dumps(report))
        return 0
    store, used, first = report["store"], report["slots_used"], report["first_token_seconds"]
    rows = [
        ("answers", f"{report['answer_tokens_per_second']:.0f} tokens/s in {report['answers_per_second']:.1f} answers/s"),
        ("prompts", f"{report['cached_share']:.1%} of the tokens from states, {report['read_tokens_per_second']:.0f} tokens/s read"),
        ("first token", f"{first['p50']:.2f} s median, {first['p95']:.2f} s p95, {first['p99']:.2f} s p99"),
        ("servers", f"{used['mean']:.0%} of the slots in use, {used['most']:.0%} on the busiest; {report['prefill_share']:.0%} of the time with prompts"),
        ("store", f"{store['bytes_per_second'] / 1e9:.2f} GB/s ({store['busy']:.0%}), " + ", ".join(f"{n:.0f} {name}/s" for name, n in store["per_second"].items())),
        ("trouble", f"{report['lost']} requests begun again, {report['refused_per_second']:.1f} refusals/s"),
        ("limit", report["limit"]),
        ("cost", f"{report['cost_per_million_tokens']:.3f} per million answer tokens, if a server costs {options.price:g} per hour"),
    ]
    print(f"{profile.name}: {options.sessions} conversations on {options.replicas} servers, {report['seconds']:.0f} s (simulated in {time.perf_counter() - began:.0f} s)")
    for name, text in rows:
        print(f"{name:12} {text}")
    return 0


def profile(options: argparse.Namespace) -> int:
    from fleet import measure

    if options.predict:
        found = measure.estimated(PROGRAM, options.model, options.predict, options.texts, options.load, options.token_bytes)
    else:
        found = measure.measured(PROGRAM, options.model, shlex.split(options.flags), options.texts, options.load)
    found.write(options.output)
    return 0


def check(options: argparse.Namespace) -> int:
    from fleet import check, measure

    tell = lambda text: print(f"check: {text}", file=sys.stderr)  # noqa: E731
    flags = shlex.split(options.flags)
    n = options.replicas
    fleet = Fleet(replicas=n, slots=8, route="hash", latency=0.003, bandwidth=500e6, store_bandwidth=1e9, away=5.0, per_host=n)
    tell("measuring step times with 1 and more processes")
    found = measure.measured(PROGRAM, options.model, flags, [1, 2, 4, 8], 2.0, tuple(sorted({2, n} - {1})))
    tell(json.dumps(dataclasses.asdict(found)))
    callers = Callers(sessions=options.sessions, first=120, message=24, answer=40, pause=3, turns=6)
    rows = check.check(check.Setting(PROGRAM, options.model, flags, callers, fleet, options.seconds, options.warm), found, tell)
    if options.json:
        print(json.dumps({"profile": dataclasses.asdict(found), "scenarios": rows}))
    else:
        print(f"| {n} servers, {options.sessions} conversations | answers | decode and prefill drift | tokens/s measured | predicted | ratio | cached measured | predicted | ratio | states read/s measured | predicted |\n|---|---|---|---|---|---|---|---|---|---|---|")
        for row in rows:
            cells = [f"{row[of][kind]:.{digits}f}" for of, n in (("answer_tokens_per_second", 1), ("cached_share", 3)) for kind, digits in (("measured", n), ("predicted", n), ("ratio", 2))]
            cells += [f"{row['store']['reads'][kind]:.1f}" for kind in ("measured", "predicted")]
            print("| " + " | ".join([row["scenario"], str(row["answers"]), " and ".join(f"{factor:.2f}" for factor in row["drift"]), *cells]) + " |")
    far = [row["scenario"] for row in rows if not row["is_close"]]
    if far:
        tell(f"more than {check.TOLERANCE:.0%} from the measurement: {', '.join(far)}")
    return 1 if far else 0


def figures(options: argparse.Namespace) -> int:
    from fleet import figures

    figures.write(pathlib.Path(options.output), PROFILES, options.only)
    return 0


def _of(kind: type, options: argparse.Namespace) -> Any:
    return kind(**{field.name: getattr(options, field.name) for field in dataclasses.fields(kind) if field.metadata})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("simulate", help="simulate a group of servers", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    verb.set_defaults(run=simulate)
    verb.add_argument("--profile", default=str(PROFILES / "rwkv7-1.5b-4090.json"), help="a file that `profile` has written")
    verb.add_argument("--seconds", type=float, default=600, help="simulated time")
    verb.add_argument("--warm", type=float, default=120, help="time after which counting begins")
    verb.add_argument("--seed", type=int, default=1, help="seed of all chances")
    verb.add_argument("--price", type=float, default=0.5, help="price of a server per hour")
    verb.add_argument("--json", action="store_true", help="print one JSON object")
    for kind in (Callers, Fleet):
        group = verb.add_argument_group(kind.__name__.lower(), kind.__doc__)
        for field in dataclasses.fields(kind):
            if field.metadata:
                given: dict[str, Any] = {"action": argparse.BooleanOptionalAction} if field.type is bool else {"type": field.type}
                if field.name == "route":
                    given["choices"] = ROUTES
                group.add_argument(f"--{field.name.replace('_', '-')}", default=field.default, help=field.metadata["help"], **given)

    verb = verbs.add_parser("profile", help="measure or estimate the step times of a model")
    verb.set_defaults(run=profile)
    verb.add_argument("-m", "--model", required=True, help="a checkpoint; with --predict, the name of a published model")
    verb.add_argument("--flags", default="--device cpu", help="flags of `wingbeat bench`")
    verb.add_argument("--texts", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8, 16], help="numbers of texts that decode")
    verb.add_argument("--predict", metavar="GPU", help="take the estimate of `wingbeat bench --predict`")
    verb.add_argument("--token-bytes", type=float, default=0, help="with --predict: bytes per token of a model with attention")
    verb.add_argument("--load", type=float, default=20, help="seconds until a new server answers")
    verb.add_argument("-o", "--output", required=True)

    verb = verbs.add_parser("check", help="compare the simulation with real servers of this machine")
    verb.set_defaults(run=check)
    verb.add_argument("-m", "--model", required=True, help="a checkpoint with RWKV's vocabulary")
    verb.add_argument("--flags", default="--device cpu --threads 1 --quant i8", help="flags of `wingbeat bench` and `wingbeat serve`")
    verb.add_argument("--replicas", type=int, default=4)
    verb.add_argument("--sessions", type=int, default=32)
    verb.add_argument("--seconds", type=float, default=90)
    verb.add_argument("--warm", type=float, default=20)
    verb.add_argument("--json", action="store_true")

    verb = verbs.add_parser("figures", help="draw the figures of docs/scale.md")
    verb.set_defaults(run=figures)
    verb.add_argument("-o", "--output", default=str(ROOT / "docs/images"))
    verb.add_argument("--only", default="", help="a part of a figure's name")

    options = parser.parse_args()
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
