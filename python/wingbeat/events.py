"""Events of a generation, in the order in which they come: `Started`, then pieces of texts, then one `Done` for each text.

All `Text` events of a text, joined, are the text of its `Done`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Union

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .errors import WingbeatError


@dataclass(frozen=True, slots=True)
class Token:
    """A token with its log-probability. `top` are the most likely tokens at the same position, if they were asked for."""

    id: int
    logprob: float
    bytes: bytes
    top: tuple[Token, ...]

    @property
    def text(self) -> str:
        """The text of the token. An incomplete character is shown as U+FFFD."""
        return self.bytes.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Started:
    """The request has its slots. Of `prompt_tokens`, `cached_tokens` are in the prefix cache and are not prefilled again."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A part of the prompt is prefilled. Sent if the request sets `return_progress`."""

    processed_tokens: int
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens of the prompt with their log-probabilities, except the first. Sent if the request sets `echo` and `logprobs`."""

    first: int | None
    logprobs: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """The next piece of text `index`."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """The next piece of the reasoning before the answer to messages."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """The model begins to call the tool `name`."""

    index: int
    call: int
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """The next piece of the arguments of call number `call`."""

    index: int
    call: int
    text: str


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The log-probabilities of one generated token. Sent if the request sets `logprobs`."""

    index: int
    token: Token


@dataclass(frozen=True, slots=True)
class Vector:
    """The vector of text `index`."""

    index: int
    vector: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Score:
    """The score of document `index`."""

    index: int
    logit: float


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool. `arguments` is the text that the model wrote, JSON in most formats."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Numbers of tokens. `cached_tokens` of the prompt were in the prefix cache and were not prefilled again."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds in the queue, of prefill and of decoding. Of the guessed tokens, `drafted` were checked, and `accepted` were right."""

    queue_ms: float
    prefill_ms: float
    decode_ms: float
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class SavedState:
    """A saved state: its name, its number of tokens and its size in bytes."""

    name: str
    n_tokens: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Done:
    """A text is complete.

    `finish_reason` is the reason in the words of OpenAI's API. `finish` is `eos`, `stop`, `length`, `context` or `interrupted`. `complete` is
    whether the text satisfies its grammar or schema, or None without one. `state` is the saved state, the error that prevented saving, or None.
    """

    index: int
    text: str
    thought: str | None
    tool_calls: tuple[ToolCall, ...]
    tokens: tuple[int, ...]
    finish_reason: Literal["stop", "length", "tool_calls"]
    finish: Literal["eos", "stop", "length", "context", "interrupted"]
    complete: bool | None
    logprobs: tuple[Token, ...]
    prompt_logprobs: tuple[Token, ...]
    state: SavedState | WingbeatError | None
    seed: int
    usage: Usage
    timings: Timings


Event = Union[Started, Progress, Prompt, Text, Thought, Call, Arguments, Logprobs, Vector, Score, Done]
