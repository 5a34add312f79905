"""Documents of the training: chats as the engine writes them, and stories.

A document is a list of segments (text, learned). The training learns the segments with `learned`: answers and stories."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from .chats import new_chat, story_request
from .common import Turn, cap
from .questions import single_question
from .stories import new_story
from .tools import tool_chat, tool_prompt
from .words import HE_PETS, SHE_PETS

Document = list[tuple[str, bool]]

# The beginning of an answer in a prompt: without a thought, with an empty one, with a thought. The engine leaves out the last `>`.
OPENINGS = {"off": "", "fast": "<think></think", "on": "<think"}
SYSTEMS = [
    "You are a friendly storyteller.", "Be kind.", "You are a helpful assistant.", "Answer in plain words.", "You talk with a child.",
    "Be brief.",
]  # fmt: skip
INIT_PROMPT = "\nUser: hello\n\nAssistant: Hello! How can I help you?\n\n"


def with_system(r: random.Random, turns: list[Turn]) -> tuple[str, list[Turn]]:
    """Returns a system message, and turns that follow it."""
    kind = r.random()
    if kind < 0.5:
        return r.choice(SYSTEMS), turns
    if kind < 0.75:
        name = r.choice(SHE_PETS + HE_PETS)
        system = r.choice([f"Your name is {name}.", f"You are {name}.", f"Your name is {name}. Be kind."])
        question = r.choice(["What is your name?", "Who are you?", "What are you called?"])
        return system, [*turns, Turn(question, f"My name is {name}.", f"My name is {name}.", ("words", [name]))]
    # All answers follow the message, so each must have the wanted form.
    if kind < 0.92 and all(turn.short for turn in turns):
        system = r.choice(["Answer in one word.", "Use only one word."])
        return system, [turn._replace(answer=f"{cap(turn.short)}.", check=("only", turn.short)) for turn in turns]
    if all(turn.check[0] in ("words", "number", "first") for turn in turns):
        values = [{"answer": turn.answer} for turn in turns]
        return "Answer as JSON.", [turn._replace(answer=json.dumps(value), check=("json", value)) for turn, value in zip(turns, values)]
    return r.choice(SYSTEMS), turns


def chat_document(r: random.Random, turns: list[Turn], system: str) -> Document:
    """Returns the segments of a chat. Earlier turns have no thoughts, as the engine drops them."""
    if r.random() < 0.02:
        head, user, bot, end, glue = "System✿{}✿\n", "User✿{}✿\nBot✿", "", "✿", "\n"
        init = False
    else:
        head, user, bot, end, glue = "System: {}\n\n", "User: {}\n\nAssistant:", " ", "\n\n", ""
        init = not system
    thinking = r.choices(list(OPENINGS), [60, 15, 25])[0]
    before = head.format(system) if system else ""
    if init:
        before = r.choices(["", "\n", INIT_PROMPT], [90, 5, 5])[0]
    segments = []
    for turn in turns[:-1]:
        segments += [(before + user.format(turn.user), False), (bot + turn.answer + end, True)]
        before = glue
    last = turns[-1]
    if thinking == "off":
        return segments + [(before + user.format(last.user), False), (bot + last.answer + end, True)]
    hint = thought = ""
    if thinking == "on":
        hint = r.choices(["", " (think a bit)", " (think a lot)"], [70, 15, 15])[0]
        thought = f"{last.thought}</think>"
    prompt = before + user.format(last.user + hint)
    return segments + [(prompt + bot + OPENINGS[thinking], False), (f">{thought} {last.answer}{end}", True)]


def story_document(r: random.Random) -> Document:
    """Returns one or two stories without a chat."""
    stories = [new_story(r).text]
    if r.random() < 0.15:
        stories.append(new_story(r).text)
    return [("\n\n".join(stories), True)]


def tool_document(r: random.Random) -> Document:
    """Returns a chat with tools."""
    chat = tool_chat(r)
    style = r.choice(["short", "full"])
    thinking = r.choices(list(OPENINGS), [50, 15, 35])[0]
    system = r.choice(SYSTEMS) if r.random() < 0.2 else ""
    prompt = tool_prompt(style, OPENINGS[thinking], chat.tools, chat.messages, system)
    title, gap, end = ("", " ", "\n\n") if style == "short" else ("**Tool Call:**\n", "\n", "")
    answer = chat.answer
    if chat.call:
        answer = f"{title}```json\n{json.dumps(chat.call)}\n```"
    lead = {"off": "", "fast": ">", "on": f">{chat.thought}</think>"}[thinking]
    return [(prompt, False), (lead + gap + answer + end, True)]


def document(r: random.Random) -> Document:
    """Returns a document of any kind."""
    kind = r.random()
    if kind < 0.09:
        return story_document(r)
    if kind < 0.20:
        return tool_document(r)
    if kind < 0.56:
        turns = new_chat(r)
    elif kind < 0.86:
        turns = [single_question(r)]
    elif kind < 0.92:
        turns = [single_question(r) for _ in range(r.randrange(2, 4))]
    else:
        turns = [story_request(r)[0]]
    system = ""
    if r.random() < 0.14:
        system, turns = with_system(r, turns)
    return chat_document(r, turns, system)


def documents(seed: int) -> Iterator[Document]:
    """Yields documents without end. The same seed yields the same documents."""
    r = random.Random(seed)
    while True:
        yield document(r)
