"""The embedded model in torch: an RWKV-7 of 6 layers, width 128, 2 heads of 64 and a vocabulary of 2048 (1 956 480 parameters)."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from recurrence import HEAD, Wkv

VOCABULARY, LAYERS, WIDTH = 2048, 6, 128
HEADS = WIDTH // HEAD


@dataclasses.dataclass
class Context:
    """Values that all layers share: the beginnings of documents, the precision, and the v of layer 0."""

    reset: torch.Tensor  # [B, T], 1 where a document begins
    half: bool
    first_v: torch.Tensor | None = None

    def __post_init__(self) -> None:
        self.keep = (1 - self.reset).unsqueeze(-1).float()

    def shifted(self, x: torch.Tensor) -> torch.Tensor:
        """Returns for each token the x of the token before it, or 0 where a document begins."""
        return F.pad(x, (0, 0, 1, -1)) * self.keep


def linear(x: torch.Tensor, weight: torch.Tensor, half: bool) -> torch.Tensor:
    """Returns x weight^T. With `half`, the factors are in bf16: faster, and close enough for all but the end of the training."""
    if half:
        return (x.bfloat16() @ weight.bfloat16().t()).float()
    return x @ weight.t()


def filled(*shape: int, value: float = 0.0) -> nn.Parameter:
    """Returns a parameter with the same value everywhere."""
    return nn.Parameter(torch.full(shape, value))


def orthogonal(rows: int, columns: int, gain: float) -> nn.Parameter:
    """Returns a random orthogonal matrix."""
    matrix = nn.Parameter(torch.empty(rows, columns))
    nn.init.orthogonal_(matrix, gain=gain)
    return matrix


def channels(values: torch.Tensor) -> nn.Parameter:
    """Returns a parameter with one value per channel."""
    return nn.Parameter(values.view(1, 1, WIDTH))


class TimeMix(nn.Module):
    """The attention of RWKV-7. The names of the parameters are those of published checkpoints, the initial values of RWKV-LM."""

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        depth = 1 - layer / LAYERS
        z = torch.arange(WIDTH) / (WIDTH - 1)
        zigzag = ((torch.arange(WIDTH) % HEAD) - (HEAD - 1) / 2) / ((HEAD - 1) / 2)
        zigzag = zigzag * zigzag.abs()
        for letter, exponent in zip("rwkvag", (0.2, 0.9, 0.7, 0.7, 0.9, 0.2)):
            setattr(self, f"x_{letter}", channels(1 - (torch.arange(WIDTH) / WIDTH).pow(exponent * depth)))
        self.w0 = channels(-6 + 6 * z ** (1 + depth**0.3) + 0.5 + zigzag * 2.5)
        self.a0 = channels(-0.19 + zigzag * 0.3 + (z - 0.5) * 0.4)
        for letter, rank in (("w", 32), ("a", 32), ("v", 32), ("g", 64)):
            if letter != "v" or layer > 0:
                setattr(self, f"{letter}1", filled(WIDTH, rank))
                setattr(self, f"{letter}2", orthogonal(rank, WIDTH, 0.1))
        if layer > 0:
            self.v0 = channels(0.73 - (z - 0.5) * 0.4)
        self.k_k = channels(0.71 - (z - 0.5) * 0.1)
        self.k_a = filled(1, 1, WIDTH, value=1.02)
        self.r_k = filled(HEADS, HEAD, value=-0.04)
        self.receptance = orthogonal(WIDTH, WIDTH, 1.0)
        self.key = orthogonal(WIDTH, WIDTH, 0.1)
        self.value = orthogonal(WIDTH, WIDTH, 1.0)
        self.output = orthogonal(WIDTH, WIDTH, 0.3)
        self.ln_x = nn.LayerNorm(WIDTH)
        self.ln_x.weight.data.fill_(((1 + layer) / LAYERS) ** 0.7)

    def forward(self, x: torch.Tensor, context: Context) -> torch.Tensor:
        B, T, D = x.shape
        dx = context.shifted(x) - x
        xr, xw, xk, xv, xa, xg = (torch.addcmul(x, dx, getattr(self, f"x_{letter}")) for letter in "rwkvag")
        r = linear(xr, self.receptance, context.half)
        k = linear(xk, self.key, context.half)
        v = linear(xv, self.value, context.half)
        w = torch.exp(-0.606531 * torch.sigmoid(self.w0 + torch.tanh(xw @ self.w1) @ self.w2))
        if context.first_v is None:
            context.first_v = v
        else:
            v = torch.lerp(v, context.first_v, torch.sigmoid(self.v0 + xv @ self.v1 @ self.v2))
        a = torch.sigmoid(self.a0 + xa @ self.a1 @ self.a2)
        g = torch.sigmoid(xg @ self.g1) @ self.g2
        kk = F.normalize((k * self.k_k).view(B, T, HEADS, HEAD), dim=-1).view(B, T, D)
        k = k * (1 + (a - 1) * self.k_a)
        y = Wkv.apply(*(each.contiguous() for each in (r, w, k, v, -kk, kk * a)), context.reset)
        y = F.group_norm(y.view(B * T, D), HEADS, self.ln_x.weight, self.ln_x.bias, eps=64e-5).view(B, T, D)
        bonus = ((r * k).view(B, T, HEADS, HEAD) * self.r_k).sum(-1, keepdim=True)
        y = y + bonus.mul(v.view(B, T, HEADS, HEAD)).view(B, T, D)
        return linear(y * g, self.output, context.half)


class ChannelMix(nn.Module):
    """The feed-forward network of RWKV-7."""

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.x_k = channels(1 - (torch.arange(WIDTH) / WIDTH).pow((1 - layer / LAYERS) ** 4))
        self.key = orthogonal(4 * WIDTH, WIDTH, 1.0)
        self.value = orthogonal(WIDTH, 4 * WIDTH, 0.3)

    def forward(self, x: torch.Tensor, context: Context) -> torch.Tensor:
        k = linear(torch.addcmul(x, context.shifted(x) - x, self.x_k), self.key, context.half)
        return linear(torch.relu(k).square(), self.value, context.half)


class Rwkv(nn.Module):
    """The model. `half_products` computes the large products in bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.half_products = False
        self.emb = nn.Parameter(torch.empty(VOCABULARY, WIDTH).uniform_(-1e-2, 1e-2))
        self.head = orthogonal(VOCABULARY, WIDTH, 0.5)
        self.ln0, self.ln_out = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.ln1 = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS))
        self.ln2 = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS))
        self.att = nn.ModuleList(TimeMix(layer) for layer in range(LAYERS))
        self.ffn = nn.ModuleList(ChannelMix(layer) for layer in range(LAYERS))

    def forward(self, ids: torch.Tensor, reset: torch.Tensor | None = None) -> torch.Tensor:
        """Maps ids [B, T] to the inputs of the head [B, T, D]. reset [B, T] (i32) is 1 where a document begins."""
        if reset is None:
            reset = torch.zeros_like(ids, dtype=torch.int32)
        context = Context(reset, self.half_products)
        x = self.ln0(F.embedding(ids, self.emb))
        for ln1, att, ln2, ffn in zip(self.ln1, self.att, self.ln2, self.ffn):
            x = x + att(ln1(x), context)
            x = x + ffn(ln2(x), context)
        return self.ln_out(x)

    def loss(self, ids: torch.Tensor, reset: torch.Tensor, target: torch.Tensor, learned: torch.Tensor) -> torch.Tensor:
        """Returns the mean loss of the targets that are learned. The head runs only for these."""
        x = self(ids, reset).flatten(0, 1)
        at = learned.flatten().nonzero()[:, 0]
        return F.cross_entropy(linear(x[at], self.head, self.half_products), target.flatten()[at])

    @torch.no_grad()
    def logits(self, ids: list[int]) -> torch.Tensor:
        """Returns the logits [T, V] after each token of a text, in f32."""
        self.half_products = False
        return self(torch.tensor([ids]))[0] @ self.head.T

    def published(self) -> dict[str, torch.Tensor]:
        """Returns the parameters by their names in published checkpoints, sorted."""
        named = {
            "emb.weight": self.emb,
            "head.weight": self.head,
            "ln_out.weight": self.ln_out.weight,
            "ln_out.bias": self.ln_out.bias,
            "blocks.0.ln0.weight": self.ln0.weight,
            "blocks.0.ln0.bias": self.ln0.bias,
        }
        for part in ("ln1", "ln2", "att", "ffn"):
            for layer, module in enumerate(getattr(self, part)):
                for name, parameter in module.named_parameters():
                    suffix = ".weight" if name in ("key", "value", "receptance", "output") else ""
                    named[f"blocks.{layer}.{part}.{name}{suffix}"] = parameter
        return {name: named[name].detach() for name in sorted(named)}


def export(model: Rwkv, path: str) -> None:
    """Writes a checkpoint as safetensors in f16, with the names, shapes and metadata of the embedded model."""
    header: dict[str, dict[str, object]] = {"__metadata__": {"format": "pt", "wingbeat.layout": "official"}}
    data = b""
    for name, tensor in model.published().items():
        values = tensor.half().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F16", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".new", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    os.replace(path + ".new", path)


@torch.no_grad()
def load(model: Rwkv, path: Path) -> None:
    """Reads the weights of a checkpoint that `export` wrote. They have the precision of f16."""
    file = path.read_bytes()
    length = struct.unpack("<Q", file[:8])[0]
    header, data = json.loads(file[8 : 8 + length]), bytearray(file[8 + length :])
    for name, tensor in model.published().items():
        begin, end = header[name]["data_offsets"]
        tensor.copy_(torch.frombuffer(data, dtype=torch.half, count=(end - begin) // 2, offset=begin).view(tensor.shape))
