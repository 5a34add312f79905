"""Anthropic's own client against a server."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import asyncio  # noqa: E402
import json  # noqa: E402

import anthropic  # noqa: E402
import server  # noqa: E402
from server import Server, equal, text_and_vectors  # noqa: E402

LIGHT = [{"role": "user", "content": "light"}]
SEED = {"seed": 1}
# A format that has tools and thoughts; the format `tiny` has none.
G1 = {"seed": 1, "format": "g1"}
WEATHER = {
    "name": "weather",
    "description": "Returns the weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False},
}


def ask(**more):
    return {"model": "tiny", "max_tokens": 12, "messages": LIGHT, "extra_body": SEED, **more}


def create_and_stream():
    whole = client.messages.create(**ask())
    equal((whole.role, whole.stop_reason, whole.usage.output_tokens), ("assistant", "max_tokens", 12), "an answer")
    with client.messages.stream(**ask()) as stream:
        equal("".join(stream.text_stream), whole.content[0].text, "joined texts of a stream")
        last = stream.get_final_message()
    equal((last.content[0].text, last.stop_reason), (whole.content[0].text, whole.stop_reason), "final message of a stream")
    kinds = [event.type for event in client.messages.create(**ask(stream=True))]
    equal((kinds[0], kinds[-2:]), ("message_start", ["message_delta", "message_stop"]), "events of a stream")

    async def later():
        async with anthropic.AsyncAnthropic(base_url=served.url, api_key="any key") as again:
            return await again.messages.create(**ask())

    equal(asyncio.run(later()).content[0].text, whole.content[0].text, "text of the asynchronous client")
    stopped = client.messages.create(**ask(stop_sequences=[whole.content[0].text.split()[2]]))
    equal((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", whole.content[0].text.split()[2]), "end at a stop sequence")


def system_and_count():
    blocks = [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]
    plain = client.messages.create(**ask(system="Be short.", metadata={"user_id": "a"}))
    equal(client.messages.create(**ask(system=blocks)).content[0].text, plain.content[0].text, "text after a system message of blocks")
    counted = client.messages.count_tokens(model="tiny", messages=LIGHT, system="Be short.")
    equal(counted.input_tokens, plain.usage.input_tokens + plain.usage.cache_read_input_tokens, "tokens of a prompt")
    beta = client.beta.messages.create(betas=["interleaved-thinking-2025-05-14"], **ask(system=blocks))
    equal(beta.content[0].text, plain.content[0].text, "text of the beta interface")


def structured_output():
    schema = {"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"], "additionalProperties": False}
    found = client.messages.create(**ask(max_tokens=60, output_config={"format": {"type": "json_schema", "schema": schema}}))
    assert isinstance(json.loads(found.content[0].text)["good"], bool), f"schema: expected a boolean, found {found}"


def calls_and_results():
    tools = {"tools": [WEATHER], "max_tokens": 120, "extra_body": G1}
    for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
        found = client.messages.create(**ask(tool_choice=choice, **tools))
        call = found.content[-1]
        equal((found.stop_reason, call.type, call.name), ("tool_use", "tool_use", "weather"), f"a call with {choice}")
        assert call.input["city"] in ("Paris", "Rome"), f"input of a call: expected a city, found {call.input}"
        with client.messages.stream(**ask(tool_choice=choice, **tools)) as stream:
            last = stream.get_final_message().content[-1]
        equal((last.name, last.input), (call.name, call.input), "call of a stream")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "21 degrees"}]}
    history = [*LIGHT, {"role": "assistant", "content": found.content}, {"role": "user", "content": [result]}]
    after = client.messages.create(**ask(messages=history, **tools))
    assert after.content, f"answer after a result: expected a block, found {after}"


def thoughts():
    wanted = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1100, "extra_body": {**G1, "max_tokens": 20}}
    found = client.messages.create(**ask(**wanted))
    equal(found.content[0].type, "thinking", "type of the first block")
    with client.messages.stream(**ask(**wanted)) as stream:
        equal(stream.get_final_message().content[0].thinking, found.content[0].thinking, "thought of a stream")


def a_prefilled_answer():
    found = client.messages.create(**ask(messages=[*LIGHT, {"role": "assistant", "content": "And God"}]))
    assert found.content[0].text and not found.content[0].text.startswith("And God"), f"expected only the new text, found {found}"
    equal([one.id for one in client.models.list()], ["tiny", "vectors"], "names of the models")


def errors():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    for what, more in [("an image", {"messages": [{"role": "user", "content": [image]}]}), ("no message", {"messages": []})]:
        try:
            client.messages.create(**ask(**more))
        except anthropic.BadRequestError as e:
            equal((e.body["type"], e.body["error"]["type"]), ("error", "invalid_request_error"), f"error after {what}")
            assert e.request_id, f"request id after {what}: expected an id"
        else:
            raise AssertionError(f"{what}: expected an error")
    with Server(env={"WINGBEAT_API_KEYS": "key-of-ada"}) as guarded:
        try:
            anthropic.Anthropic(base_url=guarded.url, api_key="key-of-eve", max_retries=0).messages.create(**ask())
        except anthropic.AuthenticationError:
            pass
        else:
            raise AssertionError("a wrong key: expected an error")
        assert anthropic.Anthropic(base_url=guarded.url, api_key="key-of-ada").messages.create(**ask()).content, "a right key: expected an answer"


if __name__ == "__main__":
    with Server("--deterministic", *text_and_vectors()) as served:
        client = anthropic.Anthropic(base_url=served.url, api_key="any key", max_retries=0)
        server.run(create_and_stream, system_and_count, structured_output, calls_and_results, thoughts, a_prefilled_answer, errors)
