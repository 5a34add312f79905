"""Vectors of texts."""

import base64
import math
import struct

import openai
from server import equal

from .shared import client, refused


def embed(given, **more):
    return client().embeddings.create(model="vectors", input=given, **more)


def vectors_have_length_one():
    done = embed(["light", "darkness"], encoding_format="float")
    equal([e.index for e in done.data], [0, 1], "indices of two vectors")
    for entry in done.data:
        length = math.sqrt(sum(x * x for x in entry.embedding))
        assert abs(length - 1) < 1e-3, f"length of a vector: expected 1, found {length}"
    assert done.usage.prompt_tokens > 0, f"usage: expected prompt_tokens, found {done.usage}"


def forms_are_equal():
    """The client asks for base64 if no form is given, and decodes it."""
    plain, default = embed("light", encoding_format="float").data[0].embedding, embed("light").data[0].embedding
    raw = embed("light", encoding_format="base64").data[0].embedding
    decoded = list(struct.unpack(f"<{len(plain)}f", base64.b64decode(raw)))
    for found, name in ((default, "default"), (decoded, "base64")):
        worst = max(abs(a - b) for a, b in zip(plain, found))
        assert len(found) == len(plain) and worst < 1e-6, f"vector in the form {name}: expected the floats, found a difference of {worst}"


def tokens_are_texts():
    """A model that generates text returns vectors, too. Both kinds of models accept token ids."""
    ids = client().post("../tokenize", body={"content": "light", "model": "tiny"}, cast_to=object)["tokens"]
    # In the vocabulary of the model `vectors`, the id of a byte is its value plus 1.
    for model, words, tokens in (("tiny", "light", ids), ("vectors", "In", [74, 111])):
        text, one, two = (client().embeddings.create(model=model, input=given, encoding_format="float").data for given in (words, tokens, [tokens, [74]]))
        equal((len(one), len(two)), (1, 2), f"vectors of tokens, and of two lists of tokens, model {model}")
        for found in (one[0].embedding, two[0].embedding):
            worst = max(abs(a - b) for a, b in zip(text[0].embedding, found))
            assert worst < 1e-4, f"vector of tokens, model {model}: expected the vector of their text, found a difference of {worst}"
    e = refused(openai.BadRequestError, lambda: embed([74, 99999]), "a token outside the vocabulary")
    equal(e.param, "input[1]", "param of the error")


def dimensions_are_fixed():
    n = len(embed("light").data[0].embedding)
    equal(len(embed("light", dimensions=n).data[0].embedding), n, "length with its own dimensions")
    e = refused(openai.BadRequestError, lambda: embed("light", dimensions=n + 1), "other dimensions")
    equal(e.param, "dimensions", "param of the error")


def texts_may_not_be_empty():
    refused(openai.BadRequestError, lambda: embed([]), "an empty list")


CHECKS = [vectors_have_length_one, forms_are_equal, tokens_are_texts, dimensions_are_fixed, texts_may_not_be_empty]
