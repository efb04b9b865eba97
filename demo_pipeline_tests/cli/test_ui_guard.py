"""The guard of Dagster's UI forwards requests from the UI's pages, and refuses other sites."""

import http.client
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from demo_pipeline.cli.ui_guard import private_address, start_guard
from demo_pipeline_tests.browser import NEEDED, opened_browser

TOKEN = "t" * 43
GRAPHQL = f"/{TOKEN}/graphql"


@dataclass
class Upstream:
    """A server in place of Dagster's webserver. `requests` contains the requests it received."""

    address: tuple[str, int]
    requests: list[str] = field(default_factory=list)


@contextmanager
def serving(address: tuple[str, int], page: bytes = b"answer") -> Iterator[Upstream]:
    upstream = Upstream(address)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Prints no log."""

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            upstream.requests.append(f"{self.command} {self.path} {body.decode()}".strip())
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        do_GET = do_POST = answer  # noqa: N815

    server = ThreadingHTTPServer(address, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield upstream
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Guarded:
    """A guard, and the server that it protects."""

    port: int
    upstream: Upstream

    def ask(self, path: str, method: str = "GET", host: str = "", **headers: str) -> "Answer":
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = "{}" if method == "POST" else None
        host = host or f"127.0.0.1:{self.port}"
        server = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with closing(server) as connection:
            connection.request(method, path, body, {"Host": host, **named})
            with connection.getresponse() as answer:
                answer.read()
                return Answer(answer.status, dict(answer.headers))


@dataclass
class Answer:
    """Status and headers of an answer."""

    status: int
    headers: dict[str, str]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    address = private_address()
    guard = start_guard(listening, address, TOKEN)
    listening.close()
    with serving(address) as upstream:
        yield Guarded(port, upstream)
    ends_with_its_starter(guard)


def ends_with_its_starter(guard: subprocess.Popen[bytes]) -> None:
    assert guard.poll() is None
    assert guard.stdin is not None
    guard.stdin.close()
    assert guard.wait(30) == 0


def test_a_person_who_types_the_address_is_redirected_to_the_page(guarded):
    for host in ("127.0.0.1", "localhost"):
        answer = guarded.ask("/", host=f"{host}:{guarded.port}", sec_fetch_site="none")
        assert (answer.status, answer.headers["Location"]) == (307, f"/{TOKEN}/")
    assert guarded.ask(f"/{TOKEN}/").status == 200


def test_its_own_page_reads_and_commands(guarded):
    own = {"origin": f"http://127.0.0.1:{guarded.port}", "sec_fetch_site": "same-origin"}
    guarded.upstream.requests.clear()
    assert guarded.ask(GRAPHQL, "POST", **own).status == 200
    assert guarded.ask(GRAPHQL, sec_fetch_site="same-origin").status == 200
    assert guarded.upstream.requests == [f"POST {GRAPHQL} {{}}", f"GET {GRAPHQL}"]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", [GRAPHQL, "/graphql", f"/{TOKEN}/", "/"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},  # another port of this machine
    ],
)
def test_a_page_of_another_site_reaches_nothing(guarded, method, path, headers):
    guarded.upstream.requests.clear()
    assert guarded.ask(path, method, **headers).status == 403
    assert guarded.upstream.requests == []


def test_a_foreign_domain_that_points_here_reaches_nothing_without_the_token(guarded):
    """The owner of a domain can let its name resolve to this machine (DNS rebinding).

    For the browser, the pages of the domain and Dagster's UI are then the same site.
    """
    guarded.upstream.requests.clear()
    for path in ("/", "/graphql?query=mutation", "/server_info"):
        answer = guarded.ask(path, host=f"evil.example:{guarded.port}")
        assert (answer.status, "Location" in answer.headers) == (403, False)
    assert guarded.upstream.requests == []


def test_under_another_name_the_token_is_asked_for(guarded):
    forwarded = {"host": "box.example", "origin": "https://box.example"}
    assert guarded.ask(GRAPHQL, "POST", **forwarded).status == 200
    assert guarded.ask("/graphql", "POST", **forwarded).status == 403
    assert guarded.ask(f"/{TOKEN[1:]}/graphql", "POST", **forwarded).status == 403


def test_a_browser_without_these_headers_is_not_redirected_to_commands(guarded):
    """An old browser sends neither `Origin` nor `Sec-Fetch-Site` when a page loads an image."""
    assert guarded.ask("/graphql?query=mutation").status == 403
    assert guarded.ask("/graphql", "POST").status == 403


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: a\r\norigin: b\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        "nonsense\r\n\r\n",
        "GET / HTTP/1.1\r\nX: " + "x" * 70_000 + "\r\n\r\n",
    ],
)
def test_requests_that_no_browser_sends_are_refused(guarded, head):
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=20) as connection:
        connection.sendall(head.format(port=guarded.port).encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_a_second_request_of_a_connection_is_not_passed_on_with_the_first(guarded):
    guarded.upstream.requests.clear()
    first = f"GET /{TOKEN}/ HTTP/1.1\r\nHost: 127.0.0.1:{guarded.port}\r\n"
    second = f"GET {GRAPHQL} HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=20) as connection:
        connection.sendall(f"{first}Connection: keep-alive\r\n\r\n{second}".encode())
        while connection.recv(1000):
            pass
    assert guarded.upstream.requests == [f"GET /{TOKEN}/"]


def test_while_dagster_starts_the_page_says_so_and_loads_again():
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    guard = start_guard(listening, private_address(), TOKEN)
    listening.close()
    answer = Guarded(port, Upstream(("", 0))).ask(f"/{TOKEN}/")
    assert (answer.status, answer.headers["Refresh"]) == (503, "2")
    ends_with_its_starter(guard)


ATTACK = """<img src="{at}/graphql?query=mutation"><img src="{at}{graphql}?query=mutation">
<iframe src="{at}/"></iframe>
<form id="form" method="post" enctype="text/plain" action="{at}{graphql}" target="frame">
<input name="query" value="mutation"></form><iframe name="frame"></iframe>
<script>
for (const path of ["/graphql", "{graphql}"])
  fetch("{at}" + path, {{method: "POST", mode: "no-cors", body: "{{}}"}}).catch(() => 0);
try {{ new WebSocket("{at}{graphql}".replace("http", "ws")) }} catch (error) {{}}
document.getElementById("form").submit();
</script>"""


@getattr(pytest.mark, NEEDED)
def test_a_foreign_page_in_a_real_browser_cannot_command_dagster(guarded):
    """The page cannot do so even if it knows the token."""
    guarded.upstream.requests.clear()
    page = ATTACK.format(at=f"http://127.0.0.1:{guarded.port}", graphql=GRAPHQL).encode()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        foreign = ("127.0.0.1", probe.getsockname()[1])
    with serving(foreign, page), opened_browser() as browser:
        opened = browser.new_page()
        opened.goto(f"http://localhost:{foreign[1]}/")
        opened.wait_for_timeout(2000)
        assert guarded.upstream.requests == []
        opened.goto(f"http://127.0.0.1:{guarded.port}/")
        assert opened.url == f"http://127.0.0.1:{guarded.port}/{TOKEN}/"
    assert f"GET /{TOKEN}/" in guarded.upstream.requests
