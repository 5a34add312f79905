"""Compares the drop-in with the package `rwkv`: logits, states that go from one to the other, greedy and sampled texts.

usage: against_package.py MODEL VOCABULARY     MODEL: a safetensors file. The variable RWKV_V7_ON chooses the package's class
"""

from __future__ import annotations

import copy
import os
import sys

import numpy as np
import torch
from rwkv import model as official
from rwkv import utils as official_utils
from rwkv.rwkv_tokenizer import TRIE_TOKENIZER

import wingbeat
from wingbeat.rwkv import PIPELINE, PIPELINE_ARGS, RWKV

path, vocabulary = sys.argv[1:]
os.environ.setdefault("RWKV_CUDA_ON", "0")
# The package reads files of torch only.
from safetensors.torch import load_file  # noqa: E402

tensors = {name: tensor.float() for name, tensor in load_file(path).items()}
torch.save(tensors, "official.pth")
theirs = official.RWKV(model="official", strategy="cpu fp32")
ours = RWKV("official", "cpu fp32", verbose=False, vocab=vocabulary)

dice = np.random.default_rng(5)
tokens = [int(token) for token in dice.integers(1, ours.args.vocab_size, 40)]


def close(ours: torch.Tensor, theirs: torch.Tensor, bound: float) -> None:
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, (ours.shape, theirs.shape, ours.dtype, theirs.dtype)
    # The error is relative to the largest number, which counts as at least 1.
    error = float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1))
    assert error <= bound, error


for full in (False, True):
    a, state_a = ours.forward(tokens, None, full)
    b, state_b = theirs.forward(list(tokens), None, full)
    close(a, b, 1e-5)
    assert len(state_a) == len(state_b)
    for mine, other in zip(state_a, state_b, strict=True):
        assert mine.shape == other.shape and mine.dtype == other.dtype

# Each implementation continues from a state of the other.
a, _ = ours.forward(tokens[:7], copy.deepcopy(state_b))
b, _ = theirs.forward(tokens[:7], copy.deepcopy(state_b))
close(a, b, 1e-5)
a, _ = ours.forward(tokens[:7], copy.deepcopy(state_a))
b, _ = theirs.forward(tokens[:7], copy.deepcopy(state_a))
close(a, b, 1e-5)

# One token after another, with the state changed in place.
mine, other = ours.forward(tokens[:1], None)[1], theirs.forward(tokens[:1], None)[1]
for token in tokens[1:9]:
    a, same = ours.forward([token], mine)
    # torch scripts the package's `forward`, which therefore changes a copy of the list.
    b, other = theirs.forward([token], other)
    assert same is mine
close(a, b, 1e-5)

pipeline, reference = PIPELINE(ours, vocabulary), official_utils.PIPELINE(theirs, "rwkv_vocab_v20230424")
reference.tokenizer = TRIE_TOKENIZER(vocabulary)
assert wingbeat.Tokenizer.open("world").encode("naïve 日本 🐦\n\n 12 34") == official_utils.PIPELINE(theirs, "rwkv_vocab_v20230424").encode("naïve 日本 🐦\n\n 12 34")
assert pipeline.encode("In the beginning") == reference.encode("In the beginning")

draws: list[int] = []


def draw(a: int, p: np.ndarray) -> int:
    """Replaces numpy's random choice, so that both implementations choose alike: takes the token at a fixed place of the cumulative probabilities."""
    place = (0.3 + len(draws) * 0.6180339887) % 1
    draws.append(0)
    return int(np.searchsorted(np.cumsum(p), place * (1 - 1e-4), side="right"))


np.random.choice = draw
for settings in (
    {"temperature": 0, "alpha_frequency": 0, "alpha_presence": 0},
    {"temperature": 0},
    {"temperature": 1.0, "top_p": 0.7},
    {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "alpha_decay": 0.9, "token_ban": [3, 40], "chunk_len": 5},
    {"temperature": 1.3, "top_p": 0.95, "alpha_frequency": 0.7, "alpha_presence": 0.5, "token_stop": [10]},
):
    texts = []
    for pipe, kind in ((pipeline, PIPELINE_ARGS), (reference, official_utils.PIPELINE_ARGS)):
        draws.clear()
        pieces: list[str] = []
        text = pipe.generate("In the beginning God created 12 ", token_count=60, args=kind(**settings), callback=pieces.append)
        assert "".join(pieces) == text
        texts.append(text)
    assert texts[0] == texts[1], (settings, texts)

# A chat's loop: chunks of a prompt, then token by token with penalties, until an empty line.
told = []
for chat, arguments in ((ours, pipeline), (theirs, reference)):
    out, state = None, None
    tokens = arguments.encode("User: light\n\nAssistant:")
    while tokens:
        out, state = chat.forward(tokens[:4], state)
        tokens = tokens[4:]
    seen: dict[int, float] = {}
    answer: list[int] = []
    for _ in range(40):
        for token, count in seen.items():
            out[token] -= 0.4 + count * 0.4
        token = arguments.sample_logits(out, temperature=0)
        answer.append(token)
        seen = {known: count * 0.996 for known, count in seen.items()}
        seen[token] = seen.get(token, 0) + 1
        out, state = chat.forward([token], state)
    told.append(answer)
assert told[0] == told[1], told
print("ok")
