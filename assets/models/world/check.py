#!/usr/bin/env python3
"""Checks the training: `recurrence` compares wkv7.cpp with plain torch in f64 (needs torch and g++), `heldout` the held-out prompts.

  python3 check.py recurrence
  python3 check.py heldout
"""

from __future__ import annotations

import itertools
import json
import sys

from texts.documents import documents
from texts.heldout import heldout as new_items
from texts.heldout import right, stored

# A larger difference, relative to the largest value, is a mistake; those of f32 are near 1e-6.
TOLERANCE = 1e-4


def recurrence() -> list[str]:
    """Compares the recurrence and its gradients for two rows of 37 tokens, with resets in and between the kept states."""
    import torch
    import torch.nn.functional as F

    from recurrence import Wkv

    B, T, D, H, N = 2, 37, 128, 2, 64
    torch.manual_seed(0)
    r, w, k, v = (torch.randn(B, T, D) * 0.5 for _ in range(4))
    w = torch.sigmoid(w) * 0.45 + 0.55
    kk = F.normalize(torch.randn(B, T, H, N), dim=-1).view(B, T, D)
    inputs = [r, w, k, v, -kk, kk * torch.rand(B, T, D)]
    reset = torch.zeros(B, T, dtype=torch.int32)
    for row, t in ((0, 0), (0, 11), (0, 16), (1, 5), (1, 32)):
        reset[row, t] = 1
    dy = torch.randn(B, T, D)

    def plain(*inputs: torch.Tensor) -> torch.Tensor:
        r, w, k, v, a, b = (x.view(B, T, H, N) for x in inputs)
        state = torch.zeros(B, H, N, N, dtype=r.dtype)
        outputs = []
        for t in range(T):
            state = state * (1 - reset[:, t]).view(B, 1, 1, 1)
            sa = state @ a[:, t, :, :, None]
            state = state * w[:, t, :, None] + sa * b[:, t, :, None] + v[:, t, :, :, None] * k[:, t, :, None]
            outputs.append((state @ r[:, t, :, :, None])[..., 0])
        return torch.stack(outputs, 1).view(B, T, D)

    expected = [x.double().requires_grad_() for x in inputs]
    found = [x.clone().requires_grad_() for x in inputs]
    y, z = plain(*expected), Wkv.apply(*found, reset)
    y.backward(dy.double())
    z.backward(dy)
    pairs = [("y", y, z)] + [(f"gradient of {name}", u.grad, v.grad) for name, u, v in zip("rwkvab", expected, found)]
    faults = []
    for name, u, v in pairs:
        difference = ((u - v).abs().max() / u.abs().max()).item()
        print(f"{name}: relative difference {difference:.1e}")
        if not difference < TOLERANCE:
            faults.append(f"{name} differs by {difference:.1e}, at most {TOLERANCE:.0e} expected")
    return faults


def heldout(n: int = 40000) -> list[str]:
    """Checks that the texts give heldout.jsonl, the judge accepts the expected answers, and n documents have no held-out prompt."""
    items = stored()
    faults = []
    if items != json.loads(json.dumps(new_items(len(items)))):
        faults.append("heldout.jsonl differs from the output of python3 -m texts --heldout")
    prompts = set()
    for item in items:
        if item["expected"] is not None and not right(item["expected"], item["check"]):
            faults.append(f"the judge refuses an expected answer: {item['kind']}: {item['expected']}")
        if not item["tools"] and not item["system"]:
            names = {"user": "User: ", "assistant": "Assistant: "}
            prompts.add("\n\n".join(names[role] + content for role, content in item["messages"]).lower())
    for document in itertools.islice(documents(20), n):
        parts = "".join(text for text, _ in document).lower().strip().split("\n\nassistant:")
        for end in range(1, len(parts)):
            prompt = "\n\nassistant:".join(parts[:end])
            if prompt in prompts:
                faults.append(f"the training has a held-out prompt: {prompt[-100:]}")
    print(f"{len(items)} held-out prompts; {len(prompts)} of them searched for in {n} documents")
    return faults


def main() -> None:
    checks = {"recurrence": recurrence, "heldout": heldout}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    if faults := checks[sys.argv[1]]():
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
