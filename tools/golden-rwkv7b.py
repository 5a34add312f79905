#!/usr/bin/env python3
"""Writes tests/models/made-rwkv7b.golden.safetensors: logits of the official demo for a small RWKV-7b.

    git clone --depth 1 https://github.com/BlinkDL/RWKV-LM
    pip install torch numpy; python tools/golden-rwkv7b.py RWKV-LM/RWKV-v7/rwkv_v7b_demo.py

The package `rwkv` does not run RWKV-7b, so this script runs the model code of the official demo: the class RWKV_x070 and the two
functions after it. The script changes three things. The model is on the CPU, it computes in f64, and a loop replaces the CUDA kernel of
the recurrence. The demo fixes some sizes: keys have 256 channels, low-rank pairs a rank of 32.

The weights are seeded numbers, so no checkpoint is stored. tests/deep_attention.rs makes the same weights with `Synthetic { seed: 1 }`
(src/words/synthetic.rs). tools/seeded.py repeats the formulas of `Synthetic`.
"""

import os
import sys
import tempfile
import types
from typing import List

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, HEADS, SIZE, FFN, VOCAB = 3, 3, 16, 200, 40
KEYS, RANK = 256, 32
WIDTH = HEADS * SIZE


def seeded():
    """Returns golden-rwkv7a.py up to the line that runs the model: the seeded weights of RWKV-7a and the writer of the golden file."""
    with open(os.path.join(HERE, "golden-rwkv7a.py")) as file:
        text = file.read()
    text = text.split("with tempfile.")[0].replace("from rwkv.model import RWKV_x070\n", "")
    module = types.ModuleType("seeded")
    exec(compile(text, "golden-rwkv7a.py", "exec"), module.__dict__)
    return module


def shapes(seeded):
    c, out = WIDTH, seeded.shapes()
    for i in range(LAYERS):
        qkv = f"blocks.{i}.qkv."
        out.update({qkv + "qq.weight": [KEYS, c], qkv + "k1": [c, RANK], qkv + "k2": [RANK, KEYS]})
        out.update({qkv + "v1": [c, RANK], qkv + "v2": [RANK, c]})
        out.update({qkv + "k_emb.weight": [VOCAB, KEYS], qkv + "k_emb_x.weight": [KEYS, c]})
        out.update({qkv + "v_emb.weight": [VOCAB, c], qkv + "v_emb_x.weight": [c, c]})
        for name, width in [("q", KEYS), ("k", KEYS), ("v", c)]:
            out.update({f"{qkv}x_{name}": [width], f"{qkv}ln{name}.weight": [width], f"{qkv}ln{name}.bias": [width]})
    return out


def official(path):
    """Returns the names that the demo's model code defines. `path` is the demo."""
    with open(path) as file:
        text = file.read()
    text = text[text.index("class RWKV_x070(") : text.index("# The testing code")]
    # Without the last replacement, the recurrent state would be f32.
    text = text.replace('"cuda"', '"cpu"').replace("'cuda'", "'cpu'").replace("dtype=torch.float,", "dtype=DTYPE,")
    same = lambda function: function
    names = dict(nn=nn, F=F, torch=torch, types=types, List=List, DTYPE=torch.float64, MyModule=nn.Module)
    names.update(MyFunction=same, MyStatic=same, RWKV7_OP=recurrence)
    names["args"] = types.SimpleNamespace(n_layer=LAYERS, n_embd=WIDTH, vocab_size=VOCAB, head_size=SIZE)
    exec(compile(text, path, "exec"), names)
    return names


def recurrence(state, r, w, k, v, a, b):
    """Computes the recurrence of the CUDA kernel in a loop: S <- S diag(exp(-exp(w))) + (S a) b^T + v k^T, y = S r, for each head. Changes `state`
    in place."""
    heads = lambda x: x.view(x.shape[0], HEADS, SIZE)
    r, w, k, v, a, b = map(heads, (r, torch.exp(-torch.exp(w)), k, v, a, b))
    y = torch.empty_like(r)
    for t in range(r.shape[0]):
        removed = (state @ a[t].unsqueeze(-1)) @ b[t].unsqueeze(-2)
        state.copy_(state * w[t].unsqueeze(-2) + removed + v[t].unsqueeze(-1) @ k[t].unsqueeze(-2))
        y[t] = (state @ r[t].unsqueeze(-1)).squeeze(-1)
    return y.reshape(r.shape[0], WIDTH)


if len(sys.argv) != 2:
    sys.exit(__doc__)
made, demo = seeded(), official(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    tensors = {n: torch.from_numpy(made.numbers(n, s)).reshape(made.official(n, s)) for n, s in shapes(made).items()}
    torch.save(tensors, folder + "/made.pth")
    demo["args"].MODEL_NAME = folder + "/made"
    model = demo["RWKV_x070"](demo["args"])

tokens = [(i * i * 7 + 3 * i + 1) % VOCAB for i in range(150)]
logits, state = model.forward(tokens, None, True)
one, check = None, []
for token in tokens:
    out, one = model.forward(token, one)
    check.append(out)
assert torch.allclose(torch.stack(check), logits, atol=1e-9), "the demo disagrees with itself"
greedy, out = [], logits[-1]
for _ in range(12):
    greedy.append(int(out.argmax()))
    out, state = model.forward(greedy[-1], state)
target = os.path.join(HERE, "../tests/models/made-rwkv7b.golden.safetensors")
arrays = {"tokens": np.array(tokens, np.int32), "greedy": np.array(greedy, np.int32), "logits": logits.numpy().astype(np.float32)}
made.write(target, arrays)
print("greedy", greedy, "spread", float(logits.std()))
