"""The official Python package `openai` against a server: each check is in a file of `openai_parts/`."""

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parent)]

import server  # noqa: E402
from openai_parts import asynchronous, chat, completions, embeddings, errors, glm, json_output, responses, tools  # noqa: E402
from openai_parts.shared import start  # noqa: E402

if __name__ == "__main__":
    with start():
        parts = [chat, json_output, tools, completions, embeddings, responses, errors, glm, asynchronous]
        wanted = sys.argv[1:]
        checks = [check for part in parts if not wanted or part.__name__.split(".")[-1] in wanted for check in part.CHECKS]
        server.run(*checks)
