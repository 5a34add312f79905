#!/usr/bin/env python3
"""Computes the official logits of a trained model. assets/golden/small-world.golden.safetensors has the logits of the embedded model.

  pip download rwkv==0.8.32 --no-deps && unzip -d package rwkv-0.8.32-py3-none-any.whl
  PYTHONPATH=package python3 golden.py ../small-world.safetensors ../../vocab/small-world.txt ../../golden

Needs torch, numpy, safetensors and the PyPI package rwkv 0.8.32 (its class for RWKV-7, on the CPU in f32).
Writes OUT/small-world.golden.safetensors, and compares with model.py.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

# The package reads these when it is imported.
os.environ.update(RWKV_V7_ON="1", RWKV_JIT_ON="0", RWKV_CUDA_ON="0")

import torch
from rwkv.model import RWKV
from safetensors.torch import load_file, save_file

from model import Rwkv
from vocab import Vocab

TEXT = (
    "\n\nOnce upon a time there was a fox named Rusty. He lived in the forest. One windy day, Rusty lost his red kite."
    "\n\nUser: hello\n\nAssistant: Hello! How can I help you?"
    "\n\nUser: What is the opposite of hot?\n\nAssistant: The"
)
GREEDY = 48  # tokens


def official(weights: dict[str, torch.Tensor], ids: list[int]) -> tuple[torch.Tensor, list[int]]:
    """Returns the package's logits after each token, and its greedy continuation."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save(weights, f"{folder}/model.pth")
        model = RWKV(model=f"{folder}/model", strategy="cpu fp32")
    logits, state = model.forward(ids, None, True)
    greedy: list[int] = []
    last = logits[-1]
    while len(greedy) < GREEDY:
        greedy.append(int(last.argmax()))
        last, state = model.forward([greedy[-1]], state)
    return logits.float().contiguous(), greedy


def ours(weights: dict[str, torch.Tensor], ids: list[int]) -> torch.Tensor:
    """Returns the logits of model.py."""
    model = Rwkv()
    for name, tensor in model.published().items():
        tensor.copy_(weights[name].view(tensor.shape))
    return model.logits(ids)


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    model_path, vocab_path, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    weights = {name: tensor.float() for name, tensor in load_file(model_path).items()}
    vocab = Vocab(vocab_path)
    ids = vocab.encode(TEXT)
    logits, greedy = official(weights, ids)
    tensors = {"tokens": torch.tensor(ids, dtype=torch.int32), "logits": logits, "greedy": torch.tensor(greedy, dtype=torch.int32)}
    save_file(tensors, out / "small-world.golden.safetensors")
    print(f"{len(ids)} tokens; {vocab.decode(greedy)!r}")
    print(f"largest difference from model.py: {(ours(weights, ids) - logits).abs().max().item():.2g}")


if __name__ == "__main__":
    main()
