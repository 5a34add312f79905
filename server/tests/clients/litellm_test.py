"""litellm and Cohere's own client against a server."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import asyncio  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no request to another site

import cohere  # noqa: E402
import litellm  # noqa: E402
import server  # noqa: E402
from server import Server, equal, text_and_vectors  # noqa: E402

LIGHT = [{"role": "user", "content": "light"}]
SHORT = {"max_tokens": 12, "seed": 1}


def base():
    return {"api_base": f"{served.url}/v1", "api_key": "none"}


def chat_and_stream():
    whole = litellm.completion(model="openai/tiny", messages=LIGHT, **SHORT, **base())
    text = whole.choices[0].message.content
    assert text and whole.usage.completion_tokens == 12, f"completion: expected a text of 12 tokens, found {whole}"
    parts = list(litellm.completion(model="openai/tiny", messages=LIGHT, stream=True, **SHORT, **base()))
    equal("".join(part.choices[0].delta.content or "" for part in parts), text, "joined parts of a stream")
    later = asyncio.run(litellm.acompletion(model="openai/tiny", messages=LIGHT, **SHORT, **base()))
    equal(later.choices[0].message.content, text, "text of the asynchronous call")


def other_providers():
    """litellm speaks the APIs of other servers, too."""
    text = litellm.completion(model="openai/tiny", messages=LIGHT, **SHORT, **base()).choices[0].message.content
    of_ollama = litellm.completion(model="ollama_chat/tiny", messages=LIGHT, api_base=served.url, **SHORT)
    equal(of_ollama.choices[0].message.content, text, "text of the provider ollama_chat")
    of_anthropic = litellm.completion(model="anthropic/tiny", messages=LIGHT, api_base=served.url, api_key="none", max_tokens=12, temperature=0)
    plain = litellm.completion(model="openai/tiny", messages=LIGHT, max_tokens=12, temperature=0, **base())
    equal(of_anthropic.choices[0].message.content, plain.choices[0].message.content, "text of the provider anthropic")
    of_vllm = litellm.completion(model="hosted_vllm/tiny", messages=LIGHT, **SHORT, **base())
    equal(of_vllm.choices[0].message.content, text, "text of the provider hosted_vllm")


WEATHER = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}


def tools_and_structured_output():
    tools = [{"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": WEATHER}}]
    called = litellm.completion(model="openai/tiny", messages=LIGHT, tools=tools, tool_choice="required", max_tokens=80, seed=1, **base())
    call = called.choices[0].message.tool_calls[0]
    assert call.function.name == "weather" and json.loads(call.function.arguments)["city"] in ("Paris", "Rome"), f"tools: found {called}"
    schema = {"type": "json_schema", "json_schema": {"name": "weather", "strict": True, "schema": WEATHER}}
    found = litellm.completion(model="openai/tiny", messages=LIGHT, response_format=schema, max_tokens=80, seed=1, **base())
    assert json.loads(found.choices[0].message.content)["city"] in ("Paris", "Rome"), f"schema: found {found}"
    equal(found.choices[0].finish_reason, "stop", "reason of a complete text")


def vectors_and_errors():
    vectors = litellm.embedding(model="openai/tiny", input=["light", "darkness"], **base())
    equal([len(one["embedding"]) for one in vectors.data], [128, 128], "lengths of vectors")
    try:
        litellm.completion(model="openai/tiny", messages=LIGHT, temperature=-1, **base())
    except litellm.BadRequestError as e:
        assert "temperature" in str(e), f"error: expected the name of the field, found {e}"
    else:
        raise AssertionError("error: expected a refusal of temperature=-1")


def rankings():
    documents = ["The light of the world.", "A man of war."]
    client = cohere.ClientV2("none", base_url=served.url)
    ranked = client.rerank(model="vectors", query="What is light?", documents=documents, top_n=2)
    equal(sorted(result.index for result in ranked.results), [0, 1], "indices of Cohere's client")
    assert ranked.results[0].relevance_score >= ranked.results[1].relevance_score, f"rerank: expected the best first, found {ranked}"
    of_litellm = litellm.rerank(model="cohere/vectors", query="What is light?", documents=documents, top_n=2, api_base=served.url, api_key="none")
    equal([result["index"] for result in of_litellm.results], [result.index for result in ranked.results], "indices of litellm")


if __name__ == "__main__":
    with Server("--deterministic", *text_and_vectors()) as served:
        server.run(chat_and_stream, other_providers, tools_and_structured_output, vectors_and_errors, rankings)
