#!/usr/bin/env python3
"""Makes the vocabulary of the small world in the RWKV format: all bytes, the words of the world, and frequent parts of words.

  python3 vocab.py ../../vocab/small-world.txt

No token crosses from a prompt's end into an answer: words begin with at most one blank, and marks are cut as PIECES says."""

from __future__ import annotations

import ast
import collections
import itertools
import re
import sys

from texts.documents import documents
from texts.words import BOYS, GIRLS, HE_PETS, SHE_PETS

PIECES = re.compile(r""" ?\{"|": "|", "|": |, "|"\}|</?think|\n\n|\n|```| ?[A-Za-z]+| ?\d{1,2}|.""", re.S)
# A piece that occurs so often in the documents becomes a token.
ENOUGH = 60


def counted_pieces(n: int) -> collections.Counter[str]:
    """Returns how often each piece occurs in n documents. Numbers, names and marks count more, so that they become tokens."""
    pieces: collections.Counter[str] = collections.Counter()
    for document in itertools.islice(documents(123), n):
        for text, _ in document:
            pieces.update(PIECES.findall(text))
    for number in range(32):
        pieces[f" {number}"] += 50
        pieces[str(number)] += 50
    for mark in ("###", "**"):
        pieces[mark] += 1000
    for name in GIRLS + BOYS + SHE_PETS + HE_PETS:
        pieces[f" {name}"] += 100
        pieces[name] += 100
    return pieces


def counted_parts(pieces: collections.Counter[str]) -> collections.Counter[str]:
    """Returns weights of the parts of words, of 2 to 5 characters."""
    parts: collections.Counter[str] = collections.Counter()
    for piece, count in pieces.items():
        if not (piece.strip().isalpha() and piece.isascii()):
            continue
        for start in range(len(piece)):
            for end in range(start + 2, min(len(piece), start + 5) + 1):
                parts[piece[start:end]] += (1 + min(count, 40)) * (end - start - 1)
    return parts


def make(size: int = 2047, n: int = 60000) -> list[bytes]:
    """Returns the tokens, single bytes first."""
    pieces = counted_pieces(n)
    tokens = {bytes([byte]) for byte in range(256)} | {"✿".encode(), b"\n\n", b"```", b"###", b"**"}
    tokens |= {piece.encode() for piece, count in pieces.items() if count >= ENOUGH and len(piece) > 1}
    for part, _ in counted_parts(pieces).most_common():
        if len(tokens) >= size:
            break
        if part.strip() and " " not in part[1:]:
            tokens.add(part.encode())
    return sorted(tokens, key=lambda token: (len(token) > 1, token))[:size]


def write(path: str, tokens: list[bytes]) -> None:
    """Writes tokens in the RWKV format: an id from 1, a Python literal, and a length in bytes on each line."""
    with open(path, "w", encoding="utf-8") as file:
        for i, token in enumerate(tokens, 1):
            try:
                literal = repr(token.decode())
            except UnicodeDecodeError:
                literal = repr(token)
            file.write(f"{i} {literal} {len(token)}\n")


class Vocab:
    """Encodes as the engine does: the longest token first."""

    def __init__(self, path: str) -> None:
        self.tokens = [b""]
        for line in open(path, encoding="utf-8"):
            token = ast.literal_eval(line.partition(" ")[2].rpartition(" ")[0])
            self.tokens.append(token.encode() if isinstance(token, str) else token)
        self.ids = {token: i for i, token in enumerate(self.tokens) if token}
        # The lengths of the tokens with a first byte, longest first.
        lengths: list[set[int]] = [set() for _ in range(256)]
        for token in self.ids:
            lengths[token[0]].add(len(token))
        self.lengths = [sorted(each, reverse=True) for each in lengths]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text."""
        data, ids, at = text.encode(), [], 0
        while at < len(data):
            # Each single byte is a token, so one length matches.
            for length in self.lengths[data[at]]:
                piece = data[at : at + length]
                if piece in self.ids:
                    break
            ids.append(self.ids[piece])
            at += len(piece)
        return ids

    def decode(self, ids: list[int]) -> str:
        """Returns the text of some ids."""
        return b"".join(self.tokens[i] for i in ids).decode(errors="replace")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(sys.argv[1], make())
    vocab = Vocab(sys.argv[1])
    texts = ["".join(text for text, _ in document) for document in itertools.islice(documents(9), 3000)]
    encoded = [vocab.encode(text) for text in texts]
    assert all(vocab.decode(ids) == text for ids, text in zip(encoded, texts))
    lengths = sorted(map(len, encoded))
    print(f"{len(vocab.ids)} tokens, {sum(map(len, texts)) / sum(lengths):.2f} characters per token")
    print(f"tokens of a document: mean {sum(lengths) / len(lengths):.0f}, p90 {lengths[2700]}, p99 {lengths[2970]}, most {lengths[-1]}")


if __name__ == "__main__":
    main()
