"""Batches of the training: rows of a fixed length, into which whole documents are packed."""

from __future__ import annotations

import torch

from texts.documents import documents
from vocab import Vocab

# The ids of a document and which of them are learned.
Encoded = tuple[list[int], list[bool]]
Row = tuple[list[int], list[int], list[int], list[bool]]


class Rows:
    """Packs documents without end into rows of `length` tokens."""

    def __init__(self, vocab: Vocab, seed: int, length: int) -> None:
        self.vocab = vocab
        self.documents = documents(seed)
        self.length = length
        self.pool: list[Encoded] = []

    def encoded(self) -> Encoded:
        """Returns the next document. It ends with token 0."""
        ids: list[int] = []
        learned: list[bool] = []
        for text, is_learned in next(self.documents):
            tokens = self.vocab.encode(text)
            ids += tokens
            learned += [is_learned] * len(tokens)
        return [*ids, 0], [*learned, True]

    def fill_pool(self) -> None:
        """Adds documents that are not too long until there are 48 to choose from."""
        while len(self.pool) < 48:
            document = self.encoded()
            if len(document[0]) <= self.length + 1:
                self.pool.append(document)

    def row(self) -> Row:
        """Returns ids, resets, targets and which targets are learned. The token 0 after a document is only a target."""
        ids: list[int] = []
        reset: list[int] = []
        target: list[int] = []
        learned: list[bool] = []
        while True:
            self.fill_pool()
            room = self.length - len(ids)
            fits = [i for i, document in enumerate(self.pool) if len(document[0]) - 1 <= room]
            if not fits:
                break
            # The longest document that fits fills the end of the row.
            chosen = fits[0] if room > 200 else max(fits, key=lambda i: len(self.pool[i][0]))
            tokens, are_learned = self.pool.pop(chosen)
            ids += tokens[:-1]
            reset += [1] + [0] * (len(tokens) - 2)
            target += tokens[1:]
            learned += are_learned[1:]
        pad = self.length - len(ids)
        return ids + [0] * pad, reset + [1] * pad, target + [0] * pad, learned + [False] * pad

    def batch(self, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns n rows as tensors [n, length]."""
        ids, reset, target, learned = zip(*(self.row() for _ in range(n)))
        return torch.tensor(ids), torch.tensor(reset, dtype=torch.int32), torch.tensor(target), torch.tensor(learned)
