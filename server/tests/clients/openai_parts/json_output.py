"""Answers with `response_format`: any JSON object, and JSON of a schema."""

import json

import jsonschema
from server import equal

from .shared import chat, client

SCHEMA = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "green"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}, "good": {"type": "boolean"}},
    "required": ["color", "count", "good"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "thing", "strict": True, "schema": SCHEMA}}


def valid(text, what):
    try:
        value = json.loads(text)
        jsonschema.validate(value, SCHEMA)
    except (ValueError, jsonschema.ValidationError) as e:
        raise AssertionError(f"{what}: expected JSON of the schema, found {text!r} ({e})") from None
    return value


def schema_is_followed():
    for seed in range(6):
        done = chat(seed=seed, response_format=FORMAT, max_tokens=80, temperature=1.2)
        equal(done.choices[0].finish_reason, "stop", "finish_reason with a schema")
        valid(done.choices[0].message.content, f"answer with seed {seed}")


def schema_is_followed_in_a_stream():
    chunks = chat(response_format=FORMAT, max_tokens=80, stream=True)
    valid("".join(c.delta.content or "" for chunk in chunks for c in chunk.choices), "streamed answer")


def object_is_an_object():
    for seed in range(4):
        done = chat(seed=seed, response_format={"type": "json_object"}, max_tokens=200, temperature=0.7, extra_body={"close": True})
        text = done.choices[0].message.content
        try:
            value = json.loads(text)
        except ValueError:
            raise AssertionError(f"json_object with seed {seed}: expected JSON, found {text!r} ({done.choices[0].finish_reason})") from None
        assert isinstance(value, dict), f"json_object: expected an object, found {text!r}"


def parse_reads_a_class():
    import pydantic

    class Thing(pydantic.BaseModel):
        name: bool
        count: bool

    done = client().chat.completions.parse(model="tiny", messages=[{"role": "user", "content": "light"}], response_format=Thing, max_tokens=60, seed=3)
    assert isinstance(done.choices[0].message.parsed, Thing), f"parse: expected a Thing, found {done.choices[0].message}"


def text_is_free():
    chat(response_format={"type": "text"})


def grammar_is_followed():
    done = chat(extra_body={"grammar": 'root ::= "yes" | "no"'})
    assert done.choices[0].message.content in ("yes", "no"), f"grammar: expected yes or no, found {done.choices[0].message.content!r}"


CHECKS = [schema_is_followed, schema_is_followed_in_a_stream, object_is_an_object, parse_reads_a_class, text_is_free, grammar_is_followed]
