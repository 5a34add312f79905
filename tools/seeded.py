"""Weights of seeded numbers, as `Synthetic` in src/words/synthetic.rs makes them. The scripts that write golden logits use them."""

import numpy as np


def range_of(name, shape):
    """Returns half the width and the centre of the range of a tensor's numbers, as `scale` in src/words/synthetic.rs."""
    last, root = name.split(".")[-1], lambda n: 1.0 / np.sqrt(np.float32(n))
    if name.endswith("s_emb.weight"):
        return 1.0 / np.sqrt(np.sqrt(np.float32(shape[-1]))), 0.0
    if name.endswith((".k_emb.weight", ".v_emb.weight")):
        return 0.5, 0.0
    if name.endswith((".lnq.weight", ".lnk.weight")):
        return 0.5, 4.0
    if (len(last) == 2 and last[0] in "wavgsk" or last in ("time_maa_w1", "time_maa_w2", "time_decay_w1", "time_decay_w2")) and last[-1] in "12":
        return root(shape[-2]), 0.0
    if last == "weight":
        return (0.1, 1.0) if len(shape) == 1 else (root(shape[-1]), 0.0)
    fixed = {"s0": (0.1, 1.0), "w0": (2.0, 0.0), "k_k": (0.1, 1.0), "k_a": (0.1, 1.0), "bias": (0.05, 0.0), "r_k": (0.2, 0.0)}
    fixed["time_decay"] = (2.5, -3.0)
    return fixed.get(last, (0.5, 0.5) if last.startswith(("x_", "time_maa_")) else (0.5, 0.0))


def numbers(name, shape, seed_of_model=1):
    """Returns a tensor of seeded numbers, rounded to f16: splitmix64, seeded with the FNV-1a hash of the name."""
    mask, seed = 2**64 - 1, 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & mask
    n = int(np.prod(shape))
    golden = 0x9E3779B97F4A7C15
    start = ((seed_of_model ^ seed) * golden) & mask
    with np.errstate(over="ignore"):
        z = np.uint64(start) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(golden)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    unit = (z >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)
    half_width, centre = range_of(name, shape)
    return (unit * np.float32(half_width) + np.float32(centre)).astype(np.float16).reshape(shape)
