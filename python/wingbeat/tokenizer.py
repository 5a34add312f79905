"""Text to token ids and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .requests import is_single, token_ids

if TYPE_CHECKING:
    from .requests import PathLike, Tokens


class _Codec(Protocol):
    def tokenize(self, text: bytes, special: bool) -> list[int]: ...
    def detokenize(self, ids: list[int], special: bool) -> bytes: ...


class Tokenizer:
    """The vocabulary of a model. `Tokenizer.open` reads one from a file, without a model."""

    def __init__(self, native: _Codec) -> None:
        self._native = native

    @classmethod
    def open(cls, name: PathLike) -> Tokenizer:
        """Opens a vocabulary: a file (RWKV's text format, `tokenizer.json`, …), or the name `world`, `small-world` or `tiny`.

        Raises FileError if the file is not a vocabulary.
        """
        from ._native import Vocab

        return cls(Vocab(name))

    def encode(self, text: str | bytes, *, special: bool = False) -> list[int]:
        """Returns the token ids of a text. With `special`, marks of chat formats such as `<|user|>` are single tokens, as in a prompt."""
        return self._native.tokenize(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, special)

    def decode(self, tokens: Tokens | int, errors: str = "replace", *, special: bool = False) -> str:
        """Returns the text of token ids. `errors` determines how incomplete characters are shown, as in `bytes.decode`."""
        return self.decode_bytes(tokens, special=special).decode("utf-8", errors)

    def decode_bytes(self, tokens: Tokens | int, *, special: bool = False) -> bytes:
        """Returns the bytes of token ids. The last character may be incomplete. With `special`, marks of chat formats have their texts."""
        asked: Any = tokens
        return self._native.detokenize(token_ids([asked] if is_single(asked) else asked), special)
