"""Responses: answers that the server keeps, and conversations that continue from their states."""

import openai
from server import equal

from .shared import client, refused

SHORT = {"model": "tiny", "max_output_tokens": 12, "temperature": 0}
# A format that has tools; the format `tiny` has none.
G1 = {"format": "g1"}


def respond(given="light", **more):
    return client().responses.create(input=given, **{**SHORT, **more})


def answer_has_text():
    done = respond()
    assert done.id.startswith("resp_"), f"id: expected resp_…, found {done.id}"
    equal(done.object, "response", "object")
    assert done.status in ("completed", "incomplete"), f"status: expected completed or incomplete, found {done.status}"
    assert done.output_text, f"output_text: expected a text, found {done.output}"
    equal(done.usage.total_tokens, done.usage.input_tokens + done.usage.output_tokens, "total_tokens")
    equal(done.usage.output_tokens, 12, "output_tokens")
    equal(done.incomplete_details.reason, "max_output_tokens", "reason of an incomplete answer")


def stream_equals_answer():
    events = list(respond(stream=True))
    kinds = [event.type for event in events]
    equal(kinds[0], "response.created", "first event")
    assert kinds[-1] in ("response.completed", "response.incomplete"), f"last event: expected response.completed or incomplete, found {kinds[-1]}"
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    equal(text, respond().output_text, "joined deltas")
    equal(events[-1].response.output_text, text, "text of the last event")
    for kind in ("response.output_item.added", "response.content_part.added", "response.output_text.done", "response.content_part.done", "response.output_item.done"):
        equal(kinds.count(kind), 1, f"events {kind}")
    numbers = [event.sequence_number for event in events]
    equal(numbers, list(range(numbers[0], numbers[0] + len(numbers))), "sequence numbers")


def conversations_continue():
    first = respond("Tell me of light and darkness and of the sea.")
    second = respond("And then?", previous_response_id=first.id)
    equal(second.previous_response_id, first.id, "previous_response_id")
    cached = second.usage.input_tokens_details.cached_tokens
    assert cached >= first.usage.input_tokens, f"cached_tokens: expected at least {first.usage.input_tokens}, found {cached}"
    third = list(respond("And then?", previous_response_id=first.id, stream=True))[-1].response
    equal(third.output_text, second.output_text, "two branches of a conversation")


def instructions_are_not_continued():
    """As in OpenAI's interface: `instructions` belong to one answer, not to the conversation."""
    plain, first = respond("light"), respond("light", instructions="Speak of the king of Babylon.")
    assert first.usage.input_tokens > plain.usage.input_tokens, f"input_tokens with instructions: expected more than {plain.usage.input_tokens}, found {first.usage.input_tokens}"
    again = respond("more", previous_response_id=first.id)
    whole = respond([{"role": "user", "content": "light"}, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "more"}])
    equal(again.output_text, whole.output_text, "text after an answer with instructions, and from the whole conversation")


def answers_are_kept():
    done = respond()
    kept = client().responses.retrieve(done.id)
    equal((kept.id, kept.output_text, kept.usage.total_tokens), (done.id, done.output_text, done.usage.total_tokens), "a kept answer")
    client().responses.delete(done.id)
    e = refused(openai.NotFoundError, lambda: client().responses.retrieve(done.id), "a deleted answer")
    equal(e.code, "response_not_found", "code of the error")
    refused(openai.NotFoundError, lambda: respond(previous_response_id=done.id), "a conversation after a deleted answer")


def answers_need_not_be_kept():
    done = respond(store=False)
    refused(openai.NotFoundError, lambda: client().responses.retrieve(done.id), "an answer with store = false")


def messages_are_read():
    talk = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": [{"type": "input_text", "text": "light"}]}]
    assert respond(talk).output_text, "messages: expected a text, found none"


def calls_are_items():
    tool = {"type": "function", "name": "weather", "strict": True, "parameters": {"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"], "additionalProperties": False}}
    done = respond("Weather in Rome?", tools=[tool], tool_choice="required", max_output_tokens=120, extra_body=G1)
    calls = [item for item in done.output if item.type == "function_call"]
    assert calls and calls[0].name == "weather" and "Rome" in calls[0].arguments, f"calls: expected weather(Rome), found {done.output}"
    result = {"type": "function_call_output", "call_id": calls[0].call_id, "output": "21 degrees"}
    assert respond([result], previous_response_id=done.id, tools=[tool], tool_choice="none", extra_body=G1).output_text, "answer after a result: expected a text, found none"


def schemas_are_followed():
    schema = {"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"], "additionalProperties": False}
    done = respond(text={"format": {"type": "json_schema", "name": "thing", "strict": True, "schema": schema}}, max_output_tokens=60)
    assert "".join(done.output_text.split()) in ('{"good":true}', '{"good":false}'), f"schema: expected good true or false, found {done.output_text!r}"


CHECKS = [
    answer_has_text, stream_equals_answer, conversations_continue, instructions_are_not_continued, answers_are_kept, answers_need_not_be_kept, messages_are_read, calls_are_items,
    schemas_are_followed,
]
