#!/usr/bin/env python3
"""Writes tests/models/made-{arwkv7,arwkv7-bare,qrwkv6}.golden.safetensors: logits of small models with a time mix of RWKV in the body of Qwen2.

    pip install llama-cpp-python gguf numpy safetensors; python tools/golden-qwen.py [FOLDER]

The weights are seeded numbers, so no checkpoint is stored; tests/qwen.rs makes the same weights. The script writes a GGUF file of each model, and runs
llama.cpp on it in f32. It also computes the formulas in float64, and compares both. The file has the logits of the float64 computation, rounded to
f32. With FOLDER, the GGUF files stay there.

To use a llama.cpp of your own: LLAMA_CPP_LIB_PATH=FOLDER names the folder of libllama.so, and PYTHONPATH the source of llama-cpp-python.
"""

import os
import sys
import tempfile

import gguf
import llama_cpp
import numpy as np
from safetensors.numpy import save_file
from seeded import numbers

LAYERS, WIDTH, FFN, VOCAB, EPS = 3, 128, 200, 40, 1e-6
RANKS = {"w": 8, "a": 9, "v": 7, "g": 10}
MIX_RANK, DECAY_RANK = 6, 8
# name: (architecture of GGUF, head size, heads of keys, has a gate, has a group norm)
MODELS = {
    "arwkv7": ("arwkv7", 64, 2, True, True),
    "arwkv7-bare": ("arwkv7", 64, 2, False, False),
    "qrwkv6": ("rwkv6qwen2", 32, 2, True, False),
}
OUTSIDE = {"emb.weight": "token_embd.weight", "ln_out.weight": "output_norm.weight", "head.weight": "output.weight"}
PARTS = {"ln1.weight": "attn_norm.weight", "ln2.weight": "ffn_norm.weight", "att.ln_x.weight": "time_mix_ln.weight", "att.ln_x.bias": "time_mix_ln.bias"}


def shapes(name):
    arch, size, kv_heads, is_gated, is_normed = MODELS[name]
    c, keys = WIDTH, kv_heads * size
    out = {"emb.weight": [VOCAB, c], "head.weight": [VOCAB, c], "ln_out.weight": [c]}
    for i in range(LAYERS):
        block, att = f"blocks.{i}.", f"blocks.{i}.att."
        out.update({block + "ln1.weight": [c], block + "ln2.weight": [c]})
        out.update({block + "ffn.gate.weight": [FFN, c], block + "ffn.up.weight": [FFN, c], block + "ffn.down.weight": [c, FFN]})
        out.update({att + n + ".weight": [c, c] for n in ["receptance", "output"]})
        out.update({att + n + ".weight": [keys, c] for n in ["key", "value"]})
        if arch == "arwkv7":
            out.update({att + "x_" + m: [c] for m in "rwkva" + "g" * is_gated})
            for n, rank in RANKS.items():
                if (n != "v" or i > 0) and (n != "g" or is_gated):
                    out.update({f"{att}{n}1": [c, rank], f"{att}{n}2": [rank, c]})
                    out.update({f"{att}{n}0": [c]} if n != "g" else {})
            out.update({att + "k_k": [c], att + "k_a": [c], att + "r_k": [c // size, size]})
            if is_normed:
                out.update({att + "ln_x.weight": [c], att + "ln_x.bias": [c]})
        else:
            out.update({att + "gate.weight": [c, c], att + "receptance.bias": [c], att + "key.bias": [keys], att + "value.bias": [keys]})
            out.update({att + "time_maa_" + m: [c] for m in "xwkvrg"})
            out.update({att + "time_maa_w1": [c, 5 * MIX_RANK], att + "time_maa_w2": [5, MIX_RANK, c]})
            out.update({att + "time_decay": [c], att + "time_decay_w1": [c, DECAY_RANK], att + "time_decay_w2": [DECAY_RANK, c]})
    return out


def write_gguf(path, name, tensors):
    """Writes the tensors under llama.cpp's names, in f32. Low-rank matrices are stored transposed, mixes in one tensor."""
    arch, size, kv_heads, is_gated, _ = MODELS[name]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_wkv_head_size(size)
    writer.add_token_shift_count(1)
    writer.add_head_count(0)
    if arch == "arwkv7":
        writer.add_decay_lora_rank(RANKS["w"])
        writer.add_iclr_lora_rank(RANKS["a"])
        writer.add_value_residual_mix_lora_rank(RANKS["v"])
        writer.add_gate_lora_rank(RANKS["g"] if is_gated else 0)
    else:
        writer.add_head_count_kv(kv_heads)
        writer.add_time_mix_extra_dim(MIX_RANK)
        writer.add_time_decay_extra_dim(DECAY_RANK)
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(VOCAB)
    writer.add_eos_token_id(1)
    put = lambda name, array: writer.add_tensor(name, np.ascontiguousarray(array, np.float32))
    for full, array in tensors.items():
        if full in OUTSIDE:
            put(OUTSIDE[full], array)
            continue
        _, i, part = full.split(".", 2)
        last = part.split(".")[-1]
        if part in PARTS:
            put(f"blk.{i}.{PARTS[part]}", array)
        elif part.startswith("ffn."):
            put(f"blk.{i}.{part.replace('.', '_', 1)}", array)
        elif last in ("weight", "bias"):
            put(f"blk.{i}.time_mix_{part.removeprefix('att.')}", array)
        elif last.startswith("x_") or last in ("time_maa_w", "time_maa_k", "time_maa_v", "time_maa_r", "time_maa_g"):
            continue
        else:
            theirs = {"time_maa_x": "lerp_x", "time_maa_w1": "w1", "time_maa_w2": "w2"}.get(last, last.removeprefix("time_"))
            is_pair = last[-1] in "12"
            array = array.reshape(-1) if last == "r_k" else array.swapaxes(-1, -2) if is_pair else array
            put(f"blk.{i}.time_mix_{theirs}.weight", array)
            if i == "0" and last in ("a0", "a1", "a2"):
                put(f"blk.0.time_mix_v{last[1]}.weight", array)  # not used, but llama.cpp wants it
    for i in range(LAYERS):
        mixes = [f"x_{m}" for m in "rwkva" + "g" * is_gated] if arch == "arwkv7" else [f"time_maa_{m}" for m in "wkvrg"]
        put(f"blk.{i}.time_mix_lerp_fused.weight", np.stack([tensors[f"blocks.{i}.att.{m}"] for m in mixes])[:, None, None, :])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rms(x, weight):
    return x / np.sqrt((x * x).mean() + EPS) * weight


def reference(name, tensors, tokens):
    """Returns the logits after each token, in float64."""
    arch, size, kv_heads, is_gated, is_normed = MODELS[name]
    p = {n: a.astype(np.float64) for n, a in tensors.items()}
    heads = WIDTH // size
    states = np.zeros((LAYERS, heads, size, size))
    shifts = np.zeros((LAYERS, WIDTH))
    logits = []
    for token in tokens:
        x = p["emb.weight"][token]
        v_first = None
        for i in range(LAYERS):
            g = lambda n: p[f"blocks.{i}.{n}"]
            w = lambda n: p[f"blocks.{i}.att.{n}"]
            hat = rms(x, g("ln1.weight"))
            before, shifts[i] = shifts[i].copy(), hat
            mixed = lambda mix: hat + (before - hat) * mix
            rows = lambda a: a.reshape(-1, size)
            if arch == "arwkv7":
                xr, xw, xk, xv, xa = (mixed(w("x_" + m)) for m in "rwkva")
                r, k, v = (w(n + ".weight") @ m for n, m in [("receptance", xr), ("key", xk), ("value", xv)])
                decay = np.exp(-np.exp(-0.5) * sigmoid(w("w0") + np.tanh(xw @ w("w1")) @ w("w2")))
                a = sigmoid(w("a0") + xa @ w("a1") @ w("a2"))
                if v_first is None:
                    v_first = v
                else:
                    v = v + (v_first - v) * sigmoid(w("v0") + xv @ w("v1") @ w("v2"))
                kk = rows(k * w("k_k"))
                kk = kk / np.maximum(np.linalg.norm(kk, axis=1, keepdims=True), 1e-12)
                k = k * (1 + (a - 1) * w("k_a"))
                r, k, v, decay, a = map(rows, (r, k, v, decay, a))
                y = np.zeros((heads, size))
                for h in range(heads):
                    s = states[i, h]
                    s = s * decay[h] - np.outer(s @ kk[h], kk[h] * a[h]) + np.outer(v[h], k[h])
                    states[i, h], y[h] = s, s @ r[h]
                if is_normed:
                    y = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 64e-5)
                    y = y * rows(w("ln_x.weight")) + rows(w("ln_x.bias"))
                y = (y + (r * k * w("r_k")).sum(1, keepdims=True) * v).reshape(-1)
                if is_gated:
                    y = y * (sigmoid(mixed(w("x_g")) @ w("g1")) @ w("g2"))
            else:
                z = np.tanh(mixed(w("time_maa_x")) @ w("time_maa_w1")).reshape(5, -1)
                xw, xk, xv, xr, xg = (mixed(w("time_maa_" + m) + z[j] @ w("time_maa_w2")[j]) for j, m in enumerate("wkvrg"))
                r, k, v = (w(n + ".weight") @ m + w(n + ".bias") for n, m in [("receptance", xr), ("key", xk), ("value", xv)])
                decay = rows(np.exp(-np.exp(w("time_decay") + np.tanh(xw @ w("time_decay_w1")) @ w("time_decay_w2"))))
                r, k, v = rows(r), np.repeat(rows(k), heads // kv_heads, 0), np.repeat(rows(v), heads // kv_heads, 0)
                y = np.zeros((heads, size))
                for h in range(heads):
                    s = states[i, h] * decay[h] + np.outer(v[h], k[h] * (1 - decay[h]))
                    states[i, h], y[h] = s, s @ r[h] / np.sqrt(size)
                y = y.reshape(-1) * sigmoid(w("gate.weight") @ xg)
            x = x + w("output.weight") @ y
            hat = rms(x, g("ln2.weight"))
            gate = g("ffn.gate.weight") @ hat
            x = x + g("ffn.down.weight") @ (gate * sigmoid(gate) * (g("ffn.up.weight") @ hat))
        logits.append(p["head.weight"] @ rms(x, p["ln_out.weight"]))
    return np.array(logits)


def llama(path, tokens):
    """Returns llama.cpp's logits after each token."""
    model = llama_cpp.Llama(path, n_ctx=512, n_batch=512, logits_all=True, n_gpu_layers=0, verbose=False)
    model.eval(tokens)
    return np.array(model.scores[: len(tokens)], dtype=np.float64)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    tokens = [(i * i * 7 + 3 * i + 1) % VOCAB for i in range(40)]
    for name in MODELS:
        tensors = {n: numbers(n, s) for n, s in shapes(name).items()}
        path = os.path.join(folder, f"made-{name}.gguf")
        write_gguf(path, name, tensors)
        logits = reference(name, tensors, tokens)
        theirs = llama(path, tokens)
        error = ((theirs - logits) ** 2).sum() / (logits**2).sum()
        greedy = []
        for _ in range(12):
            greedy.append(int(reference(name, tensors, tokens + greedy)[-1].argmax()))
        print(f"{name}: spread {logits.std():.3f}, llama.cpp against float64: nmse {error:.1e}, greedy {greedy}")
        assert error < 1e-9, name
        target = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"../tests/models/made-{name}.golden.safetensors")
        save_file({"tokens": np.array(tokens, np.int32), "greedy": np.array(greedy, np.int32), "logits": logits.astype(np.float32)}, target)


main()
