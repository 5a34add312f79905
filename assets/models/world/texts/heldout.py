"""Prompts that the training never has, and the judge of their answers."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from .chats import new_chat, story_request
from .common import Check, Turn
from .documents import OPENINGS, with_system
from .questions import animal, calendar, colour, counting, group, opposite, record, single_question, sums
from .talk import small_talk, unknown
from .tools import parsed, tool_chat

# Twenty prompts have one question of each of these kinds, 2 stories, 5 chats, 1 chat with a system message and 2 with tools.
QUESTIONS = [
    ("sum", sums),
    ("opposite", opposite),
    ("colour", colour),
    ("day", calendar),
    ("count", counting),
    ("animal", animal),
    ("group", group),
    ("json", record),
    ("talk", small_talk),
    ("unknown", unknown),
]


def chat_messages(turns: list[Turn]) -> list[tuple[str, str]]:
    """Returns the messages of a chat up to the last question."""
    messages = []
    for turn in turns:
        messages += [("user", turn.user), ("assistant", turn.answer)]
    return messages[:-1]


def one_item(r: random.Random, i: int) -> dict[str, Any]:
    """Returns a held-out prompt of the kind i (0 to 19), with its check."""
    item = {"kind": "", "system": "", "tools": None, "messages": [], "thinking": r.choices(list(OPENINGS), [60, 15, 25])[0]}
    if i >= 18:
        chat = tool_chat(r, True)
        return item | {"kind": "tool", "tools": chat.tools, "messages": chat.messages, "check": chat.check, "expected": chat.answer}
    if i < 10:
        item["kind"], function = QUESTIONS[i]
        turns = [single_question(r, True, [(function, 1)])]
    elif i < 12:
        item |= {"kind": "story", "thinking": "off"}
        turns = [story_request(r, True)[0]]
    else:
        item["kind"] = "chat"
        turns = new_chat(r, True)
        if i == 17:
            item["kind"] = "system"
            question = single_question(r, True, [(opposite, 1), (calendar, 1), (sums, 1), (colour, 1)])
            item["system"], turns = with_system(r, [question])
    return item | {"messages": chat_messages(turns), "check": turns[-1].check, "expected": turns[-1].answer}


def heldout(n: int, seed: int = 300) -> list[dict[str, Any]]:
    """Returns n different new held-out prompts. The same seed returns the same prompts."""
    r = random.Random(seed)
    items: list[dict[str, Any]] = []
    seen = set()
    tries = 0
    while len(items) < n:
        tries += 1
        # Some kinds have few prompts that are held out: a chat takes their place.
        i = 12 if tries > 40 else len(items) % 20
        item = one_item(r, i)
        key = json.dumps([item["messages"], item["thinking"] if i < 10 else "", item["system"]])
        if key in seen or (item["kind"] == "story" and not item["check"][1]):
            continue
        seen.add(key)
        tries = 0
        items.append({"id": len(items), **item})
    return items


def stored() -> list[dict[str, Any]]:
    """Returns the prompts of heldout.jsonl."""
    lines = Path(__file__).parent.with_name("heldout.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def is_call(answer: str, wanted: dict[str, Any], call: dict[str, Any] | None) -> bool:
    """Returns true if the parsed call, or else the JSON in the answer, is the wanted call."""
    found = call or parsed((re.findall(r"\{.*\}", answer, re.S) or [""])[0])
    return isinstance(found, dict) and all(found.get(key) == wanted[key] for key in ("name", "arguments"))


def has_word(text: str, word: str) -> bool:
    """Returns true if a text in lower case has a whole word or number."""
    return re.search(rf"(?<!\w){re.escape(word.lower())}(?!\w)", text) is not None


def right(answer: str, check: Check, call: dict[str, Any] | None = None) -> bool:
    """Returns true if an answer (without its thought) passes a check. `call` is the tool call that the engine has parsed, if any."""
    kind, wanted = check[:2]
    answer = answer.strip()
    lower = answer.lower()
    words = re.findall(r"[\w']+", lower)
    if kind == "call":
        return is_call(answer, wanted, call)
    if kind == "json":  # the answer is this value
        return parsed(answer) == wanted
    if not answer or len(answer) > 900:
        return False
    if kind == "number":  # the last number is this one
        return re.findall(r"\d+", answer)[-1:] == [str(wanted)]
    if kind == "words":  # a short answer with all these words
        return len(answer) < 260 and all(has_word(lower, word) for word in wanted)
    if kind == "only":  # this word and nothing else
        return words == [wanted.lower()]
    if kind == "any":  # one of these words
        return any(word in lower for word in wanted)
    if kind == "first":  # begins with this word
        return [word for word in words if word not in ("a", "an", "the", "yes")][:1] == [wanted]
    if kind == "list":  # these words, in this order
        return words == [word.lower() for word in wanted]
    if kind == "members":  # so many different words of a list
        found = [word for word in words if word != "and"]
        return len(found) == wanted == len(set(found)) and all(word in check[2] for word in found)
    if kind == "story":  # at least four sentences, with these words
        is_long = answer.endswith(".") and answer.count(".") >= 4 and len(answer) > 150
        return is_long and all(word.lower() in lower for word in wanted)
    raise ValueError(f"unknown kind of check: {kind}")
