"""Completions: echo, log-probabilities, lists of prompts, token prompts."""

from server import equal

from .shared import client

TEXT = "In the beginning"


def complete(prompt=TEXT, **more):
    return client().completions.create(**{"model": "tiny", "prompt": prompt, "seed": 1, "max_tokens": 8, **more})


def stream_equals_answer():
    whole = complete().choices[0]
    equal("".join(chunk.choices[0].text for chunk in complete(stream=True) if chunk.choices), whole.text, "joined texts of a stream")
    equal(len(complete(max_tokens=3, logprobs=0).choices[0].logprobs.tokens), 3, "tokens with max_tokens = 3")


def echo_with_logprobs():
    plain = complete(logprobs=2).choices[0]
    done = complete(logprobs=2, echo=True).choices[0]
    equal(done.text, TEXT + plain.text, "text with echo")
    table = done.logprobs
    equal("".join(table.tokens), done.text, "joined tokens with echo")
    lengths = {len(table.tokens), len(table.token_logprobs), len(table.top_logprobs), len(table.text_offset)}
    equal(len(lengths), 1, "different lengths of the lists of logprobs")
    equal(table.token_logprobs[0], None, "log-probability of the first token")
    assert all(value <= 1e-6 for value in table.token_logprobs[1:]), f"log-probabilities: expected at most 0, found {table.token_logprobs}"
    for offset, token in zip(table.text_offset, table.tokens):
        equal(done.text[offset : offset + len(token)], token, f"text at offset {offset}")
    near(table.token_logprobs[-len(plain.logprobs.tokens) :], plain.logprobs.token_logprobs, "log-probabilities with and without echo")


def near(found, expected, what, most=1e-3):
    worst = max(abs(a - b) for a, b in zip(found, expected))
    assert len(found) == len(expected) and worst < most, f"{what}: expected {expected}, found {found}"


def scoring_generates_nothing():
    """Evaluation harnesses ask for the likelihood of a text in this form."""
    done = complete(max_tokens=0, logprobs=1, echo=True)
    equal(done.choices[0].text, TEXT, "text with max_tokens = 0 and echo")
    equal(done.usage.completion_tokens, 0, "completion_tokens with max_tokens = 0")


def lists_of_prompts():
    prompts = [TEXT, "A king", "light"]
    done = complete(prompts)
    equal([c.index for c in done.choices], [0, 1, 2], "indices of three prompts")
    for choice, prompt in zip(done.choices, prompts):
        equal(choice.text, complete(prompt).choices[0].text, f"text of the prompt {prompt!r} in a list")
    two = complete(prompts, n=2, temperature=1.5)
    equal([c.index for c in two.choices], list(range(6)), "indices of three prompts with n = 2")
    texts = ["", "", ""]
    for chunk in complete(prompts, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    equal(texts, [c.text for c in done.choices], "streams of three prompts")


def prompts_of_tokens():
    tokens = client().post("../tokenize", body={"content": TEXT}, cast_to=object)["tokens"]
    equal(complete(tokens).choices[0].text, complete().choices[0].text, "text of a prompt of tokens")
    equal([c.text for c in complete([tokens, tokens]).choices], [complete().choices[0].text] * 2, "texts of two prompts of tokens")
    equal(client().post("../detokenize", body={"tokens": tokens}, cast_to=object)["content"], TEXT, "text of tokens")


CHECKS = [stream_equals_answer, echo_with_logprobs, scoring_generates_nothing, lists_of_prompts, prompts_of_tokens]
