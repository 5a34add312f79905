"""Two tools, questions for them, and the prompts in which the engine offers them."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

from .common import Check, hashed_out, made_up
from .questions import animal, colour, opposite, single_question
from .talk import small_talk
from .words import CITIES, SKIES

# A role (user, call, result) and its text, or the call.
Message = tuple[str, Any]


class ToolChat(NamedTuple):
    """A conversation with tools: its last answer is a text, or None if it is `call`."""

    tools: list[dict[str, Any]]
    messages: list[Message]
    answer: str | None
    thought: str
    check: Check
    call: dict[str, Any] | None


def tool(name: str, description: str, **types: str) -> dict[str, Any]:
    """Returns a tool in OpenAI's form, with the types of its arguments."""
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(types)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def some_tools(r: random.Random) -> list[dict[str, Any]]:
    """Returns one or both of the tools."""
    name = r.choice(["weather", "get_weather"])
    weather = tool(name, r.choice(["Weather of a city.", "The weather of a city", "Get the weather."]), city="string")
    add = tool("add", r.choice(["Add two numbers.", "The sum of two numbers"]), a="integer", b="integer")
    return r.choice([[weather], [add], [weather, add], [add, weather], [weather], [weather, add]])


class Task(NamedTuple):
    """A question for a tool, the call, its result, and the answer, with the thoughts before the call and the answer."""

    question: str
    arguments: dict[str, Any]
    result: str
    answer: str
    words: list[str]
    thought_of_call: str
    thought_of_answer: str


def addition(r: random.Random) -> Task:
    """Returns a task for the tool `add`."""
    a, b = (r.randrange(r.choice([10, 100, 1000])) for _ in range(2))
    n = a + b
    question = r.choice([
        f"What is {a} plus {b}?",
        f"Add {a} and {b}.",
        f"How much is {a} plus {b}?",
        f"{a} + {b}",
        f"Use the tool to add {a} and {b}.",
    ])  # fmt: skip
    result = r.choice([json.dumps({"sum": n}), str(n), json.dumps({"result": n})])
    thoughts = f"I add {a} and {b} with the tool.", f"The tool says {n}."
    return Task(question, {"a": a, "b": b}, result, f"{a} plus {b} is {n}.", [str(n)], *thoughts)


def weather_report(r: random.Random) -> Task:
    """Returns a task for the tool `weather`."""
    city = r.choice(CITIES) if r.random() < 0.7 else made_up(r).title()
    sky = r.choice(SKIES)
    degrees = r.randrange(-5, 3) if sky == "snowy" else r.randrange(3, 26) if sky in ("rainy", "foggy") else r.randrange(-5, 36)
    question = r.choice([
        f"What is the weather in {city}?",
        f"How is the weather in {city}?",
        f"Weather in {city}?",
        f"Is it warm in {city}?",
        f"Tell me the weather in {city}.",
        f"What is the weather like in {city} today?",
    ])  # fmt: skip
    result = r.choice([{"sky": sky, "celsius": degrees}, {"city": city, "sky": sky, "celsius": degrees}, {"celsius": degrees, "sky": sky}])
    answer = f"It is {sky} in {city}, with {degrees} degrees."
    thoughts = f"I need the weather of {city}.", f"The tool says {sky} and {degrees} degrees."
    return Task(question, {"city": city}, json.dumps(result), answer, [sky, city, str(degrees)], *thoughts)


def tool_chat(r: random.Random, held_out: bool = False) -> ToolChat:
    """Returns a chat with tools of the training, or one that is held out of it. In some, the question needs no tool."""
    tools = some_tools(r)
    name = r.choice([each["function"]["name"] for each in tools])
    if r.random() < 0.15:
        turn = single_question(r, held_out, [(opposite, 1), (colour, 1), (small_talk, 1), (animal, 1)])
        return ToolChat(tools, [("user", turn.user)], turn.answer, turn.thought, turn.check, None)
    while True:
        task = addition(r) if name == "add" else weather_report(r)
        if hashed_out("tool " + task.question) == held_out:
            break
    call = {"name": name, "arguments": task.arguments}
    if r.random() < 0.5:
        return ToolChat(tools, [("user", task.question)], None, task.thought_of_call, ("call", call), call)
    messages = [("user", task.question), ("call", call), ("result", task.result)]
    return ToolChat(tools, messages, task.answer, task.thought_of_answer, ("words", task.words), None)


HOW = (
    "To call one of these tools, write exactly this format:\n"
    '**Tool Call:**\n```json\n{"name": "tool_name", "arguments": {"key": "value"}}\n```\n'
    "Do not invent tool call IDs or write tool outputs yourself."
)


def fenced(value: Any) -> str:
    """Returns a value as JSON in a code block."""
    return f"```json\n{json.dumps(value, indent=2, ensure_ascii=False)}\n```"


def parsed(text: str) -> Any:
    """Returns the value of a JSON text, or the text if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def short_prompt(opening: str, tools: list[dict[str, Any]], messages: list[Message], system: str) -> str:
    """Returns the prompt of the format `g1-tools-short`."""
    lines = [system] if system else []
    lines.append("Tools:")
    for function in (tool["function"] for tool in tools):
        types = ", ".join(f"{name}: {kind['type']}" for name, kind in function["parameters"]["properties"].items())
        lines.append(f"- {function['name']}({types}): {function['description']}")
    lines.append("Return only a JSON function call.")
    parts = ["System: " + "\n".join(lines)]
    for role, content in messages:
        if role == "user":
            parts.append(f"User: {content}")
        elif role == "call":
            parts.append(f"Assistant: ```json\n{json.dumps(content)}\n```")
        else:
            parts.append(f"User: Function output: {content}")
    parts.append(f"Assistant: {opening}" if opening else "Assistant:")
    return "\n\n".join(parts)


def long_prompt(opening: str, tools: list[dict[str, Any]], messages: list[Message], system: str) -> str:
    """Returns the prompt of the format `g1-tools`."""
    lines = ["### System"]
    if system:
        lines.append(system)
    for function in (tool["function"] for tool in tools):
        lines += [f"### `{function['name']}`", f"**Description:** {function['description']}"]
        lines += ["**Parameters:**", fenced(function["parameters"])]
    lines.append(HOW)
    for role, content in messages:
        if role == "user":
            lines += ["### User", content]
        elif role == "call":
            lines += ["### Assistant", f"**Tool Call:**\n{fenced(content)}"]
        else:
            lines += ["### Tool Output", fenced(parsed(content))]
    lines.append("### Assistant")
    if opening:
        lines.append(opening)
    return "\n".join(lines)


def tool_prompt(style: str, opening: str, tools: list[dict[str, Any]], messages: list[Message], system: str = "") -> str:
    """Returns a prompt in the style `short` or `full`, as src/template/g1/write.rs renders it."""
    return (short_prompt if style == "short" else long_prompt)(opening, tools, messages, system)
