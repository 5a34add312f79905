"""The questions of the soak's clients, the answers that they must receive, and the states that the server has acknowledged."""

import collections
import hashlib
import http.client
import json
import re
import socket
import threading
import time

from server import Answer

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
NAMES = ["ada", "bob", "cyd", "dan"]
KEYS = [f"key-of-{name}-0123456789" for name in NAMES]
MAX_BODY = 1_000_000
# Different texts, so that prompts have different lengths and share beginnings.
PROMPTS = ["light", "In the beginning God created the heaven and the earth.", "In the beginning was the Word, " * 6, "Who?", "And it came to pass " * 20, "In the"]
GRAMMAR = 'root ::= item ("," item){2,5}\nitem ::= [a-z]{1,8} " " [0-9]{1,3}'
FOLLOWS = re.compile(r"[a-z]{1,8} [0-9]{1,3}(,[a-z]{1,8} [0-9]{1,3}){2,5}")
SCHEMA = {
    "type": "object", "required": ["name", "reign", "just"], "additionalProperties": False,
    "properties": {"name": {"type": "string", "maxLength": 30}, "reign": {"type": "integer", "minimum": 0, "maximum": 99}, "just": {"enum": ["yes", "no"]}},
}


def user(text):
    return [{"role": "user", "content": text}]


def questions():
    """Returns a path and a body for each question, by kind and number."""
    asked = {}
    for i in range(12):
        asked["chat", i] = CHAT, {"messages": user(PROMPTS[i % 6]), "seed": i, "temperature": 1.2, "max_tokens": 8 + 4 * (i % 5), "ignore_eos": True}
    for i in range(4):
        asked["long", i] = TEXT, {"prompt": PROMPTS[i], "seed": i, "max_tokens": 1500 + 500 * i, "ignore_eos": True}
        asked["grammar", i] = TEXT, {"prompt": "Kings: ", "seed": i, "max_tokens": 200, "grammar": GRAMMAR}
        schema = {"type": "json_schema", "json_schema": {"name": "king", "strict": True, "schema": SCHEMA}}
        asked["schema", i] = CHAT, {"messages": user("A king"), "seed": i, "max_tokens": 200, "response_format": schema}
        asked["response", i] = RESPONSES, {"input": PROMPTS[i], "seed": i, "max_output_tokens": 12 + i}
        asked["saved", i] = TEXT, {"prompt": PROMPTS[i], "seed": i, "max_tokens": 16 + i, "ignore_eos": True}
    return asked


QUESTIONS = questions()
# The origins of states: after a prompt, after an answer, or after an answer that continues from a state; and the number of the prompt or question.
LINEAGES = [(how, i) for how in ("prompt", "answer", "chain") for i in range(4)]


def continuation(state):
    return {"prompt": " and", "state": state, "seed": 7, "temperature": 1.2, "max_tokens": 24, "ignore_eos": True}


def text_of(answer):
    """Returns the text of a chat answer, a completion or a response."""
    if answer["object"] == "response":
        return "".join(part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"])
    return "".join(choice["message"]["content"] if "message" in choice else choice["text"] for choice in answer["choices"])


def check_rules(kind, text):
    """Compares a whole text with the grammar or the schema of its question."""
    if kind == "grammar":
        assert FOLLOWS.fullmatch(text), f"text of a grammar: expected {FOLLOWS.pattern}, found {text!r}"
    if kind == "schema":
        king = json.loads(text)
        right = list(king) == ["name", "reign", "just"] and len(king["name"]) <= 30 and king["just"] in ("yes", "no")
        right = right and type(king["reign"]) is int and 0 <= king["reign"] <= 99
        assert right, f"text of a schema: expected a king, found {text!r}"


def tensors(file):
    """Returns a digest of the numbers in a state file. The metadata has the time of saving, so files of the same state differ."""
    n = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + n])
    digest = hashlib.sha256()
    for name, about in sorted(header.items()):
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            digest.update(f"{name} {about['dtype']} {about['shape']}".encode() + file[8 + n + begin : 8 + n + end])
    return digest.hexdigest()


def lines(response, begun):
    """Yields the lines of a response. `begun` has the bytes that were already read."""
    while True:
        *whole, begun = begun.split(b"\n")
        yield from whole
        more = response.read1(65536)
        if not more:
            return
        begun += more


class Wrong(AssertionError):
    """A wrong result of the server. `expected` and `found` are texts."""

    def __init__(self, what, expected, found):
        self.what, self.expected, self.found = what, str(expected)[:2000], str(found)[:2000]
        super().__init__(f"{what}: expected {self.expected[:300]}, found {self.found[:300]}")


class Skipped(Exception):
    """Ends an action that the server refused, or that a restart disturbed. If `disturbed` is true, the server may have done what was asked."""

    def __init__(self, disturbed):
        super().__init__()
        self.disturbed = disturbed


class Kept:
    """An acknowledged state or response. `lineages` has its origin, or two origins if a restart disturbed an overwriting.

    It is empty if the text of the state was cut. Then `text` is the first continuation, which later continuations must equal."""

    def __init__(self, kind, name, *lineages):
        self.kind, self.name, self.lineages, self.text = kind, name, set(lineages), None


class Asks:
    """Sends requests to the current server, knows the right texts, and counts what happens in the run."""

    def __init__(self, began):
        # `served` is the current server. All servers of a soak have the same address.
        self.served, self.began = None, began
        # In an even epoch, a server answers. An odd epoch begins before a signal and ends when the next server answers.
        self.epoch = 0
        self.lock, self.busy, self.ended = threading.Lock(), 0, False
        self.open, self.closing = threading.Event(), threading.Event()
        self.counts, self.failures, self.n_failed = collections.Counter(), [], 0
        self.texts, self.files, self.digests, self.tokens = {}, {}, {}, {}
        self.kept = [{} for _ in KEYS]
        self.n_names = 0

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] += n

    def fail(self, kind, error):
        wrong = error if isinstance(error, Wrong) else Wrong(kind, "an answer", f"{type(error).__name__}: {error}")
        with self.lock:
            self.n_failed += 1
            if len(self.failures) < 1000:
                at = round(time.monotonic() - self.began, 3)
                self.failures.append({"t": at, "kind": kind, "what": wrong.what, "expected": wrong.expected, "found": wrong.found})

    def disturbed(self, epoch):
        return epoch % 2 == 1 or epoch != self.epoch

    def sleep(self, seconds):
        self.closing.wait(seconds)

    def new_name(self, what):
        with self.lock:
            self.n_names += 1
            return f"{what}-{self.n_names}"

    def take(self, key, rng, kind=None):
        """Takes a state out of `kept`, so that no other client uses it. Returns the state, or `None` if the key has no state of this kind."""
        with self.lock:
            names = [name for name, one in self.kept[key].items() if kind in (None, one.kind)]
            return self.kept[key].pop(rng.choice(names)) if names else None

    def keep(self, key, one):
        with self.lock:
            self.kept[key][one.name] = one

    def ask(self, key, method, path, body=None, status=200):
        """Sends a request and returns the answer. The answer's `epoch` is the epoch in which the request was sent."""
        epoch = self.epoch
        try:
            answer = self.served.request(method, path, body, headers={"authorization": f"Bearer {KEYS[key]}"}, timeout=60)
        except (OSError, http.client.HTTPException) as e:
            self.lost(epoch, f"{method} {path}", e)
        self.refused(answer, epoch, f"{method} {path}")
        if answer.status != status:
            raise Wrong(f"status of {method} {path} {str(body)[:200]}", status, f"{answer.status} {answer.body[:300]!r}")
        answer.epoch = epoch
        return answer

    def lost(self, epoch, what, error):
        """Skips the action if a restart explains the error of a connection."""
        if not self.disturbed(epoch):
            raise Wrong(what, "an answer", f"{type(error).__name__}: {error}")
        self.count("connections lost to restarts")
        raise Skipped(not isinstance(error, ConnectionRefusedError))

    def refused(self, answer, epoch, what):
        """Skips the action if the server may refuse it: a full queue, or the end of the server."""
        code = answer.error.get("code")
        if answer.status == 429 or (answer.status == 503 and code in ("stopping", "model_loading") and self.disturbed(epoch)):
            if not answer.headers.get("retry-after"):
                raise Wrong(f"{what} with status {answer.status} {code}", "retry-after", dict(answer.headers))
            self.count(f"{answer.status} {code}")
            raise Skipped(False)

    def same(self, what, found, allowed, epoch):
        """Compares a text with the allowed texts. Returns False if the end of the server cut the text."""
        if found in allowed:
            return True
        if self.disturbed(epoch) and any(text.startswith(found) for text in allowed):
            self.count("texts cut by SIGTERM")
            return False
        raise Wrong(what, " or ".join(map(repr, allowed)), repr(found))

    def opened(self, key, path, body, buffer=None):
        """Sends a request for a stream and returns connection and response. `buffer` is the size of the receive buffer of a slow client."""
        epoch = self.epoch
        connection = self.served.connection(60)
        try:
            if buffer:
                connection.sock = socket.socket()
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
                connection.sock.settimeout(60)
                connection.sock.connect((self.served.host, self.served.port))
            connection.request("POST", path, json.dumps({**body, "stream": True}), {"authorization": f"Bearer {KEYS[key]}"})
            response = connection.getresponse()
            if response.status != 200:
                answer = Answer(response, response.read())
                self.refused(answer, epoch, f"a stream of {path}")
                raise Wrong(f"status of a stream of {path}", 200, f"{answer.status} {answer.body[:300]!r}")
        except (OSError, http.client.HTTPException) as e:
            connection.close()
            self.lost(epoch, f"a stream of {path}", e)
        except BaseException:
            connection.close()
            raise
        return connection, response, epoch

    def read_stream(self, kind, i, response, epoch, begun=b""):
        """Reads a stream to its end and compares its text. `begun` has the bytes that were already read."""
        text, last, n = "", "", 0
        try:
            for line in lines(response, begun):
                if not line.startswith(b"data:"):
                    continue
                last, n = line[5:].strip().decode(), n + 1
                if last == "[DONE]":
                    break
                chunk = json.loads(last)
                if "error" in chunk:
                    break
                text += "".join((c["delta"].get("content") or "") if "delta" in c else c["text"] for c in chunk["choices"])
                if self.closing.is_set() and n > 64:
                    return self.count("streams left for a check")
            if last != "[DONE]":
                raise EOFError(f"last event {last[:200]!r}")
        except (OSError, EOFError, http.client.HTTPException) as e:
            return self.lost(epoch, f"{kind} stream {i} after {n} events", e)
        if self.same(f"{kind} stream {i}", text, {self.texts[kind, i]}, epoch):
            check_rules(kind, text)
            self.count(f"{kind} streams")
        return None

    def learn(self):
        """Asks an idle server all questions. Every server of the soak must answer with the same texts."""
        for (kind, i), (path, body) in QUESTIONS.items():
            answer = self.ask(0, "POST", path, {**body, "store": False} if kind == "response" else body)
            self.texts[kind, i] = text_of(answer.json)
            check_rules(kind, self.texts[kind, i])
        for i in range(4):
            (first, second), name = self.session(0, i), f"learn-{i}"
            self.texts["session", i], self.texts["turn", i] = first, second
            made = self.ask(0, "POST", RESPONSES, QUESTIONS["response", i][1]).json["id"]
            self.texts["kept", ("response", i)] = text_of(self.ask(0, "POST", RESPONSES, self.next_response(made)).json)
            self.ask(0, "DELETE", f"{RESPONSES}/{made}")
            self.tokens[i] = self.ask(0, "POST", "/tokenize", {"content": PROMPTS[i]}).json["tokens"]
            for how in ("prompt", "answer", "chain"):
                self.make(0, name, (how, i))
                self.texts["kept", (how, i)] = text_of(self.ask(0, "POST", TEXT, continuation(name)).json)
                self.files[how, i] = self.ask(0, "GET", f"/v1/states/{name}/content").body
                self.digests[how, i] = tensors(self.files[how, i])
                self.ask(0, "DELETE", f"/v1/states/{name}")

    def ask_all(self):
        """Asks each question again, without load."""
        for (kind, i), (path, body) in QUESTIONS.items():
            answer = self.ask(i % len(KEYS), "POST", path, {**body, "store": False} if kind == "response" else body)
            self.same(f"{kind} {i} after the load", text_of(answer.json), {self.texts[kind, i]}, answer.epoch)

    def next_response(self, name):
        return {"input": "more", "previous_response_id": name, "seed": 5, "max_output_tokens": 16, "store": False}

    def make(self, key, name, lineage):
        """Saves a state, waits for the acknowledgement, and returns the state."""
        how, i = lineage
        if how == "prompt":
            self.ask(key, "POST", "/v1/states", {"action": "save", "name": name, "prompt": PROMPTS[i]})
            return Kept("states", name, lineage)
        if how == "upload":
            lineage = LINEAGES[i]
            self.ask(key, "PUT", f"/v1/states/{name}/content", self.files[lineage], status=201)
            return Kept("states", name, lineage)
        base, body, expected = self.new_name("base"), QUESTIONS["saved", i][1], self.texts["saved", i]
        try:
            if how == "chain":
                self.make(key, base, ("prompt", i))
                body = continuation(base)
                expected = self.texts["kept", ("prompt", i)]
            answer = self.ask(key, "POST", TEXT, {**body, "save_state": name})
        finally:
            if how == "chain":
                self.drop(key, base)
        state = answer.json.get("state") or {}
        if state.get("name") != name or "error" in state:
            if self.disturbed(answer.epoch):
                raise Skipped(True)
            raise Wrong(f"state of an answer with save_state {name}", name, answer.json.get("state"))
        whole = self.same(f"answer with save_state {lineage}", text_of(answer.json), {expected}, answer.epoch)
        return Kept("states", name, *([lineage] if whole else []))

    def drop(self, key, name):
        """Tries to delete a state that may not exist. Ignores errors."""
        try:
            self.served.request("DELETE", f"/v1/states/{name}", headers={"authorization": f"Bearer {KEYS[key]}"}, timeout=60)
        except (OSError, http.client.HTTPException):
            pass

    def session(self, key, i):
        """Returns the texts of two turns of a session."""
        name, texts, messages = self.new_name("session"), [], []
        try:
            for kind, asked in (("session", PROMPTS[i]), ("turn", "more")):
                messages += user(asked)
                answer = self.ask(key, "POST", CHAT, {"messages": messages, "session_id": name, "seed": i, "max_tokens": 12, "ignore_eos": True})
                text = text_of(answer.json)
                if (kind, i) in self.texts and not self.same(f"{kind} {i} of a session", text, {self.texts[kind, i]}, answer.epoch):
                    raise Skipped(True)
                texts.append(text)
                messages.append({"role": "assistant", "content": text})
        finally:
            self.drop(key, name)
        return texts

    def load(self, key, one):
        """Continues from a kept state or response and compares the text."""
        state = one.kind == "states"
        answer = self.ask(key, "POST", TEXT if state else RESPONSES, continuation(one.name) if state else self.next_response(one.name))
        found, allowed = text_of(answer.json), {self.texts["kept", lineage] for lineage in one.lineages} or ({one.text} if one.text else set())
        if allowed:
            return self.same(f"text from {one.kind}/{one.name}, {sorted(one.lineages) or 'a cut text'}", found, allowed, answer.epoch)
        if not self.disturbed(answer.epoch):
            one.text = found
        return True

    def check_kept(self):
        """Loads every acknowledged state and response. No client may run. A state that no client knows must load, too; it is then deleted."""
        for key in range(len(KEYS)):
            for one in list(self.kept[key].values()):
                try:
                    self.ask(key, "GET", f"/v1/{one.kind}/{one.name}")
                    self.load(key, one)
                    self.count("kept states checked")
                except Exception as e:  # noqa: BLE001
                    del self.kept[key][one.name]
                    self.fail("kept state", e)
            names = {state["name"] for state in self.ask(key, "GET", "/v1/states").json["data"]}
            missing = sorted(name for name, one in self.kept[key].items() if one.kind == "states" and name not in names)
            if missing:
                self.fail("listed states", Wrong("acknowledged states that /v1/states does not list", "none", missing))
            for name in names - set(self.kept[key]):
                try:
                    self.ask(key, "POST", TEXT, continuation(name))
                    self.count("unacknowledged states checked")
                except Exception as e:  # noqa: BLE001
                    self.fail("unacknowledged state", e)
                self.drop(key, name)
