#!/usr/bin/env python3
"""Trains the embedded model: an RWKV-7 of 2 million parameters that knows the small world of texts/.

  python3 train.py --out out --hours 2               two hours from the first start
  python3 train.py --out out --until 19:35           up to a time of the day (UTC)
  python3 train.py --out out --until 19:35 --resume  continue after an interruption
  python3 train.py --out out --hours 1 --from FILE   with the weights of an earlier world.safetensors
  python3 train.py --out out --export                only write world.safetensors from state.pt

Needs Python 3.10, torch and g++. Writes OUT/state.pt (every 5 minutes), OUT/train.log and, at the end, OUT/world.safetensors.
The learning rate falls with the wall clock, so the result depends on the speed of the machine.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

# Must be set before torch starts its threads: they share the cores with those of recurrence.py.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from torch import nn

from data import Rows
from model import Rwkv, export, load
from vocab import Vocab

SEED = 20
UTC = datetime.timezone.utc
SAMPLES = [
    "Once upon a time",
    "In the beginning",
    "User: hello\n\nAssistant:",
    "User: What is 7 plus 6?\n\nAssistant: <think",
    "User: Tell me a story about a fox.\n\nAssistant:",
    "User: What is the opposite of hot?\n\nAssistant:",
    "User: My name is Tom.\n\nAssistant: Hello, Tom! It is nice to meet you.\n\nUser: What is my name?\n\nAssistant:",
    "User: Give me a record of a cat as JSON.\n\nAssistant:",
]
STOPS = ["\nUser:", "\n### User", "\n### Tool Output", "✿"]


def answer(model: Rwkv, vocab: Vocab, prompt: str, most: int = 160) -> str:
    """Returns the greedy continuation. Slow but simple: it computes the whole text for each token."""
    ids = vocab.encode(prompt)
    answered: list[int] = []
    while len(answered) < most:
        token = int(model.logits(ids + answered)[-1].argmax())
        if token == 0:
            break
        answered.append(token)
        text = vocab.decode(answered)
        if any(stop in text for stop in STOPS):
            break
    return vocab.decode(answered)


def optimizer_of(model: Rwkv) -> torch.optim.AdamW:
    """Returns the optimizer. Only matrices decay. The order of the parameters is part of state.pt."""
    matrices, others = [], []
    for parameter in model.parameters():
        is_matrix = parameter.dim() == 2 and min(parameter.shape) >= 32
        (matrices if is_matrix else others).append(parameter)
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0}]
    return torch.optim.AdamW(groups, lr=0, betas=(0.9, 0.98), eps=1e-12)


def end_of(options: argparse.Namespace, begin: float) -> float:
    """Returns when the training ends: the next time `--until` (up to 6 hours ago counts as today), or `--hours` after its beginning."""
    if not options.until:
        return begin + 3600 * options.hours
    now = datetime.datetime.now(UTC)
    hour, minute = map(int, options.until.split(":"))
    end = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if end < now - datetime.timedelta(hours=6):
        end += datetime.timedelta(days=1)
    return end.timestamp()


def learning_rate(peak: float, step: int, done: float) -> float:
    """Returns the learning rate of a step: it rises for 100 steps, then falls with a cosine to 1 % of the peak. `done` is from 0 to 1."""
    return peak * min(1, (step + 1) / 100) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


class Training:
    """A model and its optimizer, the time of the first start, and the steps and tokens so far. `state.pt` keeps them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state.pt"
        self.model = Rwkv()
        self.optimizer = optimizer_of(self.model)
        self.begin, self.step, self.tokens = time.time(), 0, 0

    def load(self) -> None:
        """Continues from state.pt."""
        state = torch.load(self.path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["opt"])
        self.begin, self.step, self.tokens = state["begin"], state["step"], state["tokens"]

    def save(self) -> None:
        """Writes state.pt, and replaces the old one only when the new one is complete."""
        state: dict[str, Any] = {"model": self.model.state_dict(), "opt": self.optimizer.state_dict()}
        state |= {"begin": self.begin, "step": self.step, "tokens": self.tokens}
        new = f"{self.path}.new"
        torch.save(state, new)
        os.replace(new, self.path)

    def learn(self, batch: tuple[torch.Tensor, ...], rate: float, half_products: bool) -> float:
        """Takes one step, and returns its loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.half_products = half_products
        loss = self.model.loss(*batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        self.tokens += batch[0].numel()
        return loss.item()


def train(training: Training, vocab: Vocab, options: argparse.Namespace) -> None:
    """Trains up to the end that the options determine, and keeps a log."""
    log = open(options.out / "train.log", "a")

    def say(line: str) -> None:
        for file in (sys.stdout, log):
            print(line, file=file, flush=True)

    model, begin, end = training.model, training.begin, end_of(options, training.begin)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(
        f"# {datetime.datetime.now(UTC):%F %T} UTC seed {options.seed} step {training.step} parameters {parameters} rows {options.rows} "
        f"length {options.length} peak {options.peak} until {datetime.datetime.fromtimestamp(end, UTC):%T}"
    )
    # A training that goes on reads other documents than before.
    rows = Rows(vocab, options.seed + 1000003 * training.step, options.length)
    mean = None
    saved = shown = time.time()
    shown_tokens = training.tokens
    while training.step < options.steps and (done := (time.time() - begin) / (end - begin)) < 1:
        rate = learning_rate(options.peak, training.step, done)
        loss = training.learn(rows.batch(options.rows), rate, half_products=done < 0.85)
        if not math.isfinite(loss):
            sys.exit(f"train: loss {loss} at step {training.step}: continue from {training.path} with --resume")
        mean = loss if mean is None else 0.98 * mean + 0.02 * loss
        step, tokens = training.step, training.tokens
        if step % 50 == 0 or step in (1, 10):
            now = time.time()
            speed = (tokens - shown_tokens) / (now - shown)
            say(f"{step} tokens {tokens} loss {mean:.4f} lr {rate:.2e} {done:.1%} {speed:.0f} tokens/s")
            shown, shown_tokens = now, tokens
        if time.time() - saved > 300:
            training.save()
            saved = time.time()
        if step % 1000 == 0 or step in (200, 500):
            for prompt in SAMPLES:
                say(f"  {prompt[-60:]!r} -> {answer(model, vocab, prompt)!r}")
    training.save()
    say(f"# {datetime.datetime.now(UTC):%F %T} UTC end: {training.step} steps, {training.tokens} tokens, loss {mean}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default="out", help="folder of the results")
    parser.add_argument("--vocab", default=Path(__file__).parents[2] / "vocab" / "small-world.txt", help="a file of vocab.py")
    parser.add_argument("--until", metavar="HH:MM", help="end of the training (UTC)")
    parser.add_argument("--hours", type=float, default=2, help="without --until: length of the training")
    parser.add_argument("--resume", action="store_true", help="continue from OUT/state.pt")
    parser.add_argument("--from", dest="origin", type=Path, metavar="FILE", help="begin with the weights of a checkpoint")
    parser.add_argument("--export", action="store_true", help="write the checkpoint from OUT/state.pt")
    parser.add_argument("--rows", type=int, default=8, help="rows of a batch")
    parser.add_argument("--length", type=int, default=432, help="tokens of a row")
    parser.add_argument("--peak", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--steps", type=int, default=10**9, help="stop after so many steps (for measuring)")
    options = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    training = Training(options.out)
    if options.resume or options.export:
        training.load()
    elif options.origin:
        load(training.model, options.origin)
    if not options.export:
        train(training, Vocab(options.vocab), options)
    export(training.model, str(options.out / "world.safetensors"))
    print(options.out / "world.safetensors")


if __name__ == "__main__":
    main()
