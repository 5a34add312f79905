"""The command `wingbeat`: the same program as the one to download, in Python's process."""

import sys

from ._native import run


def main() -> None:
    """Runs the program with the arguments of this process, and ends the process with its exit code."""
    run(["wingbeat", *sys.argv[1:]])
