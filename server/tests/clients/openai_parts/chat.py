"""Chat completions: streams, seeds, stops, continuations, log-probabilities, biases."""

import math

from server import equal

from .shared import USER, chat, client


def joined(chunks, index=0):
    return "".join(c.delta.content or "" for chunk in chunks for c in chunk.choices if c.index == index)


def answer_has_all_fields():
    done = chat()
    equal((done.object, len(done.choices), done.choices[0].message.role), ("chat.completion", 1, "assistant"), "object, choices, role")
    assert done.id.startswith("chatcmpl-"), f"id: expected chatcmpl-…, found {done.id}"
    assert done.choices[0].finish_reason in ("stop", "length"), f"finish_reason: expected stop or length, found {done.choices[0].finish_reason}"
    usage = done.usage
    equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens, "usage.total_tokens")
    assert 0 < usage.completion_tokens <= 12, f"completion_tokens: expected 1 to 12, found {usage.completion_tokens}"


def stream_equals_answer():
    whole, chunks = chat(), list(chat(stream=True, stream_options={"include_usage": True}))
    equal(joined(chunks), whole.choices[0].message.content, "joined deltas of a stream")
    equal(chunks[0].choices[0].delta.role, "assistant", "role in the first delta")
    reasons = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason]
    equal(reasons, [whole.choices[0].finish_reason], "finish_reasons of a stream")
    equal(chunks[-1].choices, [], "choices of the chunk with the usage")
    equal(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens, "completion_tokens of a stream")
    equal({chunk.id for chunk in chunks}, {chunks[0].id}, "ids of all chunks")


def seed_repeats_and_changes():
    texts = [chat(seed=seed, temperature=1.5).choices[0].message.content for seed in (1, 1, 2, 3)]
    equal(texts[0], texts[1], "text with the same seed")
    assert len(set(texts)) > 1, f"texts with seeds 1, 2, 3: expected differences, found {texts}"


def helper_streams():
    whole = chat().choices[0].message.content
    with client().chat.completions.stream(model="tiny", messages=USER, seed=1, max_tokens=12, stop=whole.split()[-2]) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        done = stream.get_final_completion()
    equal(text, done.choices[0].message.content, "text of the client's stream helper")
    assert text and whole.startswith(text), f"text of the stream helper: expected the beginning of {whole!r}, found {text!r}"


def logprobs():
    done = chat(logprobs=True, top_logprobs=3, temperature=1, top_p=1)
    content = done.choices[0].logprobs.content
    equal(len(content), done.usage.completion_tokens, "entries of logprobs")
    for at in content:
        equal(len(at.top_logprobs), 3, "entries of top_logprobs")
        values = [top.logprob for top in at.top_logprobs]
        equal(values, sorted(values, reverse=True), "order of top_logprobs")
        assert at.logprob <= 1e-6 and sum(map(math.exp, values)) <= 1.0001, f"logprobs: expected probabilities, found {at.logprob} {values}"
        assert at.logprob <= values[0] + 1e-6, f"logprob of a token: expected at most {values[0]}, found {at.logprob}"
    text = b"".join(bytes(at.bytes) for at in content).decode(errors="replace")
    assert done.choices[0].message.content.strip() in text, f"bytes of logprobs: expected {done.choices[0].message.content!r}, found {text!r}"
    chunks = list(chat(logprobs=True, top_logprobs=3, temperature=1, top_p=1, stream=True))
    streamed = [at.token for chunk in chunks for c in chunk.choices if c.logprobs for at in c.logprobs.content]
    equal(streamed, [at.token for at in content], "tokens of logprobs in a stream")


def several_choices():
    done = chat(n=2, temperature=1.5)
    equal([c.index for c in done.choices], [0, 1], "indices with n = 2")
    equal(done.choices[0].message.content, chat(temperature=1.5).choices[0].message.content, "first choice and answer with n = 1")
    chunks = list(chat(n=2, temperature=1.5, stream=True))
    for index in (0, 1):
        equal(joined(chunks, index), done.choices[index].message.content, f"stream of choice {index}")


def stop_ends_text():
    whole = chat(max_tokens=24).choices[0].message.content
    word = whole.split()[2]
    # An answer has no spaces at its end.
    expected = whole[: whole.index(word)].rstrip()
    for stop in (word, ["\0never", word]):
        done = chat(max_tokens=24, stop=stop)
        equal(done.choices[0].message.content, expected, f"text with stop = {stop!r}")
        equal(done.choices[0].finish_reason, "stop", "finish_reason with stop")
    streamed = joined(chat(max_tokens=24, stop=word, stream=True))
    equal(streamed, expected, "stream with stop")


def biases_choose_tokens():
    first = client().completions.create(model="tiny", prompt="light", max_tokens=4, temperature=0, logprobs=0).choices[0]
    token = client().post("../tokenize", body={"content": "king"}, cast_to=object)["tokens"][0]
    biased = client().completions.create(model="tiny", prompt="light", max_tokens=4, temperature=0, logprobs=0, logit_bias={str(token): 100}).choices[0]
    equal(len(set(biased.logprobs.tokens)), 1, "different tokens with a bias of 100")
    assert biased.text != first.text, f"text with a bias: expected another text than {first.text!r}, found the same"


def limits_are_equal():
    old, new = chat(max_tokens=5), chat(max_tokens=None, max_completion_tokens=5)
    equal(new.choices[0].message.content, old.choices[0].message.content, "text with max_completion_tokens")
    equal((old.usage.completion_tokens, old.choices[0].finish_reason), (5, "length"), "tokens and reason with max_tokens = 5")


def contents_may_be_parts():
    parts = [{"role": "user", "content": [{"type": "text", "text": "li"}, {"type": "text", "text": "ght"}]}]
    equal(chat(messages=parts).choices[0].message.content, chat().choices[0].message.content, "text of a message with parts")
    chat(messages=[{"role": "developer", "content": "Be short."}, {"role": "user", "content": "light", "name": "ada"}])


def unknown_fields_are_ignored():
    chat(user="ada", store=False, metadata={"a": "b"}, service_tier="auto", extra_body={"unknown": {"field": 1}})


def models():
    found = list(client().models.list())
    assert found and found[0].object == "model", f"models: expected a list with models, found {found}"
    one = client().models.retrieve(found[0].id)
    equal((one.id, one.owned_by), (found[0].id, "wingbeat"), "one model")
    equal(chat(model="another name").model, chat(model=found[0].id).model, "model of an answer")


CHECKS = [
    answer_has_all_fields, stream_equals_answer, seed_repeats_and_changes, helper_streams, logprobs, several_choices, stop_ends_text,
    biases_choose_tokens, limits_are_equal, contents_may_be_parts, unknown_fields_are_ignored, models,
]
