"""Web pages of other sites: foreign names of the host, foreign origins, CORS."""

from server import Server, equal

from .shared import CHAT, SHORT


def foreign_hosts_are_refused():
    with Server("--allow-host", "box.lan") as server:
        for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", ""):
            answer = server.post(CHAT, SHORT, headers={"host": host})
            assert answer.status in (400, 403), f"host {host!r}: expected 403, found {answer.status}"
        for host in (f"127.0.0.1:{server.port}", f"localhost:{server.port}", "box.lan", f"box.lan:{server.port}"):
            equal(server.get("/v1/models", headers={"host": host}).status, 200, f"host {host}")
        equal(server.get("/health", headers={"host": "evil.example"}).status, 403, "/health with a foreign host")


def foreign_origins_are_refused():
    with Server() as server:
        for origin in ("https://evil.example", "null", "http://localhost:1", "file://"):
            for method, path in (("POST", CHAT), ("GET", "/v1/models"), ("DELETE", "/v1/states/a")):
                answer = server.request(method, path, SHORT if method == "POST" else None, headers={"origin": origin})
                equal(answer.status, 403, f"{method} {path} of the origin {origin}")
                equal(allowed(answer), None, f"Access-Control-Allow-Origin for {origin}")
        answer = server.get("/v1/models", headers={"origin": server.url})
        equal(answer.status, 200, "the server's own origin")


def cors_is_off():
    with Server() as server:
        equal(allowed(server.get("/v1/models")), None, "Access-Control-Allow-Origin without --cors")
        answer = preflight(server, "https://page.example")
        equal(allowed(answer), None, "Access-Control-Allow-Origin of a preflight request without --cors")
        assert answer.status >= 400, f"a preflight request without --cors: expected an error, found {answer.status}"


def cors_allows_named_origins():
    with Server("--cors", "https://page.example", env={"WINGBEAT_API_KEYS": "a-key-of-tests"}) as server:
        answer = preflight(server, "https://page.example")
        assert answer.status in (200, 204), f"a preflight request: expected 200, found {answer.status}"
        equal(allowed(answer), "https://page.example", "Access-Control-Allow-Origin of a preflight request")
        headers = {"origin": "https://page.example", "authorization": "Bearer a-key-of-tests"}
        answer = server.post(CHAT, SHORT, headers=headers)
        equal((answer.status, allowed(answer)), (200, "https://page.example"), "an answer for a named origin")
        other = server.post(CHAT, SHORT, headers={**headers, "origin": "https://other.example"})
        equal((other.status, allowed(other)), (403, None), "an answer for another origin")
        equal(allowed(preflight(server, "https://other.example")), None, "Access-Control-Allow-Origin for another origin")


def allowed(answer):
    return answer.headers.get("access-control-allow-origin")


def preflight(server, origin):
    headers = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    return server.request("OPTIONS", CHAT, headers=headers)


def pages_are_safe():
    with Server() as server:
        page = server.get("/", headers={"accept": "text/html"})
        equal(page.status, 200, "the chat page")
        assert "text/html" in page.headers["content-type"], f"chat page: expected HTML, found {page.headers['content-type']}"
        equal(page.headers.get("x-content-type-options"), "nosniff", "x-content-type-options of the chat page")
        # The page loads nothing from other sites.
        for text in (b"src=\"http", b"href=\"http", b"@import url(http", b"//cdn"):
            assert text not in page.body, f"chat page: expected no address of another site, found {text!r}"


CHECKS = [foreign_hosts_are_refused, foreign_origins_are_refused, cors_is_off, cors_allows_named_origins, pages_are_safe]
