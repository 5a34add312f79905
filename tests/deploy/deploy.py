"""Checks the files of deploy/, and runs the group that they describe as plain processes: moto's server as object store, two servers, nginx, Prometheus.

WINGBEAT_BIN is a program with the feature `cloud`. Needs the packages of requirements.txt, nginx and prometheus (Debian has both), and the schema of compose
files in COMPOSE_SCHEMA. tools/test-deploy.sh provides all of them.
"""

import collections
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import jsonschema
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
sys.path.insert(0, str(ROOT / "server/tests"))

import server  # noqa: E402
from ops import s3  # noqa: E402
from server import Server  # noqa: E402


def manifests_satisfy_the_schemas_of_kubernetes():
    kinds = collections.Counter()
    labels, names = set(), set()
    for item in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()):
        kubernetes_validate.validate(item, "1.31", strict=True)
        kinds[item["kind"]] += 1
        names.add(item["metadata"]["name"])
        selector = item.get("spec", {}).get("selector")
        if selector:
            labels.add(json.dumps(selector.get("matchLabels", selector)))
        if item["kind"] == "ConfigMap":
            config = item["data"]["serve.toml"]
    assert set(kinds) == {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"}, kinds
    assert names == {"wingbeat"} and labels == {'{"app": "wingbeat"}'}, (names, labels)
    return config


def the_server_reads_the_configuration():
    # The program refuses unknown keys before it loads anything.
    config = manifests_satisfy_the_schemas_of_kubernetes()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "serve.toml")
        file.write_text(config.split("[models]")[0].replace("port = 8080\n", "").replace('host = "0.0.0.0"\n', "").replace("s3://wingbeat-states/v1", f"{folder}/states"))
        with Server("--config", file) as one:
            assert one.get("/health").status == 200


def the_compose_file_satisfies_its_schema():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    jsonschema.validate({name: value for name, value in compose.items() if not name.startswith("x-")}, json.loads(pathlib.Path(os.environ["COMPOSE_SCHEMA"]).read_text()))
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).exists(), source
    command = compose["services"]["server-1"]["command"]
    flags = set(re.findall(r"--[a-z-]+", subprocess.run([server.BINARY, "serve", "--help-all"], capture_output=True, text=True).stdout))
    assert {flag for flag in command if flag.startswith("--")} <= flags, command


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        return json.load(answer)


def until(what, check, seconds=60):
    end = time.monotonic() + seconds
    while True:
        try:
            found = check()
        except OSError:
            found = None
        if found:
            return found
        assert time.monotonic() < end, what
        time.sleep(0.1)


def the_group_continues_a_conversation_without_its_server():
    """Holds a conversation through nginx and kills its server half way. The text must equal a single server's, and only new text may be prefilled."""
    words = ["light", "darkness", "water", "earth", "a tree", "a king"]
    store = s3.storage()
    folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(folder.name)
    helpers = []
    try:
        states = ["--states", f"s3://{s3.BUCKET}/v1", "--deterministic"]
        with Server("--deterministic") as alone, Server(*states, env=s3.ENV) as one, Server(*states, env=s3.ENV) as two:
            both = [one, two]
            addresses = [urllib.parse.urlparse(s.url).netloc for s in both]
            front, metrics = port(), port()
            nginx = (DEPLOY / "nginx.conf").read_text().replace("listen 8080", f"listen 127.0.0.1:{front}")
            prometheus = (DEPLOY / "prometheus.yml").read_text().replace("    authorization: { credentials_file: /tmp/key }\n", "").replace("interval: 5s", "interval: 1s")
            for k, address in enumerate(addresses, 1):
                nginx, prometheus = nginx.replace(f"server-{k}:8080", address), prometheus.replace(f"server-{k}:8080", address)
            (path / "nginx.conf").write_text(f"daemon off;\npid {path}/pid;\nerror_log {path}/error.log;\n" + nginx.replace("http {", f"http {{\n    access_log {path}/access.log;", 1))
            (path / "prometheus.yml").write_text(prometheus)
            checked = subprocess.run(["promtool", "check", "config", path / "prometheus.yml"], capture_output=True, text=True)
            assert checked.returncode == 0, checked.stdout + checked.stderr
            helpers.append(subprocess.Popen(["nginx", "-p", path, "-e", path / "error.log", "-c", path / "nginx.conf"]))
            command = ["prometheus", f"--config.file={path}/prometheus.yml", f"--storage.tsdb.path={path}/data", f"--web.listen-address=127.0.0.1:{metrics}"]
            helpers.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            until("nginx", lambda: get(f"http://127.0.0.1:{front}/health"))

            def ask(messages):
                body = {"messages": messages, "max_tokens": 12, "temperature": 0}
                request = urllib.request.Request(
                    f"http://127.0.0.1:{front}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json", "x-session-id": "a1"}
                )
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer), alone.post("/v1/chat/completions", body).json

            messages, served = [], []
            for turn, word in enumerate(words):
                messages.append({"role": "user", "content": word})
                found, want = ask(messages)
                text = found["choices"][0]["message"]["content"]
                assert text == want["choices"][0]["message"]["content"], (turn, found, want)
                usage = found["usage"]
                if turn > 0:
                    assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] < 20, (turn, usage)
                messages.append({"role": "assistant", "content": text})
                served = [s for s in both if s.process.poll() is None and 'route="/v1/chat/completions"' in s.get("/metrics").body.decode()]
                if turn == 2:
                    # All requests of the session went to one server.
                    assert len(served) == 1
                    until("metrics", lambda: len(up(metrics)) == 2)
                    queries(metrics)
                    served[0].process.kill()
                    served[0].process.wait()
            assert len(served) == 1
            until("the dead server's metrics", lambda: [float(sample["value"][1]) for sample in up(metrics)].count(0.0) == 1)
    finally:
        for helper in helpers:
            helper.terminate()
            helper.wait()
        store.kill()
        store.wait()
        folder.cleanup()


def query(metrics, expression):
    return get(f"http://127.0.0.1:{metrics}/api/v1/query?query={urllib.parse.quote(expression)}")["data"]["result"]


def up(metrics):
    return query(metrics, "up")


def queries(metrics):
    """Runs the queries of the dashboard. A query must have results if its metrics have samples."""
    board = json.loads((DEPLOY / "grafana/wingbeat.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    known = set(get(f"http://127.0.0.1:{metrics}/api/v1/label/__name__/values")["data"])
    for expression in expressions:
        used = set(re.findall(r"wingbeat_\w+", expression))
        # The servers run without speculation, so the metrics of drafted tokens are missing.
        assert used <= known or "drafted" in expression, (used - known, expression)
        if not any(name.endswith("drafted_tokens_total") for name in used):
            until(expression, lambda: query(metrics, expression))


if __name__ == "__main__":
    server.run(
        manifests_satisfy_the_schemas_of_kubernetes,
        the_server_reads_the_configuration,
        the_compose_file_satisfies_its_schema,
        the_group_continues_a_conversation_without_its_server,
    )
