"""LangChain's ChatOpenAI and OpenAIEmbeddings against a server."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import typing  # noqa: E402

import langchain_openai  # noqa: E402
import pydantic  # noqa: E402
import server  # noqa: E402
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from server import Server, equal, text_and_vectors  # noqa: E402


def model(**more):
    return langchain_openai.ChatOpenAI(**{"base_url": f"{served.url}/v1", "api_key": "any key", "model": "tiny", "seed": 1, "max_tokens": 12, "max_retries": 0, **more})


def invoke_and_stream():
    whole = model().invoke("light")
    assert whole.content and whole.usage_metadata["output_tokens"] > 0, f"invoke: expected a text and its usage, found {whole}"
    equal("".join(chunk.content for chunk in model().stream("light")), whole.content, "joined chunks of a stream")
    equal(model().batch(["light", "light"])[1].content, whole.content, "second text of a batch")
    model().invoke([SystemMessage("Be short."), HumanMessage("light")])


class Thing(pydantic.BaseModel):
    """A thing with a colour."""

    color: typing.Literal["red", "green"]
    good: bool


# A format that has tools; the format `tiny` has none.
G1 = {"extra_body": {"format": "g1"}}


def structured_output():
    for method in ("json_schema", "function_calling"):
        found = model(max_tokens=120, **G1).with_structured_output(Thing, method=method).invoke("light")
        assert isinstance(found, Thing), f"structured output by {method}: expected a Thing, found {found!r}"


@tool
def weather(city: typing.Literal["Paris", "Rome"]) -> str:
    """Returns the weather of a city."""
    return f"21 degrees in {city}"


def calls_and_results():
    bound = model(max_tokens=120, **G1).bind_tools([weather], tool_choice="any")
    asked = HumanMessage("Weather in Rome?")
    found = bound.invoke([asked])
    assert found.tool_calls, f"calls: expected a call, found {found}"
    call = found.tool_calls[0]
    equal(call["name"], "weather", "name of a call")
    result = weather.invoke(call)
    assert isinstance(result, ToolMessage) and "21 degrees" in result.content, f"result: expected 21 degrees, found {result}"
    after = model(**G1).invoke([asked, found, result])
    assert after.content is not None, f"answer after a result: expected a text, found {after}"
    merged = None
    for chunk in bound.stream([asked]):
        merged = chunk if merged is None else merged + chunk
    equal([call["name"] for call in merged.tool_calls], [call["name"] for call in found.tool_calls], "calls of a stream")


def vectors():
    embed = langchain_openai.OpenAIEmbeddings(base_url=f"{served.url}/v1", api_key="any key", model="vectors", check_embedding_ctx_length=False)
    found = embed.embed_documents(["light", "darkness"])
    assert len(found) == 2 and len(found[0]) == len(embed.embed_query("light")), f"vectors: expected two of one length, found {len(found)}"


def responses():
    # The Responses interface has no seed.
    found = model(use_responses_api=True, seed=None).invoke("light")
    assert found.text, f"an answer of the Responses interface: expected a text, found {found}"


if __name__ == "__main__":
    with Server("--deterministic", *text_and_vectors()) as served:
        server.run(invoke_and_stream, structured_output, calls_and_results, vectors, responses)
