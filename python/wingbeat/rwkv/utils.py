"""The classes `PIPELINE` and `PIPELINE_ARGS` of the package `rwkv`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..tokenizer import Tokenizer
from .rwkv_tokenizer import TRIE_TOKENIZER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .model import RWKV

# A token whose text is a part of this string is not counted as a repetition, as in the package.
_UNCOUNTED = " \t0123456789"


class PIPELINE_ARGS:
    """The settings of a text. `alpha_frequency` and `alpha_presence` are penalties, which decay by `alpha_decay` with every token."""

    def __init__(
        self,
        temperature: float = 1.0,
        top_p: float = 0.85,
        top_k: int = 0,
        alpha_frequency: float = 0.2,
        alpha_presence: float = 0.2,
        alpha_decay: float = 0.996,
        token_ban: Sequence[int] = (),
        token_stop: Sequence[int] = (),
        chunk_len: int = 256,
    ) -> None:
        self.temperature = temperature
        self.top_p = top_p
        self.top_k = top_k
        self.alpha_frequency = alpha_frequency
        self.alpha_presence = alpha_presence
        self.alpha_decay = alpha_decay
        self.token_ban = token_ban
        self.token_stop = token_stop
        self.chunk_len = chunk_len


class PIPELINE:
    """Text in, text out. `WORD_NAME` is `rwkv_vocab_v20230424` (the World vocabulary) or the path of a vocabulary file, such as `20B_tokenizer.json`."""

    def __init__(self, model: RWKV, WORD_NAME: str) -> None:
        self.model = model
        self.tokenizer: Any
        if WORD_NAME == "cl100k_base":
            import tiktoken

            self.tokenizer = tiktoken.get_encoding(WORD_NAME)
        elif WORD_NAME == "rwkv_vocab_v20230424" or str(WORD_NAME).endswith(".txt"):
            self.tokenizer = TRIE_TOKENIZER("world" if WORD_NAME == "rwkv_vocab_v20230424" else WORD_NAME)
        else:
            self.tokenizer = Tokenizer.open(WORD_NAME)

    def refine_context(self, context: str) -> str:
        """Strips every line, and drops empty ones. The text begins with a newline."""
        lines = (line.strip().strip("\u3000").strip("\r") for line in context.strip().split("\n"))
        return "\n" + "\n".join(line for line in lines if line).strip()

    def encode(self, x: str) -> list[int]:
        """Returns the token ids of a text."""
        ids: list[int] = self.tokenizer.encode(x)
        return ids

    def decode(self, x: Sequence[int]) -> str:
        """Returns the text of token ids. With the World vocabulary, the text is U+FFFD alone if the tokens end within a character."""
        text: str = self.tokenizer.decode(x)
        return text

    def sample_logits(self, logits: Any, temperature: float = 1.0, top_p: float = 0.85, top_k: int = 0) -> int:
        """Draws a token: the nucleus first, then `top_k`, then the temperature. A temperature of 0 takes the most likely token."""
        probs = _softmax(_numbers(logits))
        if temperature == 0:
            return _draw(probs * (probs >= probs.max()))
        order = np.argsort(probs)[::-1]
        # The nucleus ends at the first token with which its sum reaches top_p. Tokens that are as likely as this token also belong to the nucleus.
        last = int(np.argmax(np.cumsum(probs[order]) >= top_p))
        kept = probs >= probs[order[last]]
        if 0 < int(top_k) < len(probs):
            kept[order[int(top_k) :]] = False
        probs = np.where(kept, probs, np.float32(0))
        return _draw(probs if temperature == 1.0 else probs ** (1.0 / temperature))

    def generate(
        self,
        ctx: str,
        token_count: int = 100,
        args: PIPELINE_ARGS | None = None,
        callback: Callable[[str], object] | None = None,
        state: Any = None,
    ) -> str:
        """Continues a text by at most `token_count` tokens, and returns the new text. `callback` gets the pieces as they come."""
        args = PIPELINE_ARGS() if args is None else args
        written: list[int] = []
        text, n_shown = "", 0
        counts: dict[int, float] = {}
        tokens = self.encode(ctx)
        if not tokens:
            raise InputError("ctx: expected a text, found an empty one", field="ctx")
        out: Any = None
        for _ in range(token_count):
            for begin in range(0, len(tokens), args.chunk_len):
                out, state = self.model.forward(tokens[begin : begin + args.chunk_len], state)
            for banned in args.token_ban:
                out[banned] = -float("inf")
            for seen, count in counts.items():
                out[seen] -= args.alpha_presence + count * args.alpha_frequency
            token = self.sample_logits(out, temperature=args.temperature, top_p=args.top_p, top_k=args.top_k)
            if token in args.token_stop:
                break
            written.append(token)
            for seen in counts:
                counts[seen] *= args.alpha_decay
            counts[token] = counts.get(token, 0) + (0 if self.decode([token]) in _UNCOUNTED else 1)
            piece = self.decode(written[n_shown:])
            if "\ufffd" not in piece:
                if callback:
                    callback(piece)
                text += piece
                n_shown = len(written)
            tokens = [token]
        return text


def _numbers(logits: Any) -> NDArray[np.float32]:
    """Returns logits of torch or NumPy as an array of float32."""
    if hasattr(logits, "detach"):
        logits = logits.detach().float().cpu().numpy()
    return np.asarray(logits, dtype=np.float32)


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum(), dtype=np.float32)


def _draw(weights: NDArray[np.floating[Any]]) -> int:
    return int(np.random.choice(a=len(weights), p=weights / np.sum(weights)))
