"""Calls of tools, and conversations with the results of calls."""

import json

from server import equal

from . import shared


def tool(name, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": f"Calls {name}.", "parameters": schema}}


TOOLS = [tool("weather", city={"enum": ["Paris", "Rome"]}), tool("add", a={"type": "integer", "minimum": 0, "maximum": 9})]
ASKED = [{"role": "user", "content": "Weather in Rome?"}]


def chat(**more):
    """Asks in a format that has tools; the format `tiny` has none."""
    return shared.chat(**{**more, "extra_body": {"format": "g1"}})


def check(call, what):
    names = {tool["function"]["name"] for tool in TOOLS}
    assert call.name in names, f"{what}: expected a name of {names}, found {call.name}"
    found = json.loads(call.arguments)
    good = found.get("city") in ("Paris", "Rome") if call.name == "weather" else found.get("a") in range(10)
    assert good and len(found) == 1, f"{what}: expected arguments of the schema, found {call.arguments}"


def required_call():
    for seed in range(4):
        done = chat(messages=ASKED, tools=TOOLS, tool_choice="required", max_tokens=120, seed=seed).choices[0]
        equal(done.finish_reason, "tool_calls", "finish_reason with tool_choice required")
        assert done.message.tool_calls, f"tool_calls: expected a call, found {done.message}"
        call = done.message.tool_calls[0]
        assert call.id and call.type == "function", f"call: expected an id and the type function, found {call}"
        check(call.function, f"call with seed {seed}")


def chosen_function():
    choice = {"type": "function", "function": {"name": "add"}}
    done = chat(messages=ASKED, tools=TOOLS, tool_choice=choice, max_tokens=120).choices[0]
    equal(done.message.tool_calls[0].function.name, "add", "name of a chosen function")
    check(done.message.tool_calls[0].function, "call of a chosen function")


def streamed_call():
    whole = chat(messages=ASKED, tools=TOOLS, tool_choice="required", max_tokens=120).choices[0].message.tool_calls
    deltas = [d for chunk in chat(messages=ASKED, tools=TOOLS, tool_choice="required", max_tokens=120, stream=True) for c in chunk.choices for d in c.delta.tool_calls or []]
    first = [d for d in deltas if d.index == 0]
    assert first and first[0].id and first[0].function.name, f"first delta of a call: expected an id and a name, found {first[:1]}"
    equal(first[0].function.name, whole[0].function.name, "name of a streamed call")
    equal("".join(d.function.arguments or "" for d in first), whole[0].function.arguments, "arguments of a streamed call")


def results_are_accepted():
    call = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    talk = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call-1", "content": '{"celsius": 21}'}]
    done = chat(messages=talk, tools=TOOLS, tool_choice="none").choices[0]
    assert done.message.content is not None and not done.message.tool_calls, f"answer after a result: expected text, found {done.message}"
    chat(messages=talk, tools=TOOLS)
    two = [{**call, "id": f"call-{i}"} for i in (1, 2)]
    results = [{"role": "tool", "tool_call_id": f"call-{i}", "content": [{"type": "text", "text": str(i)}]} for i in (1, 2)]
    chat(messages=[*ASKED, {"role": "assistant", "tool_calls": two}, *results, {"role": "user", "content": "And Paris?"}], tools=TOOLS)


def at_most_one_call():
    done = chat(messages=ASKED, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=200).choices[0]
    equal(len(done.message.tool_calls), 1, "calls with parallel_tool_calls = false")


CHECKS = [required_call, chosen_function, streamed_call, results_are_accepted, at_most_one_call]
