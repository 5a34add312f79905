"""Facts about a model and its device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """The device of a model. `why` is the reason for its choice."""

    id: str
    name: str
    backend: str
    kind: str
    driver: str
    why: str


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Sizes and formats of a model.

    `context` is None for a recurrent model, which has no limit. `eot_token` is the token `<|endoftext|>` between texts.
    """

    name: str
    kind: str
    architecture: str
    n_layer: int
    n_embd: int
    n_vocab: int
    n_params: int
    context: int | None
    dtype: str
    bits_per_weight: float
    weight_bytes: int
    device_bytes: int
    state_bytes: int
    weights_hash: str
    slots: int
    load_ms: float
    eot_token: int
    notes: tuple[str, ...]
    vocab_hint: str | None
    device: DeviceInfo
