"""The OpenAI server of wingbeat as a Ray Serve app: `serve run wingbeat.ray:app`. Each replica is a process `wingbeat serve`."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import aiohttp
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

_ROUTER = "ray.serve.experimental.consistent_hash_router"
# Headers that belong to one connection (RFC 9110, section 7.6.1), and the length, which the next connection sets itself. `Host` is passed on: the
# server compares it with the header `Origin` of its page.
_OF_CONNECTION = frozenset("connection keep-alive proxy-connection te trailer transfer-encoding upgrade content-length".split())
_FLAGS = ("model", "device", "quant", "slots", "states")


def app(args: Mapping[str, Any]) -> serve.Application:
    """Returns the app. Its arguments come from `serve run wingbeat.ray:app NAME=VALUE …`, or from `args` of a configuration file:

    `model` (a path or a name; default: the embedded model), `device`, `quant`, `slots`, `states` (a folder or URL that all replicas share), `flags` (further
    flags of `wingbeat serve`); `replicas`, or `min_replicas` and `max_replicas`; `num_cpus`, `num_gpus` and `resources` (JSON) of a replica.

    Raises ValueError if an argument is unknown.
    """
    given = dict(args)
    flags = [text for name in _FLAGS if name in given for text in (f"--{name}", str(given.pop(name)))]
    flags += shlex.split(given.pop("flags", ""))
    actor: dict[str, Any] = {name: float(given.pop(name)) for name in ("num_cpus", "num_gpus") if name in given}
    if args.get("device") == "cpu":
        # Replicas on the same machine share its cores.
        flags += ["--threads", str(max(1, math.ceil(actor.get("num_cpus", 1))))]
    resources = given.pop("resources", None)
    if resources is not None:
        actor["resources"] = json.loads(resources) if isinstance(resources, str) else resources
    replicas, least, most = int(given.pop("replicas", 1)), int(given.pop("min_replicas", 1)), int(given.pop("max_replicas", 0))
    if given:
        raise ValueError(f"unknown arguments of wingbeat.ray:app: {', '.join(sorted(given))}")
    options: dict[str, Any] = {"num_replicas": replicas}
    if most:
        # A replica has as many slots as this target. If more requests are under way, Ray adds replicas.
        options = {"autoscaling_config": {"min_replicas": least, "max_replicas": most, "target_ongoing_requests": int(args.get("slots", 16))}}
    if importlib.util.find_spec(_ROUTER) and importlib.util.find_spec("mmh3"):
        # Requests with the same x-session-id go to the same replica, whose prefix cache knows them.
        options["request_router_config"] = {"request_router_class": f"{_ROUTER}:ConsistentHashRouter"}
    # The server has a queue of its own, and answers 429 if the queue is full.
    options.update(max_ongoing_requests=4096, ray_actor_options=actor, graceful_shutdown_timeout_s=120, health_check_period_s=2)
    deployment: Any = serve.deployment(Replica)
    return deployment.options(name="wingbeat", **options).bind(flags)


class Replica:
    """Runs `wingbeat serve` and passes requests on to it."""

    def __init__(self, flags: list[str]) -> None:
        command = [sys.executable, "-m", "wingbeat", "serve", "--port", "0", *flags]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=_end_with_parent)
        self._log: deque[str] = deque(maxlen=20)
        self._session: aiohttp.ClientSession | None = None
        self._url = self._listening()
        threading.Thread(target=self._pass_log, daemon=True).start()
        while not self._is_ready():
            time.sleep(0.05)

    def _listening(self) -> str:
        """Returns the address that the server prints."""
        for line in self._lines():
            _, found, url = line.partition("listening on ")
            if found:
                return url.strip()
        raise RuntimeError(f"wingbeat serve ended: {self._log[-1] if self._log else 'no message'}")

    def _lines(self) -> Iterator[str]:
        for line in self._process.stderr or ():
            self._log.append(line.strip())
            sys.stderr.write(line)
            yield line

    def _pass_log(self) -> None:
        for _ in self._lines():
            pass

    def _is_ready(self) -> bool:
        """Returns whether all models are loaded. Raises RuntimeError if the server has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"wingbeat serve ended with exit code {self._process.returncode}: {self._log[-1] if self._log else 'no message'}")
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=5):
                return True
        except (urllib.error.URLError, TimeoutError):
            return False

    async def __call__(self, request: Request) -> Response:
        session = self._session
        if session is None:
            # A text may take any time, so only the connection has a time limit.
            timeout = aiohttp.ClientTimeout(total=None, connect=5)
            session = self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout, auto_decompress=False)
        url = self._url + request.scope["path"] + (f"?{request.url.query}" if request.url.query else "")
        try:
            answer = await session.request(
                request.method, url, headers=_passed(request.headers), data=await request.body(), allow_redirects=False
            )
        except aiohttp.ClientError:
            error = {"message": "this replica is starting again; try again", "type": "server_error", "param": None, "code": "stopping"}
            return JSONResponse({"error": error}, status_code=503, headers={"retry-after": "1"})
        return StreamingResponse(_pieces(answer), status_code=answer.status, headers=_passed(answer.headers))

    def check_health(self) -> None:
        """Raises RuntimeError if the server has ended. Ray then starts another replica."""
        if self._process.poll() is not None:
            raise RuntimeError(f"wingbeat serve ended with exit code {self._process.returncode}")

    def __del__(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None and process.poll() is None:
            process.terminate()
            process.wait()


async def _pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    # If the client leaves, the connection is closed, and the server ends the text.
    async with answer:
        async for piece in answer.content.iter_any():
            yield piece


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_CONNECTION}


def _end_with_parent() -> None:
    """Lets Linux end this process when its parent is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
