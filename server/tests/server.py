"""Starts and ends a server for a test, and runs the checks of a script.

    with Server("--slots", "4") as server:
        server.post("/v1/completions", {"prompt": "light"})

As a program: `server.py [FLAGS OF serve…] -- COMMAND…` runs COMMAND with the server's address in WINGBEAT_URL. The server has a model for texts, a
model for vectors, and its reranker.
"""

import atexit
import functools
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("WINGBEAT_BIN", str(ROOT / "target/release/wingbeat"))
# The seconds that a server may take to listen, to load, and to end.
START, LOAD, END = 30, 120, 60


class Answer:
    """A response: `status`, `headers`, `body` (bytes) and `json` (None if the body is no JSON)."""

    def __init__(self, response, body):
        self.status, self.headers, self.body = response.status, response.headers, body
        try:
            self.json = json.loads(body)
        except ValueError:
            self.json = None

    @property
    def error(self):
        """Returns the object `error` of the body, or an empty object."""
        error = self.json.get("error") if isinstance(self.json, dict) else None
        return error if isinstance(error, dict) else {}


class Server:
    """A running `wingbeat serve` on the CPU, with the embedded model unless the flags name another."""

    def __init__(self, *flags, env=None, wait=True):
        command = [BINARY, "serve", "--port", "0", "--device", "cpu", *map(str, flags)]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WINGBEAT_API")}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, text=True, errors="replace", env={**clean, **(env or {})})
        self.lines, self.url, self.listens = [], None, threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.listens.wait(START) or self.url is None:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{' '.join(command)}: expected a line `listening on http://…`, found {self.log()[-800:]!r}")
        if wait:
            self.wait_ready()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"listening on (http://\S+)", line)
            if found and self.url is None:
                self.url = found.group(1).rstrip("/")
                self.host, self.port = urllib.parse.urlsplit(self.url).hostname, urllib.parse.urlsplit(self.url).port
                self.listens.set()
        self.listens.set()

    def wait_ready(self):
        """Waits until all models are loaded."""
        end = time.monotonic() + LOAD
        while time.monotonic() < end:
            answer = self.get("/health")
            if answer.status == 200:
                return
            assert answer.status == 503, f"/health while loading: expected 503, found {answer.status} {answer.body!r}"
            time.sleep(0.02)
        raise AssertionError(f"/health: expected 200 within {LOAD} s, found 503; log: {self.log()[-800:]!r}")

    def log(self):
        return "".join(self.lines)

    def connection(self, timeout=120):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=120):
        """Sends a request and returns the answer. `body` is bytes, text, or a value that becomes JSON."""
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        connection = self.connection(timeout)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return Answer(response, response.read())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def stream(self, path, body, headers=None, timeout=120):
        """Sends a request with `stream` and yields the data of each event as text."""
        connection = self.connection(timeout)
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}), headers or {})
            response = connection.getresponse()
            assert response.status == 200, f"{path} with stream: expected 200, found {response.status} {response.read()[:300]!r}"
            for line in response:
                if line.startswith(b"data:"):
                    yield line[5:].strip().decode()
        finally:
            connection.close()

    def rss(self):
        """Returns the resident memory in MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024

    def stop(self, how=signal.SIGTERM):
        """Ends the server and returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            code = self.process.wait(END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{how.name}: expected the end of the server within {END} s, found it running") from None
        self.reader.join(5)
        return code

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        code = self.stop() if self.process.poll() is None else None
        if kind is None:
            assert "panicked" not in self.log(), f"log: expected no panic, found {self.log()[-2000:]}"
            assert code in (0, None), f"exit code after SIGTERM: expected 0, found {code}; log: {self.log()[-500:]!r}"


def equal(found, expected, what):
    assert found == expected, f"{what}: expected {expected!r}, found {found!r}"


@functools.cache
def models():
    """Returns a folder with the tiny models and their vocabulary. A model finds the vocabulary in its folder."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="wingbeat-tests-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    (path / "vocab.txt").symlink_to(ROOT / "assets/vocab/tiny.txt")
    (path / "tiny-rwkv7.safetensors").symlink_to(ROOT / "tests/models/tiny-rwkv7.safetensors")
    for version in (4, 5, 6):
        name = f"tiny-rwkv{version}.safetensors"
        (path / name).symlink_to(ROOT / "tests/models" / name)
    (path / "tiny-glm4").mkdir()
    for file in (ROOT / "tests/models/tiny-glm4").iterdir():
        (path / "tiny-glm4" / file.name).symlink_to(file)
    (path / "tiny-glm4/vocab.txt").symlink_to(ROOT / "assets/vocab/tiny.txt")
    return path


def text_and_vectors():
    """Returns the flags of a server with a model for texts, and the model `vectors` with its reranker."""
    vectors = ROOT / "tests/models/tiny-embedding"
    return ["-m", f"tiny={models()}/tiny-rwkv7.safetensors", "--embed", f"vectors={vectors}/embedding.pth", "--reranker", f"{vectors}/reranker.pth"]


def folder():
    """Returns a temporary folder that is deleted when the object is dropped."""
    return tempfile.TemporaryDirectory(prefix="wingbeat-tests-")


def run(*checks):
    """Runs the checks, prints one line per failure, and ends the program."""
    failed = 0
    for check in checks:
        began = time.monotonic()
        try:
            check()
        except Exception as e:  # noqa: BLE001
            failed += 1
            text = " ".join(str(e).split()) or type(e).__name__
            kind = "" if isinstance(e, AssertionError) else f"{type(e).__name__}: "
            print(f"  failed {check.__name__}{place(e)}: {kind}{text[:1000]}", flush=True)
        else:
            if os.environ.get("WINGBEAT_TEST_VERBOSE"):
                print(f"  passed {check.__name__} in {time.monotonic() - began:.2f} s", flush=True)
    print(f"  {len(checks) - failed} checks passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


def place(e):
    """Returns the file and line of a test where an error occurred."""
    here, trace, found = str(pathlib.Path(__file__).parent), e.__traceback__, ""
    while trace:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(here) and name != __file__:
            found = f" ({os.path.relpath(name, here)}:{trace.tb_lineno})"
        trace = trace.tb_next
    return found


def main():
    split = sys.argv.index("--")
    with Server(*text_and_vectors(), *sys.argv[1:split]) as server:
        code = subprocess.run(sys.argv[split + 1 :], env={**os.environ, "WINGBEAT_URL": server.url, "WINGBEAT_PID": str(server.process.pid)}).returncode
    sys.exit(code)


if __name__ == "__main__":
    main()
