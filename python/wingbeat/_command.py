"""The command `wingbeat`: runs the same program as the downloads contain, in Python's process."""

import sys

from ._native import run


def main() -> None:
    """Runs the program with the arguments of this process, and ends the process with the program's exit code."""
    run(["wingbeat", *sys.argv[1:]])
