"""Parts that all kinds of texts share: turns of a chat, the choice of held-out prompts, and small helpers for English."""

from __future__ import annotations

import hashlib
import random
from typing import Any, NamedTuple

from .words import ANIMALS, BOYS, GIRLS, GROUPS, OPPOSITES, THINGS

# A condition on an answer: a kind and what it expects. `heldout.right` lists the kinds.
Check = tuple[Any, ...]


class Turn(NamedTuple):
    """A message of the user, its answer, the thought before the answer, and the check that the answer passes.

    `short` is the answer in one word, if a single word is a good answer."""

    user: str
    answer: str
    thought: str
    check: Check
    short: str = ""


# Messages that the model must know, so they are never held out.
CORE = {
    "hello", "hi", "who are you", "what are you", "what is your name", "what can you do", "help", "thank you", "thanks", "goodbye", "bye",
    "how are you", "tell me a joke", "yes", "no", "fox", "tell me a story", "tell me a story about a fox", "a story, please",
    "what is wingbeat",
}  # fmt: skip


def plain(text: str) -> str:
    """Returns a message in lower case, without the marks at its end."""
    return text.lower().rstrip("?!. ")


def hashed_out(text: str) -> bool:
    """Returns true for 4 % of all texts, chosen by a hash of the text: those that the training never has."""
    return hashlib.sha256(plain(text).encode()).digest()[0] < 10


def is_held_out(message: str) -> bool:
    """Returns true if a message is kept out of the training."""
    return hashed_out(message) and plain(message) not in CORE


def an(noun: str) -> str:
    """Returns a noun with its article."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def cap(text: str) -> str:
    """Returns a text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def last_word(text: str) -> str:
    """Returns the last word of a text."""
    return text.split()[-1]


KNOWN = {*ANIMALS, *THINGS, *sum(OPPOSITES, []), *sum(GROUPS.values(), []), *(name.lower() for name in GIRLS + BOYS)}
UNFIT = ("dick", "fuck", "nazi")


def counted(n: int, noun: str) -> str:
    """Returns a number with a noun, in the plural if the number is not 1."""
    plural = noun.removesuffix("f") + "ves" if noun.endswith("scarf") else noun + "s"
    return f"{n} {noun if n == 1 else plural}"


def made_up(r: random.Random) -> str:
    """Returns a word that nobody knows, so that the model meets every letter."""
    begins = "b k st v m gr z l qu h tr p sch w x d ch n j y f".split()
    ends = ["", "", "n", "r", "st", "l", "x", "m", "ck"]
    while True:
        word = "".join(r.choice(begins) + r.choice("aeiouyaeio") + r.choice(ends) for _ in range(r.randrange(1, 4)))
        if word not in KNOWN and not any(part in word for part in UNFIT):
            return word


def a_name(r: random.Random) -> str:
    """Returns the name of a person: a known one, or a made-up one in a quarter of the cases."""
    return r.choice(GIRLS + BOYS) if r.random() < 0.75 else made_up(r).title()
