#!/usr/bin/env python3
"""Writes benches/adapters.md, the table of adapters that people have reported, from the pages of `make gpu-check` in benches/results.

usage: tools/adapters.py [--check]      --check only says whether the table is up to date
"""
import json
import sys
from pathlib import Path

BENCHES = Path(__file__).resolve().parents[1] / "benches"
TABLE = BENCHES / "adapters.md"
MODEL = "rwkv7-0.1b"
HEAD = f"""# Adapters

GPUs and drivers on which people ran `make gpu-check`, and the speed of RWKV-7 0.1B there, in tokens per second. *Checked*: all kernels and logits were right.

To add a row: run `make gpu-check`, put the files that it writes into `benches/results`, run `tools/adapters.py`, and send both. Without git, post the page as an issue.

| Adapter | Backend | Driver | Checked | Prompt of 512 | Decode | Page |
|---|---|---|---|--:|--:|---|
"""


def speed(report: dict, field: str) -> str:
    """Returns the tokens per second of one text: of prefill if `field` is n_prompt, of decode if it is n_gen. "-" if not measured."""
    fits = [r for r in report["records"] if MODEL in r["model_filename"] and r[field] and r["n_batch"] == 1]
    return f"{fits[0]['avg_ts']:.1f}" if fits else "-"


def row(path: Path) -> str:
    report = json.loads(path.read_text())
    device, page = report["device"], f"results/{path.stem}.md"
    checked = "yes" if report["doctor_exit_code"] == 0 else "**no**"
    cells = [device["name"], device["backend"], device["driver"], checked, speed(report, "n_prompt"), speed(report, "n_gen"), f"[{path.name[:10]}]({page})"]
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def main() -> None:
    rows = [row(path) for path in sorted((BENCHES / "results").glob("*.json"), reverse=True)]
    text = HEAD + "".join(rows or ["| none yet | | | | | | |\n"])
    if "--check" not in sys.argv[1:]:
        TABLE.write_text(text)
    elif TABLE.read_text() != text:
        sys.exit(f"{TABLE} is not up to date: run tools/adapters.py")


main()
