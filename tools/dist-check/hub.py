#!/usr/bin/env python3
"""Plays Hugging Face's hub for one file, on a free port of this machine.

usage: hub.py FILE REPOSITORY NAME LOG [--stop N] [--damage]
  FILE        content
  REPOSITORY  OWNER/NAME of the repository
  NAME        name of the file in the repository
  LOG         gets a line per event: the address, then each request, its first byte, and "stopped" or "sent"
  --stop N    sends only N bytes of the first download, and then waits
  --damage    changes the last byte of the content, but not the hash
"""
import argparse
import hashlib
import http.server
import json
import time

COMMIT = "0123456789abcdef0123456789abcdef01234567"

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("repository")
parser.add_argument("name")
parser.add_argument("log")
parser.add_argument("--stop", type=int)
parser.add_argument("--damage", action="store_true")
args = parser.parse_args()

with open(args.file, "rb") as file:
    content = file.read()
digest = hashlib.sha256(content).hexdigest()
if args.damage:
    content = content[:-1] + bytes([content[-1] ^ 1])


def log(text):
    with open(args.log, "a", encoding="utf-8") as file:
        file.write(text + "\n")


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, headers, body=b""):
        self.send_response(status)
        for name, value in {"x-repo-commit": COMMIT, "connection": "close", **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        if path.startswith(f"/api/models/{args.repository}/revision/"):
            body = json.dumps({"sha": COMMIT, "siblings": [{"rfilename": args.name}]}).encode()
            return self.answer(200, {"content-length": len(body)}, body)
        if path != f"/{args.repository}/resolve/{COMMIT}/{args.name}":
            return self.answer(404, {"content-length": 0, "x-error-code": "EntryNotFound"})
        wanted = self.headers.get("range")
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        headers = {"x-linked-etag": f'"{digest}"', "x-linked-size": len(content), "content-length": len(content) - start}
        if wanted:
            headers["content-range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        is_stopped = self.command == "GET" and args.stop is not None
        body = content[start:]
        if is_stopped:
            body, args.stop = body[: args.stop], None
        self.answer(206 if wanted else 200, headers, body)
        log(f"{self.command} from {start} {'stopped' if is_stopped else 'sent'}")
        if is_stopped:
            self.wfile.flush()
            time.sleep(600)

    do_HEAD = do_GET


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
server.daemon_threads = True
log(f"http://127.0.0.1:{server.server_port}")
server.serve_forever()
