#!/usr/bin/env python3
"""Asks a model the prompts of heldout.jsonl through `wingbeat batch` at temperature 0, and prints the share of right answers of each kind.

  python3 judge.py out/world.safetensors --vocab ../../vocab/small-world.txt
  python3 judge.py embedded

Exits with 1 below 90 %.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import tempfile
from typing import Any

from texts.documents import OPENINGS
from texts.heldout import right, stored
from texts.tools import parsed, tool_prompt
from vocab import Vocab

Item = dict[str, Any]


def has_short_tools(item: Item) -> bool:
    """Returns true if a prompt with tools has the short format: half of them have."""
    return item["id"] % 40 < 20


def messages_of(item: Item) -> list[dict[str, Any]]:
    """Returns the messages in OpenAI's form."""
    messages: list[dict[str, Any]] = []
    if item["system"]:
        messages.append({"role": "system", "content": item["system"]})
    for role, content in item["messages"]:
        if role == "call":
            function = {"name": content["name"], "arguments": json.dumps(content["arguments"])}
            messages.append({"role": "assistant", "tool_calls": [{"type": "function", "function": function}]})
        else:
            messages.append({"role": "tool" if role == "result" else role, "content": content})
    return messages


def request(item: Item) -> dict[str, Any]:
    """Returns the line of `wingbeat batch` for a prompt."""
    line = {"id": item["id"], "messages": messages_of(item), "max_tokens": 300, "temperature": 0}
    if item["tools"]:
        name = "g1-tools-short" if has_short_tools(item) else "g1-tools"
        return line | {"tools": item["tools"], "thinking": item["thinking"], "format": name}
    return line | {"format": {"off": "g1", "fast": "g1-fast", "on": "g1-think"}[item["thinking"]]}


def ask(items: list[Item], options: argparse.Namespace) -> dict[int, dict[str, Any]]:
    """Returns the program's answers by the ids of the prompts."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for item in items:
            print(json.dumps(request(item)), file=file)
        file.flush()
        command = [options.wingbeat, "batch", file.name, "--device", "cpu", "--threads", str(options.threads)]
        if options.model != "embedded":
            command += ["-m", options.model]
        if options.vocab:
            command += ["--vocab", options.vocab]
        done = subprocess.run(command, capture_output=True, text=True)
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    if len(answers) < len(items):
        print(done.stderr, file=sys.stderr)
    return answers


def is_right(item: Item, answer: dict[str, Any]) -> bool:
    """Returns true if the answer, or its tool call, passes the check and has an end."""
    call = None
    if calls := answer.get("tool_calls"):
        function = calls[0]["function"]
        call = {"name": function["name"], "arguments": parsed(function["arguments"])}
    return right(answer.get("text") or "", item["check"], call) and answer.get("finish") != "length"


def show(item: Item, answer: dict[str, Any], is_good: bool) -> None:
    """Prints an answer, and what was expected if it is wrong."""
    given = answer.get("text") or answer.get("error") or answer.get("tool_calls")
    parts = [item["kind"], item["thinking"], str(item["messages"][-1][1])[-110:], str(given), f"thought: {answer.get('thought')}"]
    if not is_good:
        parts.append(f"expected: {item['expected'] or item['check'][1]}")
    print("ok " if is_good else "BAD", " | ".join(parts))


def differing_prompts(items: list[Item], answers: dict[int, dict[str, Any]], vocab: Vocab) -> int:
    """Returns how many prompts with tools have another length in the engine than in texts/tools.py."""
    n = 0
    for item in items:
        if item["tools"]:
            style = "short" if has_short_tools(item) else "full"
            prompt = tool_prompt(style, OPENINGS[item["thinking"]], item["tools"], item["messages"])
            n += answers.get(item["id"], {}).get("usage", {}).get("prompt_tokens") != len(vocab.encode(prompt))
    return n


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a checkpoint, or `embedded`")
    parser.add_argument("--vocab", help="the vocabulary of the checkpoint")
    parser.add_argument("--wingbeat", default="wingbeat", help="the program")
    parser.add_argument("--n", type=int, help="only the first N prompts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print every answer, not only the wrong ones")
    options = parser.parse_args()
    items = stored()[: options.n]
    answers = ask(items, options)
    good: collections.Counter[str] = collections.Counter()
    for item in items:
        answer = answers.get(item["id"], {})
        is_good = is_right(item, answer)
        good[item["kind"]] += is_good
        if options.show or not is_good:
            show(item, answer, is_good)
    for kind, n in collections.Counter(item["kind"] for item in items).items():
        print(f"{kind:9} {good[kind]:3} of {n}")
    print(f"right: {good.total()} of {len(items)}, {good.total() / len(items):.1%}")
    if options.vocab and (n := differing_prompts(items, answers, Vocab(options.vocab))):
        print(f"prompts with tools that differ from the engine's: {n}")
    return int(good.total() < 0.9 * len(items))


if __name__ == "__main__":
    sys.exit(main())
