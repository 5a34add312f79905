"""The class `TRIE_TOKENIZER` of the package `rwkv`."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InputError
from ..tokenizer import Tokenizer


class TRIE_TOKENIZER:
    """A vocabulary in RWKV's text format. Text that cannot be decoded is U+FFFD."""

    def __init__(self, file_name: str) -> None:
        self._tokenizer = Tokenizer.open(file_name)

    def encodeBytes(self, src: bytes) -> list[int]:
        """Returns the token ids of bytes."""
        return self._tokenizer.encode(src)

    def decodeBytes(self, tokens: Sequence[int]) -> bytes:
        """Returns the bytes of token ids.

        Raises InputError if an id has no bytes, such as 0.
        """
        parts = [self._tokenizer.decode_bytes(token) for token in tokens]
        if b"" in parts:
            raise InputError("expected tokens with bytes, found one without")
        return b"".join(parts)

    def encode(self, src: str) -> list[int]:
        """Returns the token ids of a text."""
        return self._tokenizer.encode(src)

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of token ids, or U+FFFD if an id has no bytes, or the tokens end within a character."""
        try:
            return self.decodeBytes(tokens).decode("utf-8")
        except (UnicodeDecodeError, InputError):
            return "\ufffd"
