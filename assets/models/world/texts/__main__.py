"""Prints documents of the training, or held-out prompts as JSON lines: python3 -m texts --help"""

from __future__ import annotations

import argparse
import itertools
import json

from .documents import documents
from .heldout import heldout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m texts", description="Prints texts of the small world.")
    parser.add_argument("--seed", type=int, default=1, help="seed of the documents")
    parser.add_argument("--n", type=int, default=1000, help="number of documents")
    parser.add_argument("--heldout", type=int, metavar="N", help="print N held-out prompts with their checks instead")
    options = parser.parse_args()
    if options.heldout:
        for item in heldout(options.heldout):
            print(json.dumps(item, ensure_ascii=False))
        return
    for document in itertools.islice(documents(options.seed), options.n):
        print("".join(text for text, _ in document), "-----", sep="\n")


if __name__ == "__main__":
    main()
