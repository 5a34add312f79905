#!/usr/bin/env python3
"""Writes tests/models/made-rwkv7a.golden.safetensors: logits of the official package `rwkv` for a small RWKV-7a.

    pip install rwkv==0.8.32 torch numpy; python tools/golden-rwkv7a.py

The weights are seeded numbers, so no checkpoint is stored. tests/deep_embed.rs makes the same weights with `Synthetic { seed: 1 }`
(src/words/synthetic.rs). tools/seeded.py repeats the formulas of `Synthetic`. This script writes a .pth, and runs the package on it in f32.
"""

import json
import os
import struct
import tempfile

os.environ.update(RWKV_V7_ON="1", RWKV_DE_VERSION="1", RWKV_JIT_ON="1", RWKV_CUDA_ON="0")
import numpy as np
import torch
from rwkv.model import RWKV_x070
from seeded import numbers

LAYERS, HEADS, SIZE, FFN, VOCAB, RANK = 3, 3, 16, 200, 40, 32
WIDTH = HEADS * SIZE
RANKS = {"w": 8, "a": 9, "v": 7, "g": 10}


def shapes():
    c, out = WIDTH, {"emb.weight": [VOCAB, WIDTH], "head.weight": [VOCAB, WIDTH]}
    norm = lambda name: out.update({f"{name}.weight": [c], f"{name}.bias": [c]})
    norm("blocks.0.ln0"), norm("ln_out")
    for i in range(LAYERS):
        att, ffn = f"blocks.{i}.att.", f"blocks.{i}.ffn."
        norm(f"blocks.{i}.ln1"), norm(f"blocks.{i}.ln2"), norm(att + "ln_x")
        out.update({att + "x_" + m: [c] for m in "rwkvag"})
        out.update({att + n + ".weight": [c, c] for n in ["receptance", "key", "value", "output"]})
        for n, rank in RANKS.items():
            if n != "v" or i > 0:
                out.update({f"{att}{n}1": [c, rank], f"{att}{n}2": [rank, c]})
            if n != "g" and (n != "v" or i > 0):
                out[f"{att}{n}0"] = [c]
        out.update({att + "k_k": [c], att + "k_a": [c], att + "r_k": [HEADS, SIZE]})
        out.update({ffn + "x_k": [c], ffn + "key.weight": [FFN, c], ffn + "value.weight": [c, FFN]})
        out.update({ffn + "s_emb.weight": [VOCAB, RANK * RANK], ffn + "s_emb_x.weight": [RANK * RANK, c]})
        out.update({ffn + "s0": [FFN], ffn + "s1": [c, RANK], ffn + "s2": [RANK, FFN]})
    return out


def official(name, shape):
    """Returns the shape in official files, which store the vectors of mixes, biases and keys as [1, 1, C]."""
    vector = len(shape) == 1 and not name.endswith((".weight", ".bias"))
    return [1, 1, *shape] if vector else shape


def write(path, tensors):
    header, at = {}, 0
    for name, array in tensors.items():
        dtype = {"int32": "I32", "float32": "F32"}[str(array.dtype)]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values()))


with tempfile.TemporaryDirectory() as folder:
    tensors = {n: torch.from_numpy(numbers(n, s)).reshape(official(n, s)) for n, s in shapes().items()}
    torch.save(tensors, folder + "/made.pth")
    model = RWKV_x070(folder + "/made", "cpu fp32")

tokens = [(i * i * 7 + 3 * i + 1) % VOCAB for i in range(40)]
logits, state = model.forward(tokens, None, True)
one, check = None, []
for token in tokens:
    out, one = model.forward(token, one)
    check.append(out)
assert torch.allclose(torch.stack(check), logits, atol=1e-4), "the package disagrees with itself"
greedy, out = [], logits[-1]
for _ in range(12):
    greedy.append(int(out.argmax()))
    out, state = model.forward(greedy[-1], state)
target = os.path.join(os.path.dirname(__file__), "../tests/models/made-rwkv7a.golden.safetensors")
write(target, {"tokens": np.array(tokens, np.int32), "greedy": np.array(greedy, np.int32), "logits": logits.numpy().astype(np.float32)})
print("greedy", greedy, "spread", float(logits.std()))
