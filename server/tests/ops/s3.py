"""Two servers share states through object storage: moto's server speaks the protocol of S3. The program needs the feature `cloud`."""

import http.client
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import server  # noqa: E402
from server import Server  # noqa: E402

PORT = 5611
BUCKET = "states-of-servers"
ENV = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1", "AWS_ENDPOINT": f"http://127.0.0.1:{PORT}", "AWS_ALLOW_HTTP": "true"}


def storage():
    """Starts moto and makes a bucket. Returns the process."""
    process = subprocess.Popen([pathlib.Path(sys.executable).parent / "moto_server", "-p", str(PORT)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(200):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
            connection.request("PUT", f"/{BUCKET}")
            assert connection.getresponse().status == 200
            return process
        except OSError:
            time.sleep(0.1)
    process.kill()
    raise AssertionError("moto: expected a server, found none")


def replicas_share_states():
    process = storage()
    try:
        url = f"s3://{BUCKET}/prefix"
        with Server("--states", url, env=ENV) as one, Server("--states", url, env=ENV) as two:
            def text(of, prompt):
                answer = of.post("/v1/completions", {"prompt": prompt, "state": "a", "max_tokens": 6, "temperature": 0})
                return answer.json["choices"][0]["text"]

            for prompt, rest in [("In the beginning", " God"), ("Thou shalt", " not")]:
                # The second round replaces the state, of which the first server then has an outdated copy.
                writer, reader = (one, two) if rest == " God" else (two, one)
                assert writer.post("/v1/states", {"action": "save", "name": "a", "prompt": prompt}).status == 200
                whole = writer.post("/v1/completions", {"prompt": prompt + rest, "max_tokens": 6, "temperature": 0}).json["choices"][0]["text"]
                found = [text(writer, rest), text(reader, rest)]
                assert found == [whole, whole], f"expected {whole!r} from both servers, found {found}"
            assert one.request("DELETE", "/v1/states/a").status == 200
            assert two.get("/v1/states").json["data"] == []
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    server.run(replicas_share_states)
