"""API keys: access, the owners of states, and the names of keys in the log."""

import pathlib
import subprocess

from server import BINARY, Server, equal, folder

from .shared import CHAT, SHORT

ADA, BOB = "ada-key-0123456789abcdef", "bob-key-0123456789abcdef"
PROMPT = "xylophone-secret-prompt"


def with_key(key):
    return {"authorization": f"Bearer {key}"}


def serve(path, *more):
    keys = pathlib.Path(path) / "keys"
    keys.write_text(f"# keys of the test\nada {ADA}\n\nbob {BOB}\n")
    return Server("--key-file", keys, *more)


def wrong_keys_are_401():
    with folder() as path, serve(path) as server:
        for headers in ({}, with_key("wrong"), with_key(ADA + "x"), with_key(ADA[:-1]), with_key(""), {"authorization": ADA}, {"authorization": f"Basic {ADA}"}):
            for method, target in (("POST", CHAT), ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/slots"), ("GET", "/v1/states"), ("DELETE", "/v1/states/a")):
                answer = server.request(method, target, SHORT if method == "POST" else None, headers=headers)
                equal((answer.status, answer.error.get("code")), (401, "invalid_api_key"), f"{method} {target} with {headers}")
        for target in ("/health", "/", "/openapi.json"):
            equal(server.get(target).status, 200, f"{target} without a key")
        for key in (ADA, BOB):
            equal(server.post(CHAT, SHORT, headers=with_key(key)).status, 200, "an answer with a key")
        # The chat page is public, but other paths that begin like a public path need a key.
        for target in ("/page/../v1/models", "//v1/models", "/health/../v1/models", "/page/..%2fv1/models"):
            answer = server.get(target)
            assert answer.status in (400, 401, 404) and b'"owned_by"' not in answer.body, f"{target} without a key: expected 400, 401 or 404, found {answer.status} {answer.body[:200]!r}"


def states_belong_to_keys():
    with folder() as path, serve(path, "--states", path + "/states") as server:
        made = server.post("/v1/states", {"action": "save", "name": "diary", "prompt": "my secret"}, headers=with_key(ADA))
        equal(made.status, 200, f"saving a state: {made.body[:300]!r}")
        kept = server.post("/v1/responses", {"input": "light", "max_output_tokens": 4}, headers=with_key(ADA)).json["id"]
        server.post(CHAT, {**SHORT, "session_id": "talk"}, headers=with_key(ADA))
        other = with_key(BOB)
        attempts = [
            ("GET", "/v1/states/diary", None), ("GET", "/v1/states/diary/content", None), ("DELETE", "/v1/states/diary", None),
            ("POST", CHAT, {**SHORT, "state": "diary"}), ("POST", "/v1/completions", {"prompt": "a", "state": "diary"}),
            ("POST", "/v1/states", {"action": "fork", "from": "diary", "name": "copy"}), ("POST", "/v1/states", {"action": "delete", "name": "diary"}),
            ("POST", "/v1/states", {"action": "rename", "from": "diary", "name": "mine"}), ("GET", "/v1/states/talk", None),
            ("GET", f"/v1/responses/{kept}", None), ("DELETE", f"/v1/responses/{kept}", None), ("POST", "/v1/responses", {"input": "a", "previous_response_id": kept}),
        ]
        for method, target, body in attempts:
            answer = server.request(method, target, body, headers=other)
            equal(answer.status, 404, f"{method} {target} {body or ''} with another key: {answer.body[:200]!r}")
        equal(server.get("/v1/states", headers=other).json["data"], [], "states of another key")
        names = {state["name"] for state in server.get("/v1/states", headers=with_key(ADA)).json["data"]}
        assert {"diary", "talk"} <= names, f"states of their own key: expected diary and talk, found {names}"
        equal(server.get(f"/v1/responses/{kept}", headers=with_key(ADA)).status, 200, "a response with its own key")


def caches_belong_to_keys():
    long = {"messages": [{"role": "user", "content": "In the beginning God created the heaven and the earth. " * 8}], "max_tokens": 2, "seed": 1}

    def cached(key):
        return server.post(CHAT, long, headers=with_key(key)).json["usage"]["prompt_tokens_details"]["cached_tokens"]

    with folder() as path, serve(path) as server:
        equal(cached(ADA), 0, "reused tokens of a first request")
        again = cached(ADA)
        assert again > 0, f"reused tokens of a second request: expected some, found {again}"
        equal(cached(BOB), 0, "reused tokens of another key's request")


def slots_show_own_requests():
    from .shared import LONG, Background

    with folder() as path, serve(path, "--grace", "0") as server:
        stream = Background(server, LONG, headers=with_key(ADA))
        equal(len(server.get("/slots", headers=with_key(ADA)).json[0]["requests"]), 1, "requests in /slots of their own key")
        equal(server.get("/slots", headers=with_key(BOB)).json[0]["requests"], [], "requests in /slots of another key")
        assert not stream.error, f"a stream: expected no error, found {stream.error}"


def logs_have_no_secrets():
    for form in ("text", "json"):
        with folder() as path, serve(path, "--log", form, "-v") as server:
            ask = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 6, "seed": 1}
            answer = server.post(CHAT, ask, headers=with_key(ADA))
            equal(answer.status, 200, "an answer")
            server.post(CHAT, {**ask, "stop": [[PROMPT]], "temperature": PROMPT}, headers=with_key(ADA))
            server.post(CHAT, f"{{{PROMPT}", headers=with_key(ADA))
            server.post(CHAT, ask, headers=with_key("unknown-key-987654321"))
            server.post("/v1/completions", {"prompt": [PROMPT], "max_tokens": 2, "user": PROMPT}, headers=with_key(ADA))
            server.get(f"/v1/states/{PROMPT}", headers=with_key(ADA))
            server.stop()
            log, text = server.log(), answer.json["choices"][0]["message"]["content"]
            for secret, what in ((ADA, "key"), (BOB, "key of another"), ("unknown-key", "wrong key"), (PROMPT, "prompt"), (PROMPT[:12], "part of the prompt"), (text, "answer")):
                lines = [line for line in log.splitlines() if secret.strip() and secret.strip() in line]
                assert not lines, f"log {form}: expected no {what}, found {lines[0]}"
            assert "/v1/chat/completions" in log and answer.headers["x-request-id"] in log, f"log {form}: expected a line with the path and the id, found {log[-500:]}"


def open_addresses_need_keys():
    command = [BINARY, "serve", "--device", "cpu", "--port", "0", "--host", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    equal(done.returncode, 2, f"exit code of --host 0.0.0.0 without keys ({done.stderr[-300:]!r})")
    assert "key" in done.stderr, f"error of --host 0.0.0.0 without keys: expected advice about keys, found {done.stderr!r}"
    with folder() as path, serve(path, "--host", "0.0.0.0") as server:
        equal(server.get("/health").status, 200, "/health of an open address with keys")


def wrong_key_files_are_refused():
    with folder() as path:
        for name, text in (("short", "abc"), ("words", "one two three-words"), ("twice", f"{ADA}\n{ADA}"), ("missing", None)):
            keys = pathlib.Path(path) / name
            if text is not None:
                keys.write_text(text)
            done = subprocess.run([BINARY, "serve", "--device", "cpu", "--port", "0", "--key-file", str(keys)], capture_output=True, text=True, timeout=60)
            assert done.returncode in (1, 2) and "error" in done.stderr, f"key file {name}: expected an error, found exit code {done.returncode} {done.stderr!r}"
            assert ADA not in done.stderr, f"key file {name}: expected no key in the error, found {done.stderr!r}"


CHECKS = [
    wrong_keys_are_401, states_belong_to_keys, caches_belong_to_keys, slots_show_own_requests, logs_have_no_secrets, open_addresses_need_keys,
    wrong_key_files_are_refused,
]
