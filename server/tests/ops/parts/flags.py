"""Flags: the configuration file, the log of prompts, wrong flags, and an address in use."""

import json
import pathlib
import subprocess

from server import BINARY, Server, equal, folder, models

from .shared import CHAT, SHORT


def configurations_are_read():
    with folder() as path:
        file = pathlib.Path(path) / "serve.toml"
        file.write_text(f'slots = 3\nmax-body = 5000\nlog = "json"\n[models]\none = "{models()}/tiny-rwkv7.safetensors"\ntwo = "{models()}/tiny-rwkv6.safetensors"\n')
        with Server("--config", file, "--slots", "2") as server:
            found = [(model["id"], model["slots"]) for model in server.get("/v1/models").json["data"]]
            equal(found, [("one", 2), ("two", 2)], "models and slots of a configuration, with a flag")
            equal(server.post(CHAT, "a" * 6000).status, 413, "a body above the limit of a configuration")
            server.stop()
            lines = [json.loads(line) for line in server.lines if line.startswith("{")]
            assert any(line["route"] == CHAT and line["status"] == 413 for line in lines), f"log in JSON: expected a line with 413, found {lines}"


def wrong_flags_are_exit_code_2():
    with folder() as path:
        unknown = pathlib.Path(path) / "unknown.toml"
        unknown.write_text("slotz = 3\n")
        wrong = pathlib.Path(path) / "wrong.toml"
        wrong.write_text("slots = [\n")
        for flags in (["--slots", "0"], ["--port", "70000"], ["--log", "xml"], ["--config", unknown], ["--config", wrong], ["--cors", "no origin"], ["--reranker", "a.pth"]):
            done = run(*flags)
            assert done.returncode in (1, 2) and "error" in done.stderr, f"{flags}: expected an error, found exit code {done.returncode} {done.stderr[-300:]!r}"
        for flags in (["-m", "missing.pth"], ["-m", str(unknown)]):
            done = run(*flags)
            assert done.returncode == 1 and "error" in done.stderr, f"{flags}: expected exit code 1, found {done.returncode} {done.stderr[-300:]!r}"


def run(*flags):
    command = [BINARY, "serve", "--device", "cpu", "--port", "0", *map(str, flags)]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=15)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{flags}: expected the end of the program with an error, found a running server") from None


def used_ports_are_refused():
    with Server() as server:
        done = run("--port", server.port)
        equal(done.returncode, 2, f"exit code with a port in use ({done.stderr[-300:]!r})")
        assert "in use" in done.stderr, f"error of a port in use: expected `in use`, found {done.stderr!r}"


def prompts_are_logged_on_request():
    with Server("--log-prompts") as server:
        server.post(CHAT, {**SHORT, "messages": [{"role": "user", "content": "xylophone"}]})
        server.stop()
        assert "xylophone" in server.log(), f"log with --log-prompts: expected the prompt, found {server.log()[-500:]}"


def metrics_count():
    with Server() as server:
        for _ in range(3):
            server.post(CHAT, SHORT)
        server.post(CHAT, "{")
        text = server.get("/metrics").body.decode()
        assert text.endswith("# EOF\n"), f"/metrics: expected # EOF at the end, found {text[-100:]!r}"
        counted = sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if "_total{" in line and CHAT in line)
        equal(counted, 4.0, "requests counted in /metrics")


CHECKS = [configurations_are_read, wrong_flags_are_exit_code_2, used_ports_are_refused, prompts_are_logged_on_request, metrics_count]
