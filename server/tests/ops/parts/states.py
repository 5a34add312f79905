"""States: names that try to leave their folder, damaged files, sessions, and states that continue a text."""

import json
import pathlib
import struct
import urllib.parse

from server import Server, equal, folder

from .shared import CHAT, SHORT

BAD_NAMES = ["../x", "..", ".", "a/b", "/etc/passwd", "a\\b", "..\\x", "a\0b", "", "x" * 300, "a\nb", "%2e%2e%2fx", "~", "C:x", "con\u202etxt"]


def names_cannot_leave_the_folder():
    with folder() as path:
        home = pathlib.Path(path) / "states"
        (pathlib.Path(path) / "secret.state").write_bytes(b"secret")
        with Server("--states", home) as server:
            equal(server.post("/v1/states", {"action": "save", "name": "good", "prompt": "a"}).status, 200, "a good name")
            for name in BAD_NAMES + ["../../secret", "../secret"]:
                for body in ({"action": "save", "name": name, "prompt": "a"}, {"action": "fork", "from": "good", "name": name}, {"action": "rename", "from": "good", "name": name}):
                    answer = server.post("/v1/states", body)
                    equal(answer.status, 400, f"{body}: {answer.body[:200]!r}")
                # An empty name of a field means that the field is not set.
                for field in ("state", "save_state", "session_id") if name else ():
                    answer = server.post(CHAT, {**SHORT, field: name})
                    assert answer.status in (400, 404), f"{field} {name!r}: expected 400, found {answer.status}"
                if not name:
                    continue  # A path that ends with a slash means the list of states.
                quoted = urllib.parse.quote(name, safe="")
                for method, target in (("GET", f"/v1/states/{quoted}"), ("GET", f"/v1/states/{quoted}/content"), ("PUT", f"/v1/states/{quoted}/content"), ("DELETE", f"/v1/states/{quoted}")):
                    answer = server.request(method, target, b"x" if method == "PUT" else None)
                    assert answer.status in (400, 404, 405), f"{method} {target}: expected 400 or 404, found {answer.status} {answer.body[:100]!r}"
                    assert b"secret" != answer.body, f"{method} {target}: expected no file from outside the folder, found one"
            outside = sorted(entry.name for entry in pathlib.Path(path).iterdir())
            equal(outside, ["secret.state", "states"], "files beside the folder of states")


def wrong_files_are_refused():
    with Server("--max-body", 4_000_000) as server:
        server.post("/v1/states", {"action": "save", "name": "good", "prompt": "In the beginning"})
        content = server.get("/v1/states/good/content").body
        assert len(content) > 1000, f"a downloaded state: expected a file, found {len(content)} bytes"

        def put(body):
            return server.request("PUT", "/v1/states/mine/content", body)

        length = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8 : 8 + length])
        nan = bytearray(content)
        tensor = next(value for name, value in header.items() if name != "__metadata__" and value["dtype"] == "F32")
        at = 8 + length + tensor["data_offsets"][0]
        nan[at : at + 4] = struct.pack("<f", float("nan"))
        wrong = {"empty": b"", "text": b"hello", "cut": content[:-100], "long header": struct.pack("<Q", 1 << 62) + b"{}", "NaN": bytes(nan), "zeros": b"\0" * 1000, "pickle": b"\x80\x02cos\nsystem\n"}
        for name, body in wrong.items():
            answer = put(body)
            equal(answer.status, 400, f"a state that is {name}: {answer.body[:200]!r}")
        equal(server.get("/v1/states/mine").status, 404, "a refused state")
        equal(put(content).status, 201, "an uploaded state")
        texts = [server.post("/v1/completions", {"prompt": " God", "state": name, "max_tokens": 8, "temperature": 0}).json["choices"][0]["text"] for name in ("good", "mine")]
        equal(texts[1], texts[0], "text from an uploaded state")


def states_continue_texts():
    with Server("--deterministic") as server:
        whole = server.post("/v1/completions", {"prompt": "In the beginning God created", "max_tokens": 8, "temperature": 0}).json["choices"][0]["text"]
        made = server.post("/v1/states", {"action": "save", "name": "begin", "prompt": "In the beginning"})
        equal(made.status, 200, f"saving a state: {made.body[:200]!r}")
        found = server.post("/v1/completions", {"prompt": " God created", "state": "begin", "max_tokens": 8, "temperature": 0}).json["choices"][0]["text"]
        equal(found, whole, "text from a state and from the whole prompt")
        for body, status in (({"action": "rename", "from": "begin", "name": "again"}, 200), ({"action": "fork", "from": "again", "name": "copy"}, 200), ({"action": "fork", "from": "begin", "name": "x"}, 404), ({"action": "nothing", "name": "x"}, 400), ({"action": "delete", "name": "copy"}, 200), ({"action": "delete", "name": "copy"}, 404)):
            answer = server.post("/v1/states", body)
            equal(answer.status, status, f"{body}: {answer.body[:200]!r}")
        equal([state["name"] for state in server.get("/v1/states").json["data"]], ["again"], "states that remain")
        answer = server.post(CHAT, {**SHORT, "return_state": True}).json
        equal(server.get(f"/v1/states/{answer['state']['name']}").json["tokens"], answer["state"]["tokens"], "tokens of a returned state")


def sessions_continue():
    with Server("--deterministic") as server:
        talk = [{"role": "user", "content": "In the beginning God created the heaven and the earth."}]
        first = server.post(CHAT, {"messages": talk, "session_id": "s", "max_tokens": 8, "seed": 1}).json
        more = [*talk, first["choices"][0]["message"], {"role": "user", "content": "And then?"}]
        plain = server.post(CHAT, {"messages": more, "max_tokens": 8, "seed": 1, "no_cache": True}).json
        second = server.post(CHAT, {"messages": more, "max_tokens": 8, "seed": 1}, headers={"x-session-id": "s"}).json
        equal(second["choices"][0]["message"]["content"], plain["choices"][0]["message"]["content"], "text of a session and of a whole conversation")
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached >= first["usage"]["prompt_tokens"], f"reused tokens of a session: expected at least {first['usage']['prompt_tokens']}, found {cached}"
        edited = [{"role": "user", "content": "In the beginning was the Word."}]
        found = server.post(CHAT, {"messages": edited, "session_id": "s", "max_tokens": 8, "seed": 1}).json
        fresh = server.post(CHAT, {"messages": edited, "max_tokens": 8, "seed": 1, "no_cache": True}).json
        equal(found["choices"][0]["message"]["content"], fresh["choices"][0]["message"]["content"], "text of an edited session")


CHECKS = [names_cannot_leave_the_folder, wrong_files_are_refused, states_continue_texts, sessions_continue]
