"""Requests that several parts send."""

import json
import socket
import threading

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = [{"role": "user", "content": "light"}]
SHORT = {"messages": USER, "max_tokens": 8, "seed": 1}
# A text so long that no test waits for its end.
LONG = {"prompt": "In the beginning", "max_tokens": 10_000_000, "ignore_eos": True, "seed": 1}


class Background(threading.Thread):
    """Reads a stream in another thread. `events` has the data of its events, and `begun` is set after the first text."""

    def __init__(self, server, body, headers=None):
        super().__init__(daemon=True)
        self.server, self.body, self.headers, self.events, self.error, self.begun = server, body, headers, [], None, threading.Event()
        self.start()
        assert self.begun.wait(60), f"a stream: expected a first text within 60 s, found {self.events} {self.error}"

    def run(self):
        try:
            for data in self.server.stream(TEXT, self.body, headers=self.headers):
                self.events.append(data)
                if data == "[DONE]" or any(c["text"] for c in json.loads(data).get("choices", [])):
                    self.begun.set()
        except Exception as e:  # noqa: BLE001
            self.error = e
        self.begun.set()


def raw(server, sent, timeout=30):
    """Sends bytes as they are and returns the whole answer. The connection stays open until the server closes it."""
    with socket.create_connection((server.host, server.port), timeout=timeout) as connection:
        connection.sendall(sent)
        received = b""
        while more := connection.recv(65536):
            received += more
        return received
