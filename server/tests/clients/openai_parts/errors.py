"""Errors as the client's classes, and the id of each request."""

import threading

import openai
from server import Server, equal, models

from .shared import USER, chat, client, refused


def wrong_fields_are_named():
    cases = [
        ({"temperature": -1}, "temperature"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "nobody", "content": "light"}]}, "messages[0].role"),
        ({"extra_body": {"top_k": "many"}}, "top_k"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"n": 100000}, "n"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}}, "response_format.json_schema"),
        ({"extra_body": {"grammar": "root ::= undefined"}}, "grammar"),
        ({"top_logprobs": 50, "logprobs": True}, "top_logprobs"),
    ]
    wrong = []
    for fields, param in cases:
        e = refused(openai.BadRequestError, lambda: chat(**fields), f"chat with {fields}")
        equal(e.type, "invalid_request_error", "type of the error")
        if e.param != param:
            wrong.append(f"{fields}: expected param {param}, found {e.param} ({e})")
    assert not wrong, "; ".join(wrong)


def unknown_paths_are_404():
    e = refused(openai.NotFoundError, lambda: client().responses.retrieve("resp_0"), "an unknown response")
    equal(e.code, "response_not_found", "code of an unknown response")
    refused(openai.NotFoundError, lambda: client().get("/nothing", cast_to=object), "an unknown path")


def unknown_models_are_404():
    with Server("-m", f"one={models()}/tiny-rwkv4.safetensors", "-m", f"two={models()}/tiny-rwkv5.safetensors") as server:
        names = [model.id for model in client(server).models.list()]
        equal(names, ["one", "two"], "models")
        for name in names:
            equal(client(server).chat.completions.create(model=name, messages=USER, max_tokens=2).model, name, "model of an answer")
        e = refused(openai.NotFoundError, lambda: client(server).chat.completions.create(model="three", messages=USER), "an unknown model")
        equal(e.code, "model_not_found", "code of an unknown model")
        refused(openai.NotFoundError, lambda: client(server).models.retrieve("three"), "an unknown model")


def keys_are_checked():
    with Server(env={"WINGBEAT_API_KEYS": "first-key-1,second-key-2"}) as server:
        e = refused(openai.AuthenticationError, lambda: client(server).models.list(), "a wrong key")
        equal(e.code, "invalid_api_key", "code of a wrong key")
        for key in ("first-key-1", "second-key-2"):
            assert list(client(server, api_key=key).models.list()), "models with a key: expected a list, found none"


def full_queues_are_429():
    with Server("--slots", "1", "--queue", "1", "--grace", "0") as server:
        # These requests hold the slot and the queue until they are closed.
        long = {"model": "any", "prompt": "In the beginning", "max_tokens": 10_000_000, "stream": True, "extra_body": {"ignore_eos": True}}
        held, errors = [], []
        for _ in range(6):
            thread = threading.Thread(target=hold, args=(server, long, held, errors), daemon=True)
            thread.start()
            thread.join(0.4)
        assert errors, "six requests to one slot with a queue of 1: expected RateLimitError, found none"
        e = errors[0]
        assert isinstance(e, openai.RateLimitError), f"a full queue: expected RateLimitError, found {type(e).__name__}: {e}"
        equal(e.code, "queue_full", "code of a full queue")
        after = e.response.headers.get("retry-after")
        assert after and int(after) > 0, f"Retry-After: expected seconds, found {after}"
        for stream in held:
            stream.close()


def hold(server, fields, held, errors):
    try:
        held.append(client(server, timeout=30).completions.create(**fields))
    except Exception as e:  # noqa: BLE001
        errors.append(e)


def requests_have_ids():
    raw = client().chat.completions.with_raw_response.create(model="tiny", messages=USER, max_tokens=2)
    found = raw.headers.get("x-request-id")
    assert found, "x-request-id: expected an id, found none"
    equal(raw.parse()._request_id, found, "id of a parsed answer")
    e = refused(openai.BadRequestError, lambda: chat(temperature=-1), "a wrong temperature")
    equal(e.request_id, e.body.get("request_id"), "ids in the header and in the body")
    own = client().chat.completions.with_raw_response.create(model="tiny", messages=USER, max_tokens=2, extra_headers={"x-request-id": "my-id-7"})
    equal(own.headers.get("x-request-id"), "my-id-7", "the client's own id")


CHECKS = [wrong_fields_are_named, unknown_paths_are_404, unknown_models_are_404, keys_are_checked, full_queues_are_429, requests_have_ids]
