"""The fields of requests and the options of models, for type checkers. At run time, requests are plain keyword arguments."""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

from .errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Tokens = Union[Sequence[int], NDArray[np.integer[Any]]]
    Prompt = Union[str, Tokens]

PathLike = Union[str, "os.PathLike[str]"]


class Settings(TypedDict, total=False):
    """The settings of a request, as in the JSON of the server. A setting that is missing has the default of the model.

    Length: max_tokens (-1: no limit), min_tokens, stop, stop_token_ids, ignore_eos.
    Sampling: temperature (0: the most likely token), top_p, top_k, min_p, typical, presence_penalty, frequency_penalty, penalty_decay, repeat_penalty,
    logit_bias, ban, seed, preset, sampler_order, mirostat (its target), mirostat_rate, top_n_sigma, repeat_last_n, dry_multiplier, dry_base,
    dry_allowed_length, dry_range, dry_breaker.
    Results: n (texts), logprobs, top_logprobs, echo, return_progress.
    Form: grammar, json_schema, json_object, json_value, regex, choice, close, response_format, bad_words (texts that never occur), allowed_token_ids.
    Chat: tools, tool_choice, thinking, reasoning_effort, format, user_name, assistant_name, continue_final_message, add_bos.
    States and queue: state (begin with it), save_state (keep the end under this name), no_cache, priority.
    """

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    typical: float
    presence_penalty: float
    frequency_penalty: float
    penalty_decay: float
    repeat_penalty: float
    logit_bias: Mapping[int, float]
    ban: Sequence[int]
    seed: int
    preset: str
    sampler_order: Literal["pip", "hf"]
    mirostat: float
    mirostat_rate: float
    top_n_sigma: float
    repeat_last_n: int
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_breaker: Sequence[str]
    dry_range: int
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    min_tokens: int
    bad_words: Sequence[str]
    allowed_token_ids: Sequence[int]
    ignore_eos: bool
    n: int
    logprobs: int | bool
    top_logprobs: int
    echo: bool
    grammar: str
    json_schema: Mapping[str, Any] | str
    json_object: bool
    json_value: bool
    regex: str
    choice: Sequence[str]
    close: bool
    response_format: Mapping[str, Any]
    tools: Sequence[Mapping[str, Any]]
    tool_choice: str | Mapping[str, Any]
    thinking: str
    reasoning_effort: str
    format: str
    user_name: str
    assistant_name: str
    continue_final_message: bool
    add_bos: bool
    speculate: Literal["off", "auto", "ngram", "draft", "forced"]
    draft: str
    draft_tokens: int
    state: str
    save_state: str
    no_cache: bool
    priority: int
    return_progress: bool


class Request(Settings, total=False):
    """The fields of a request: its settings, and messages to answer."""

    messages: Sequence[Mapping[str, Any]]


class Options(TypedDict, total=False):
    """The options of a model.

    Device: device (`auto`, `cpu`, `gpu`, `gpu:N` or a part of a GPU's name), backend, strategy (layers on devices, in the notation of ChatRWKV; in place
    of device, dtype and quant), threads (of the CPU; the first model of a process decides), deterministic, sparse, kernel_cache (a folder, or False).
    Weights: quant (`i8`, `i4`, … docs/quantisation.md), dtype, lora, lora_alpha (for an adapter without `adapter_config.json`), vocab, rope_theta, group_norm_eps, state_orientation.
    Products: activations (`auto`, `i8` or `float`: whether products round them to 8 bits).
    Room: context (tokens per text; models with attention), chunk (prompt tokens per step), slots (texts at once, 8), queue (requests that wait, 256),
    cache_dtype, state_dtype.
    Texts: max_tokens (of requests that set none), format (of chats), prefix_cache, cache_folder (keeps what the prefix cache has read), states_folder
    (keeps named states).
    Speculation: speculate (`auto`, `ngram`, …; docs/speculation.md), draft (a smaller model that guesses), draft_device, draft_quant, draft_tokens.
    Vectors: pooling, task, normalise, reranker (the model for `rerank`).
    """

    device: str
    backend: Literal["auto", "vulkan", "metal", "dx12", "gl"]
    dtype: Literal["auto", "f16", "f32"]
    quant: str
    activations: Literal["auto", "i8", "float"]
    strategy: str
    vocab: PathLike
    context: int
    chunk: int
    cache_dtype: Literal["f16", "f32"]
    state_dtype: Literal["f16", "f32"]
    deterministic: bool
    sparse: bool
    rope_theta: float
    group_norm_eps: float
    state_orientation: Literal["value-key", "key-value"]
    lora: PathLike
    lora_alpha: float
    threads: int
    slots: int
    queue: int
    max_tokens: int
    format: str
    prefix_cache: bool
    cache_folder: PathLike
    states_folder: PathLike
    kernel_cache: PathLike | bool
    pooling: Literal["last", "mean"]
    task: Literal["retrieval", "similarity", "classification"]
    normalise: bool
    reranker: PathLike
    speculate: Literal["off", "auto", "ngram", "draft", "forced"]
    draft: PathLike
    draft_device: str
    draft_quant: str
    draft_tokens: int


def body(prompt: Prompt | None, request: Mapping[str, Any]) -> bytes:
    """Returns the JSON of a request. None counts as a field that is missing. Numbers and arrays of NumPy are numbers and lists."""
    fields = {name: value for name, value in request.items() if value is not None}
    if isinstance(fields.get("logit_bias"), Mapping):
        fields["logit_bias"] = {str(token): float(bias) for token, bias in fields["logit_bias"].items()}
    if prompt is not None:
        name = "prompt" if isinstance(prompt, str) else "tokens"
        fields[name] = prompt if isinstance(prompt, str) else token_ids(prompt)
    try:
        return json.dumps(fields, default=_plain, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as e:
        raise InputError(f"expected values that JSON can hold: {e}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return list(value)
    raise TypeError(f"found {type(value).__name__}")


def token_ids(tokens: Tokens, field: str = "tokens") -> list[int]:
    """Returns token ids as a list.

    Raises InputError if there is anything but whole numbers that are not negative, or an array with more than one dimension.
    """
    array: Any = tokens
    if hasattr(array, "ndim") and hasattr(array, "dtype") and hasattr(array, "tolist"):
        # NumPy's types are `int64`, torch's `torch.int64`.
        if not re.fullmatch(r"(torch\.)?u?int\d+", str(array.dtype)):
            raise InputError(f"{field}: expected whole numbers, found an array of {array.dtype}", field=field)
        if array.ndim != 1:
            raise InputError(f"{field}: expected an array of one dimension, found {array.ndim}", field=field)
        ids: list[int] = array.tolist()
    else:
        try:
            if isinstance(tokens, (bytes, bytearray, memoryview)):
                raise TypeError
            ids = [_index(token) for token in tokens]
        except TypeError:
            raise InputError(f"{field}: expected a list of token ids, found {_short(tokens)}", field=field) from None
    for token in ids:
        if token < 0:
            raise InputError(f"{field}: expected ids of at least 0, found {token}", field=field)
        if token >= 1 << 32:
            raise InputError(f"{field}: token id {token} is out of range", field=field)
    return ids


def is_single(token: Any) -> bool:
    """Returns whether this is one token id: an int, or a number of NumPy or torch."""
    return hasattr(token, "__index__") and getattr(token, "ndim", 0) == 0


def not_single(values: Any, field: str) -> None:
    """Raises InputError for a text or a mapping in place of a list of them."""
    if isinstance(values, (str, bytes, Mapping)):
        raise InputError(f"{field}: expected a list, found {_short(values)}", field=field)


def _index(token: Any) -> int:
    if isinstance(token, bool):
        raise TypeError
    return operator.index(token)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "…"


def option_texts(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns options as names and texts. None counts as an option that is missing."""
    texts = []
    for name, value in options.items():
        if value is None:
            continue
        if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
            # A number of NumPy.
            value = value.item()
        if isinstance(value, bool):
            texts.append((name, "true" if value else "false"))
        elif isinstance(value, (str, os.PathLike)):
            texts.append((name, os.fspath(value)))
        elif isinstance(value, (int, float)):
            texts.append((name, repr(value)))
        else:
            raise InputError(f"{name}: expected a text, a number, True or False, found {_short(value)}", field=name)
    return texts
