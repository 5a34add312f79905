"""Rows of a dataset as requests, and answers as rows: the fields that `wingbeat batch` reads and writes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import InputError, WingbeatError
from ..requests import Request

if TYPE_CHECKING:
    from ..answer import Answer
    from ..events import Done, Token

# Columns that are fields of a request. All rows have the same priority, and none names a state.
FIELDS = frozenset({"prompt", "tokens", *Request.__annotations__}) - {"state", "save_state", "no_cache", "priority", "return_progress"}
# Fields with objects, which many files hold as JSON text.
_OBJECTS = frozenset({"messages", "tools", "response_format", "logit_bias"})
# A request has at most one of these fields, so a row's field replaces the field of all rows.
_RULES = frozenset({"grammar", "json_schema", "json_object", "json_value", "regex", "choice", "response_format"})
# The settings that the preset of a row replaces.
_SAMPLING = re.compile(r"temperature|top_[pk]|min_p|typical|\w+_penalty|penalty_decay|sampler_order|preset|(mirostat|dry|xtc)\w*")

_TOKEN = pa.struct([("token", pa.int64()), ("logprob", pa.float64()), ("top", pa.list_(pa.list_(pa.float64())))])
_CALL = pa.struct([("type", pa.string()), ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())]))])
_CHOICE = [
    ("text", pa.string()),
    ("thought", pa.string()),
    ("tool_calls", pa.list_(_CALL)),
    ("tokens", pa.list_(pa.int64())),
    ("logprobs", pa.list_(_TOKEN)),
    ("prompt_logprobs", pa.list_(_TOKEN)),
    ("finish", pa.string()),
    ("complete", pa.bool_()),
    ("seed", pa.uint64()),
]
# The columns of a result besides the id and the columns that are kept.
RESULT = [
    *_CHOICE,
    ("choices", pa.list_(pa.struct(_CHOICE))),
    ("usage", pa.struct([("prompt_tokens", pa.int64()), ("completion_tokens", pa.int64())])),
    ("error", pa.struct([("kind", pa.string()), ("message", pa.string()), ("where", pa.string()), ("hint", pa.string())])),
]


def request(row: Mapping[str, Any], id_column: str, run_seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the request of a row. The row's fields override the settings of all rows. Without a seed, the request gets the seed that
    `wingbeat batch --seed` derives from the id.

    Raises InputError if the row has no id.
    """
    id = row.get(id_column)
    if not isinstance(id, (str, int)) or isinstance(id, bool):
        raise InputError(f"expected a text or a whole number as id, found {id!r}", field=id_column)
    fields = {name: _given(value) for name, value in row.items() if name in FIELDS and value is not None}
    for name in _OBJECTS & fields.keys():
        if isinstance(fields[name], str):
            try:
                fields[name] = json.loads(fields[name])
            except ValueError as e:
                raise InputError(f"{name}: expected JSON: {e}", field=name) from None
    over = {
        name: value
        for name, value in settings.items()
        if not (name in _RULES and _RULES & fields.keys()) and not ("preset" in fields and _SAMPLING.fullmatch(name))
    }
    return {"seed": seed(id, run_seed), **over, **fields}


def seed(id: str | int, run_seed: int) -> int:
    """Returns the seed of a row: 53 bits of a hash of the run's seed and the id."""
    digest = hashlib.sha256(f"{run_seed} {json.dumps(id, ensure_ascii=False)}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 11


def _given(value: Any) -> Any:
    """Drops keys without a value: Arrow gives all objects of a column the same keys."""
    if isinstance(value, Mapping):
        return {key: _given(inner) for key, inner in value.items() if inner is not None}
    return [_given(inner) for inner in value] if isinstance(value, list) else value


def result(answer: Answer | WingbeatError) -> dict[str, Any]:
    """Returns the columns of an answer or of an error."""
    if isinstance(answer, WingbeatError):
        kind = type(answer).__name__.removesuffix("Error").lower()
        message = str(answer).removeprefix(f"{answer.field}: ")
        return {"error": {"kind": kind, "message": message, "where": answer.field, "hint": answer.hint}}
    choices = [_choice(done) for done in answer.choices]
    usages = [done.usage for done in answer.choices]
    usage = {
        "prompt_tokens": max(usage.prompt_tokens for usage in usages),
        "completion_tokens": sum(usage.completion_tokens for usage in usages),
    }
    return {**(choices[0] if len(choices) == 1 else {"choices": choices}), "usage": usage}


def _choice(done: Done) -> dict[str, Any]:
    calls = [{"type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in done.tool_calls]
    return {
        "text": done.text,
        "thought": done.thought,
        "tool_calls": calls or None,
        "tokens": list(done.tokens),
        "logprobs": _logprobs(done.logprobs),
        "prompt_logprobs": _logprobs(done.prompt_logprobs),
        "finish": done.finish,
        "complete": done.complete,
        "seed": done.seed,
    }


def _logprobs(tokens: tuple[Token, ...]) -> list[dict[str, Any]] | None:
    return [{"token": t.id, "logprob": t.logprob, "top": [[top.id, top.logprob] for top in t.top]} for t in tokens] or None
