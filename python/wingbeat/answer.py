"""Results: whole answers, scores of texts, rankings of documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .events import Done, Prompt, Timings, Token, ToolCall, Usage


@dataclass(frozen=True, slots=True)
class Answer:
    """The texts of a request. `choices` has one `Done` for each of the `n` texts. The properties describe the first text."""

    choices: tuple[Done, ...]
    prompt: Prompt | None = None
    """The tokens of the prompt with their log-probabilities, if the request sets `echo` and `logprobs`."""

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The text, without thought and tool calls."""
        return self.choices[0].text

    @property
    def thought(self) -> str | None:
        """The reasoning that the model wrote before its answer to messages, or None."""
        return self.choices[0].thought

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools that the answer calls."""
        return self.choices[0].tool_calls

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids of the generated tokens."""
        return self.choices[0].tokens

    @property
    def logprobs(self) -> tuple[Token, ...]:
        """The generated tokens with their log-probabilities, if the request sets `logprobs`."""
        return self.choices[0].logprobs

    @property
    def finish_reason(self) -> Literal["stop", "length", "tool_calls"]:
        """The reason why the text ended, in the words of OpenAI's API."""
        return self.choices[0].finish_reason

    @property
    def seed(self) -> int:
        """The seed of the random numbers. The same request with this seed has the same text."""
        return self.choices[0].seed

    @property
    def usage(self) -> Usage:
        """The numbers of prompt tokens and of generated tokens."""
        return self.choices[0].usage

    @property
    def timings(self) -> Timings:
        """The milliseconds in the queue, of prefill and of decoding."""
        return self.choices[0].timings


@dataclass(frozen=True, slots=True)
class Score:
    """How likely a text is. `logprobs` has the natural logarithm of each token's probability; the first token has none."""

    tokens: tuple[int, ...]
    logprobs: tuple[float | None, ...]

    @property
    def n(self) -> int:
        """The number of tokens with a probability."""
        return max(len(self.tokens) - 1, 0)

    @property
    def nll(self) -> float:
        """The mean negative log-probability of a token."""
        return -sum(logprob for logprob in self.logprobs if logprob is not None) / self.n if self.n else 0.0

    @property
    def perplexity(self) -> float:
        """The exponential of `nll`."""
        from math import exp

        return exp(self.nll)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A document with its score. `index` is its position in the call, from 0. `score` is between 0 and 1."""

    index: int
    score: float
    logit: float
    document: str
