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
    """The request has got its slots. `cached_tokens` of `prompt_tokens` were read before, and are not read again."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A part of the prompt is read. Sent if the request sets `return_progress`."""

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
    """The next piece of what the model writes before its answer to messages."""

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
    """Numbers of tokens. `cached_tokens` of the prompt were not read again."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds in the queue, of reading the prompt, and of writing the text; the numbers of guessed tokens that were checked and that were right."""

    queue_ms: float
    prefill_ms: float
    decode_ms: float
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class SavedState:
    """A state that has a name."""

    name: str
    n_tokens: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Done:
    """A text is complete.

    `finish_reason` is what OpenAI's API says; `finish` is `eos`, `stop`, `length`, `context` or `interrupted`. `complete` says whether the text satisfies
    its grammar or schema. `state` is the saved state, or the error that prevented it.
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
