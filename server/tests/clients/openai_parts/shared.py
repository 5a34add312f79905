"""The server and the client that all parts share."""

import openai
from server import Server, text_and_vectors

MODEL = "tiny"
USER = [{"role": "user", "content": "light"}]
# Settings that make an answer repeatable and short.
SHORT = {"model": MODEL, "seed": 1, "max_tokens": 12}


def start():
    """Starts the server of all parts. `--deterministic` makes answers independent of other requests."""
    global server
    server = Server("--deterministic", "--slots", "8", *text_and_vectors())
    return server


def client(on=None, **more):
    """Returns a client that does not repeat failed requests."""
    return openai.OpenAI(**options(on, **more))


def options(on=None, **more):
    return {"base_url": f"{(on or server).url}/v1", "api_key": "any key", "max_retries": 0, "timeout": 120, **more}


def chat(**more):
    return client().chat.completions.create(**{**SHORT, "messages": USER, **more})


def refused(kind, call, what):
    """Returns the error that a call must raise."""
    try:
        found = call()
    except kind as e:
        return e
    except Exception as e:
        raise AssertionError(f"{what}: expected {kind.__name__}, found {type(e).__name__}: {e}") from e
    raise AssertionError(f"{what}: expected {kind.__name__}, found {str(found)[:200]}")
