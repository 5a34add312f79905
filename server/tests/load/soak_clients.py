"""The clients of the soak. A client repeats actions at random. An action ends, is skipped (the server refused it, or ended meanwhile), or records a failure."""

import http.client
import json
import random
import socket
import threading
import time

from soak_asks import CHAT, KEYS, LINEAGES, MAX_BODY, PROMPTS, QUESTIONS, RESPONSES, TEXT, Asks, Kept, Skipped, Wrong, check_rules, tensors, text_of

# A key keeps about this many states and responses at most.
MOST_KEPT = 32
WRONG = [
    b"", b"{", b"null", b"[1]", b'"text"', b"\xff\xfe\x00", b'{"messages": 1, "prompt": {}, "input": 1, "content": 1}', b"[" * 5000, b'{"a":' * 5000,
    b'{"messages": [{"role": "user", "content": 5}], "prompt": "a", "input": "a", "content": {}, "max_tokens": "x", "max_output_tokens": "x"}',
]


class Clients(Asks):
    def answers(self, key, rng):
        kind, i = rng.choice([asked for asked in QUESTIONS if asked[0] in ("chat", "grammar", "schema", "saved")])
        path, body = QUESTIONS[kind, i]
        answer = self.ask(key, "POST", path, body)
        if self.same(f"{kind} answer {i}", text_of(answer.json), {self.texts[kind, i]}, answer.epoch):
            check_rules(kind, text_of(answer.json))
            self.count(f"{kind} answers")

    def streams(self, key, rng, kinds=("chat", "grammar", "schema")):
        kind, i = rng.choice([asked for asked in QUESTIONS if asked[0] in kinds])
        connection, response, epoch = self.opened(key, *QUESTIONS[kind, i])
        try:
            self.read_stream(kind, i, response, epoch)
        finally:
            connection.close()

    def long_streams(self, key, rng):
        self.streams(key, rng, ("long",))

    def saves(self, key, rng):
        if len(self.kept[key]) >= MOST_KEPT:
            return self.deletes(key, rng)
        self.keep(key, self.make(key, self.new_name("state"), rng.choice(LINEAGES)))
        return self.count("states saved")

    def uploads(self, key, rng):
        if len(self.kept[key]) >= MOST_KEPT:
            return self.deletes(key, rng)
        self.keep(key, self.make(key, self.new_name("upload"), ("upload", rng.randrange(len(LINEAGES)))))
        return self.count("states uploaded")

    def responses(self, key, rng):
        if len(self.kept[key]) >= MOST_KEPT:
            return self.deletes(key, rng)
        i = rng.randrange(4)
        answer = self.ask(key, "POST", RESPONSES, QUESTIONS["response", i][1])
        whole = self.same(f"response {i}", text_of(answer.json), {self.texts["response", i]}, answer.epoch)
        if not answer.json["store"]:
            raise Skipped(True) if self.disturbed(answer.epoch) else Wrong(f"store of the response {i}", True, answer.json.get("store_error"))
        self.keep(key, Kept("responses", answer.json["id"], *([("response", i)] if whole else [])))
        return self.count("responses")

    def with_kept(self, key, rng, action, kind=None, reads=False):
        """Runs an action with a kept state that no other client touches. The action returns whether the state is still kept. A failed state is forgotten."""
        one = self.take(key, rng, kind)
        if not one:
            return
        try:
            is_kept = action(one) or reads
        except Skipped as e:
            # After a disturbed change, the content of the state is unknown.
            if reads or not e.disturbed:
                self.keep(key, one)
            raise
        if is_kept:
            self.keep(key, one)

    def continues(self, key, rng):
        self.with_kept(key, rng, lambda one: self.load(key, one) and self.count("states continued"), reads=True)

    def downloads(self, key, rng):
        def download(one):
            file = self.ask(key, "GET", f"/v1/states/{one.name}/content").body
            allowed = {self.digests[lineage] for lineage in one.lineages}
            if allowed and tensors(file) not in allowed:
                raise Wrong(f"numbers of the state {one.name}, {sorted(one.lineages)}", allowed, tensors(file))
            self.count("states downloaded")

        self.with_kept(key, rng, download, "states", reads=True)

    def forks(self, key, rng):
        def fork(one):
            if len(self.kept[key]) < MOST_KEPT:
                name = self.new_name("fork")
                self.ask(key, "POST", "/v1/states", {"action": "fork", "from": one.name, "name": name})
                copy = Kept("states", name, *one.lineages)
                copy.text = one.text
                self.keep(key, copy)
                self.count("states forked")

        self.with_kept(key, rng, fork, "states", reads=True)

    def renames(self, key, rng):
        def rename(one):
            name = self.new_name("renamed")
            self.ask(key, "POST", "/v1/states", {"action": "rename", "from": one.name, "name": name})
            one.name = name
            self.count("states renamed")
            return True

        self.with_kept(key, rng, rename, "states")

    def overwrites(self, key, rng):
        lineage = rng.choice(LINEAGES)

        def overwrite(one):
            try:
                self.keep(key, self.make(key, one.name, lineage))
                self.count("states overwritten")
            except Skipped as e:
                if e.disturbed:
                    # The name now has the old state, the new state, or the state of a cut text.
                    one.lineages, one.text = {*one.lineages, lineage} if one.lineages and lineage[0] == "prompt" else set(), None
                    self.keep(key, one)
                raise

        self.with_kept(key, rng, overwrite, "states")

    def deletes(self, key, rng):
        def delete(one):
            self.ask(key, "DELETE", f"/v1/{one.kind}/{one.name}")
            self.count("states deleted")

        self.with_kept(key, rng, delete)

    def sessions(self, key, rng):
        self.session(key, rng.randrange(4))
        self.count("sessions")

    def tokenizes(self, key, rng):
        i = rng.randrange(4)
        found = self.ask(key, "POST", "/tokenize", {"content": PROMPTS[i]}).json["tokens"]
        if found != self.tokens[i]:
            raise Wrong(f"/tokenize {i}", self.tokens[i], found)
        self.count("tokenized texts")

    def connect(self, what):
        epoch = self.epoch
        try:
            return socket.create_connection((self.served.host, self.served.port), timeout=30)
        except OSError as e:
            return self.lost(epoch, what, e)

    def head(self, key, method, path, n):
        return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEYS[key]}\r\nContent-Length: {n}\r\n\r\n".encode()

    def leaves(self, key, rng):
        """Closes the connection in the middle of the header, the body or the answer."""
        path, body = QUESTIONS[rng.choice(["chat", "chat", "schema", "long"]), rng.randrange(4)]
        body = json.dumps({**body, "stream": rng.random() < 0.7}).encode()
        sent, whole = self.head(key, "POST", path, len(body)) + body, rng.random() < 0.7
        with self.connect("a disconnect") as connection:
            try:
                connection.sendall(sent if whole else sent[: rng.randrange(1, len(sent))])
                connection.settimeout(rng.random() * 0.3 + 0.001)
                for _ in range(rng.randrange(1, 8) if whole else 0):
                    connection.recv(500)
            except OSError:
                pass
            if rng.random() < 0.5:
                # Resets the connection instead of closing it in order.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.count("disconnects")

    def reads_slowly(self, key, rng):
        """Reads 2 kB per second for some seconds, then leaves, or reads the rest."""
        i = rng.randrange(4)
        path, body = QUESTIONS["long", i]
        connection, response, epoch = self.opened(key, path, body, buffer=4096)
        try:
            begun, end = b"", time.monotonic() + rng.uniform(1, 6)
            while time.monotonic() < end and not self.closing.is_set():
                begun += response.read1(200)
                self.sleep(0.1)
            self.count("slow readers")
            if rng.random() < 0.5:
                self.read_stream("long", i, response, epoch, begun)
        except (OSError, http.client.HTTPException) as e:
            self.lost(epoch, "a slow reader", e)
        finally:
            connection.close()

    def reads_nothing(self, key, rng):
        connection, _, _ = self.opened(key, *QUESTIONS["long", rng.randrange(4)], buffer=4096)
        self.sleep(rng.uniform(1, 8))
        connection.close()
        self.count("unread streams")

    def idles(self, key, rng):
        """Opens a connection, and sends nothing, a part of a header, or only the beginning of an upload."""
        sent = rng.choice([b"", b"GET /hea", self.head(key, "PUT", f"/v1/states/{self.new_name('never')}/content", 100_000) + b"abc"])
        with self.connect("an idle connection") as connection:
            try:
                connection.sendall(sent)
            except OSError:
                pass
            self.sleep(rng.uniform(1, 8))
        self.count("idle connections")

    def malformed(self, key, rng):
        path = rng.choice([CHAT, TEXT, RESPONSES, "/tokenize"])
        self.ask(key, "POST", path, rng.choice(WRONG), status=400)
        file = self.files[rng.choice(LINEAGES)]
        self.ask(key, "PUT", f"/v1/states/{self.new_name('wrong')}/content", rng.choice([b"nonsense", file[: len(file) // 2], file[:8] + b"x" + file[9:]]), status=400)
        self.count("malformed bodies", 2)

    def oversized(self, key, rng):
        epoch = self.epoch
        try:
            answer = self.served.request("POST", CHAT, b" " * (MAX_BODY * rng.randrange(2, 5)), headers={"authorization": f"Bearer {KEYS[key]}"}, timeout=60)
        except (BrokenPipeError, ConnectionResetError):
            return self.count("oversized bodies")  # The server closed the connection before it read the whole body.
        except (OSError, http.client.HTTPException) as e:
            return self.lost(epoch, "an oversized body", e)
        self.refused(answer, epoch, "an oversized body")
        if answer.status != 413:
            raise Wrong("status of an oversized body", 413, f"{answer.status} {answer.body[:200]!r}")
        return self.count("oversized bodies")

    def client(self, number):
        """Repeats actions until the soak ends. Between two actions it waits while the clients are stopped."""
        rng, key = random.Random(number), number % len(KEYS)
        actions = {
            self.answers: 30, self.streams: 20, self.long_streams: 1, self.saves: 8, self.uploads: 4, self.responses: 6, self.continues: 10, self.downloads: 4, self.forks: 2,
            self.renames: 2, self.overwrites: 4, self.deletes: 2, self.sessions: 4, self.tokenizes: 2, self.leaves: 10, self.reads_slowly: 1, self.reads_nothing: 1, self.idles: 1,
            self.malformed: 3, self.oversized: 1,
        }
        while True:
            self.open.wait()
            with self.lock:
                if self.ended:
                    return
                if not self.open.is_set():
                    continue
                self.busy += 1
            action = rng.choices(list(actions), list(actions.values()))[0]
            try:
                action(key, rng)
            except Skipped:
                self.sleep(rng.uniform(0.02, 0.3))
            except Exception as e:  # noqa: BLE001
                self.fail(action.__name__, e)
            with self.lock:
                self.busy -= 1

    def start(self, n):
        threads = [threading.Thread(target=self.client, args=(number,), daemon=True) for number in range(n)]
        for thread in threads:
            thread.start()
        self.go()

    def go(self):
        self.closing.clear()
        self.open.set()

    def halt(self):
        """Lets no client begin an action, and waits until all running actions have ended."""
        with self.lock:
            self.open.clear()
        self.closing.set()
        end = time.monotonic() + 90
        while self.busy:
            if time.monotonic() > end:
                raise Wrong("clients that were stopped", "the end of all actions within 90 s", f"{self.busy} at work")
            time.sleep(0.02)

    def finish(self):
        self.halt()
        with self.lock:
            self.ended = True
        self.open.set()
