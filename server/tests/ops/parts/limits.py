"""Limits: bodies, headers, slow clients, the queue, quotas."""

import json
import socket
import time

from server import Server, equal, folder

from .shared import CHAT, LONG, SHORT, TEXT, Background, raw

MAX_BODY = 20_000


def large_bodies_are_413():
    with Server("--max-body", MAX_BODY) as server:
        fits = {**SHORT, "user": "a" * (MAX_BODY - 1000)}
        equal(server.post(CHAT, fits).status, 200, "a body below the limit")
        large = json.dumps({**SHORT, "user": "a" * MAX_BODY}).encode()
        answer = server.post(CHAT, large)
        equal((answer.status, answer.error.get("code")), (413, "body_too_large"), "a body above the limit")
        # The header states a length above the limit, so the server answers without waiting for the body.
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\n".encode()
        began = time.monotonic()
        received = raw(server, head)
        assert received.startswith(b"HTTP/1.1 413"), f"a stated length above the limit: expected 413, found {received[:100]!r}"
        assert time.monotonic() - began < 5, f"a stated length above the limit: expected an answer within 5 s, found {time.monotonic() - began:.1f} s"
        # A chunked body states no length, so the server counts the bytes as they arrive.
        chunk = b"%x\r\n%s\r\n" % (10_000, b" " * 10_000)
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
        received = raw(server, head + chunk * 4 + b"0\r\n\r\n")
        assert received.startswith(b"HTTP/1.1 413"), f"chunks above the limit: expected 413, found {received[:100]!r}"
        equal(server.post(CHAT, SHORT).status, 200, "an answer after large bodies")


def large_headers_are_refused():
    with Server() as server:
        for headers in (f"X-Large: {'a' * 200_000}\r\n", "".join(f"X-{i}: a\r\n" for i in range(500))):
            try:
                received = raw(server, f"GET /health HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
            except ConnectionResetError:
                received = b""
            assert received[:12] in (b"", b"HTTP/1.1 431", b"HTTP/1.1 400"), f"large headers: expected 431, found {received[:100]!r}"
        for sent in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 100 + b"\r\n\r\n"):
            received = raw(server, sent + b"\r\n\r\n")
            assert not received.startswith(b"HTTP/1.1 2"), f"nonsense {sent!r}: expected an error, found {received[:100]!r}"
        equal(server.get("/health").status, 200, "/health after nonsense")


def slow_clients_end():
    """`--read-timeout` limits the time for a header, and the time for a body. The server answers other clients meanwhile."""
    with Server("--read-timeout", "2") as server:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
        for name, sent, expected in (("header", head, (b"", b"HTTP/1.1 408")), ("body", head + '\r\n{"messages": [', (b"HTTP/1.1 408",))):
            began = time.monotonic()
            connections = [slow(server, sent) for _ in range(20)]
            equal(server.post(CHAT, SHORT).status, 200, f"an answer beside slow clients ({name})")
            for connection in connections:
                received = drip(connection)
                assert received[:12] in expected, f"a slow {name}: expected {expected}, found {received[:100]!r}"
            took = time.monotonic() - began
            assert 1.5 < took < 15, f"a slow {name}: expected the end after 2 s, found {took:.1f} s"


def slow(server, sent):
    connection = socket.create_connection((server.host, server.port), timeout=30)
    connection.sendall(sent.encode())
    return connection


def drip(connection):
    """Sends a byte now and then, as a slow client does, until the server ends the connection."""
    received, end = b"", time.monotonic() + 20
    connection.settimeout(0.1)
    with connection:
        while time.monotonic() < end:
            try:
                more = connection.recv(4096)
                if not more:
                    return received
                received += more
            except TimeoutError:
                try:
                    connection.send(b"a")
                except OSError:
                    return received
            except OSError:
                return received
    raise AssertionError("a slow client: expected the end of the connection within 20 s, found it open")


def full_queues_are_429():
    with Server("--slots", "1", "--queue", "1", "--grace", "0") as server:
        stream = Background(server, LONG)
        waiting = socket.create_connection((server.host, server.port))
        body = json.dumps(LONG)
        waiting.sendall(f"POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        for _ in range(100):
            if server.get("/slots").json[0]["waiting"]:
                break
            time.sleep(0.02)
        answer = server.post(CHAT, SHORT)
        equal((answer.status, answer.error.get("code")), (429, "queue_full"), "a request to a full queue")
        assert int(answer.headers.get("retry-after") or 0) > 0, f"Retry-After: expected seconds, found {answer.headers.get('retry-after')}"
        waiting.close()
        assert not stream.error, f"a running stream beside a full queue: expected no error, found {stream.error}"


def quotas_are_kept():
    with folder() as path, Server("--states", path) as server:
        size = server.post("/v1/states", {"action": "save", "name": "one", "prompt": "a"}).json["bytes"]
    with folder() as path, Server("--states", path, "--state-quota", int(size * 2.5)) as server:
        for name in ("one", "two"):
            equal(server.post("/v1/states", {"action": "save", "name": name, "prompt": "a"}).status, 200, f"state {name} within the quota")
        answer = server.post("/v1/states", {"action": "save", "name": "three", "prompt": "a"})
        equal((answer.status, answer.error.get("code")), (413, "quota_exceeded"), "a state above the quota")
        names = [state["name"] for state in server.get("/v1/states").json["data"]]
        equal(names, ["one", "two"], "states after a refusal")
        equal(server.request("DELETE", "/v1/states/one").status, 200, "deleting a state")
        equal(server.post("/v1/states", {"action": "save", "name": "three", "prompt": "a"}).status, 200, "a state after another was deleted")


CHECKS = [large_bodies_are_413, large_headers_are_refused, slow_clients_end, full_queues_are_429, quotas_are_kept]
