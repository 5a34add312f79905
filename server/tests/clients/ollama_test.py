"""Ollama's own client against a server."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import asyncio  # noqa: E402
import json  # noqa: E402
import typing  # noqa: E402

import ollama  # noqa: E402
import pydantic  # noqa: E402
import server  # noqa: E402
from server import Server, equal, text_and_vectors  # noqa: E402

LIGHT = [{"role": "user", "content": "light"}]
SHORT = {"seed": 1, "num_predict": 12}
# A format that has tools and thoughts; the format `tiny` has none.
G1 = {"seed": 1, "num_predict": 120, "format": "g1"}


def chat_and_stream():
    whole = client.chat("tiny", LIGHT, options=SHORT)
    assert whole.message.content and whole.done and whole.eval_count == 12, f"chat: expected a text of 12 tokens, found {whole}"
    assert whole.total_duration > 0 and whole.done_reason == "length", f"chat: expected a duration and the reason length, found {whole}"
    parts = list(client.chat("tiny:latest", LIGHT, options=SHORT, stream=True))
    equal("".join(part.message.content for part in parts), whole.message.content, "joined parts of a stream")
    equal([part.done for part in parts], [False] * (len(parts) - 1) + [True], "done of the parts")

    async def later():
        return await ollama.AsyncClient(host=served.url).chat("tiny", LIGHT, options=SHORT)

    equal(asyncio.run(later()).message.content, whole.message.content, "text of the asynchronous client")


def generate():
    whole = client.generate("tiny", "light", options=SHORT)
    equal(whole.response, client.chat("tiny", LIGHT, options=SHORT).message.content, "response to a prompt")
    raw = client.generate("tiny", "In the beginning", raw=True, options=SHORT)
    equal("".join(part.response for part in client.generate("tiny", "In the beginning", raw=True, options=SHORT, stream=True)), raw.response, "stream of a continued text")
    equal(client.generate("tiny", "", keep_alive="5m").done_reason, "load", "reason of a request that only loads")


class Thing(pydantic.BaseModel):
    color: typing.Literal["red", "green"]
    good: bool


def structured_output():
    found = client.chat("tiny", LIGHT, format=Thing.model_json_schema(), options={**SHORT, "num_predict": 120})
    Thing.model_validate_json(found.message.content)
    found = client.generate("tiny", "light", format="json", options={**SHORT, "num_predict": 120})
    assert isinstance(json.loads(found.response), dict), f"json: expected an object, found {found.response!r}"


WEATHER = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}


def weather(city: str) -> str:
    """Returns the weather of a city.

    Args:
        city: the name of the city
    """
    return f"21 degrees in {city}"


def calls_and_results():
    asked = [{"role": "user", "content": "Weather in Rome?"}]
    # The tiny model calls a tool only if the request demands a call.
    demanded = {**G1, "tool_choice": "required"}
    tool = {"type": "function", "function": {"name": "weather", "description": "Returns the weather of a city", "parameters": WEATHER}}
    for tools in ([tool], [weather]):
        found = client.chat("tiny", asked, tools=tools, options=demanded if tools == [tool] else G1)
        assert found.done, f"an answer with tools: expected its end, found {found}"
        if tools == [tool]:
            call = found.message.tool_calls[0].function
            equal(call.name, "weather", "name of a call")
            assert call.arguments["city"] in ("Paris", "Rome"), f"arguments of a call: expected a city, found {call.arguments}"
            parts = list(client.chat("tiny", asked, tools=tools, options=demanded, stream=True))
            equal([part.message.tool_calls for part in parts if part.message.tool_calls], [found.message.tool_calls], "calls of a stream")
            history = [*asked, found.message, {"role": "tool", "tool_name": "weather", "content": weather("Rome")}]
    after = client.chat("tiny", history, tools=[tool], options=SHORT | {"format": "g1"})
    assert after.message.content is not None, f"answer after a result: expected a text, found {after}"


def thoughts():
    found = client.chat("tiny", LIGHT, think=True, options=G1)
    assert found.message.thinking, f"think: expected a thought, found {found}"
    parts = client.chat("tiny", LIGHT, think=True, options=G1, stream=True)
    equal("".join(part.message.thinking or "" for part in parts), found.message.thinking, "joined thoughts of a stream")


def models():
    names = [model.model for model in client.list().models]
    equal(names, ["tiny:latest", "vectors:latest"], "names of the models")
    equal([model.model for model in client.ps().models], names, "names of the models in memory")
    shown = client.show("tiny")
    equal(shown.details.family, "rwkv7", "family of the model")
    assert "completion" in shown.capabilities, f"capabilities: expected completion, found {shown.capabilities}"


def vectors():
    found = client.embed("vectors", ["light", "darkness"])
    assert len(found.embeddings) == 2, f"vectors: expected two, found {len(found.embeddings)}"
    equal(list(client.embeddings("vectors", "light").embedding), list(found.embeddings[0]), "vector of the older method")


def errors():
    for what, ask, status in [
        ("an image", lambda: client.chat("tiny", [{**LIGHT[0], "images": [b"\x89PNG"]}]), 400),
        ("an option", lambda: client.chat("tiny", LIGHT, options={"top_p": 2}), 400),
        ("a pull", lambda: client.pull("llama3"), 403),
        ("a deletion", lambda: client.delete("tiny"), 403),
    ]:
        try:
            ask()
        except ollama.ResponseError as e:
            equal(e.status_code, status, f"status after {what}")
            assert e.error, f"error after {what}: expected a text"
        else:
            raise AssertionError(f"{what}: expected an error")


if __name__ == "__main__":
    with Server("--deterministic", *text_and_vectors()) as served:
        client = ollama.Client(host=served.url)
        server.run(chat_and_stream, generate, structured_output, calls_and_results, thoughts, models, vectors, errors)
