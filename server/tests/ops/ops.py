"""A server in operation: signals, crashes, keys, foreign pages, limits. Each check is in a file of `parts/`."""

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parent)]

import server  # noqa: E402
from parts import ends, flags, guards, keys, limits, states  # noqa: E402

if __name__ == "__main__":
    wanted = sys.argv[1:]
    parts = [part for part in (ends, flags, keys, guards, limits, states) if not wanted or part.__name__.split(".")[-1] in wanted]
    server.run(*(check for part in parts for check in part.CHECKS))
