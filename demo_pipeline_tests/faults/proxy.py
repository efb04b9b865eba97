"""An HTTP proxy in front of a real S3 server, which disturbs requests and answers by a plan."""

import http.client
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal["reset", "storm", "slow", "cut", "flip", "lost"]
FAULTS: tuple[Fault, ...] = ("reset", "storm", "slow", "cut", "flip", "lost")
_HOP = {"connection", "transfer-encoding", "keep-alive"}
_TROUBLED = '<?xml version="1.0"?><Error><Code>{}</Code><Message>try again</Message></Error>'


@dataclass
class NetworkPlan:
    """Decides which faults happen, and how often.

    - `reset`: the connection breaks before the request arrives.
    - `storm`: five requests in a row are answered with status 500 or 503.
    - `slow`: the answer comes late and in pieces.
    - `cut`: the answer to a GET ends after half of its body.
    - `flip`: one bit in the body of the answer to a GET is changed.
    - `lost`: a PUT or DELETE takes effect, but is not answered.

    Attributes:
        faults: the kinds of faults.
        share: share of the requests that are disturbed.
        seed: seed of the random choices.
        only: disturbs only requests whose path ends with this text. If it is empty, any request
            can be disturbed.
        on_request: called with method and path before a request is passed on.
    """

    faults: tuple[Fault, ...]
    share: float = 0.08
    seed: int = 0
    only: str = ""
    on_request: Callable[[str, str], None] = lambda _method, _path: None
    active: bool = True
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._lock = threading.Lock()
        self._storm = 0

    def next(self, method: str, path: str = "") -> Fault | None:
        """Returns the fault for the next request, or None if the request must not be disturbed.

        Some faults are only possible for certain methods.
        """
        with self._lock:
            if not self.active or not path.partition("?")[0].endswith(self.only):
                return None
            if self._storm:
                self._storm -= 1
                return self._count("storm")
            if self._dice.random() >= self.share:
                return None
            fault = self._dice.choice(self.faults)
            if fault == "storm":
                self._storm = 4
            if (fault in {"cut", "flip"} and method != "GET") or (
                fault == "lost" and method not in {"PUT", "DELETE"}
            ):
                return None
            return self._count(fault)

    def _count(self, fault: Fault) -> Fault:
        self.done[fault] += 1
        return fault


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignores errors, because a killed command leaves broken connections."""


@contextmanager
def network_proxy(endpoint: str, plan: NetworkPlan) -> Iterator[str]:
    """Runs a proxy in front of `endpoint` and yields its address."""
    host, port = endpoint.removeprefix("http://").split(":")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = plan.next(self.command, self.path)
            if fault == "reset":
                self._break()
                return
            if fault == "storm":
                self._answer_trouble()
                return
            plan.on_request(self.command, self.path)
            status, headers, data = self._ask(body)
            if fault == "lost":
                self._break()
                return
            self._answer(status, headers, data, fault)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = pass_on  # noqa: N815

        def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            server = http.client.HTTPConnection(host, int(port), timeout=60)
            try:
                server.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in self.headers.items():
                    if name.lower() not in {"expect", *_HOP}:
                        server.putheader(name, value)
                server.endheaders(body)
                answer = server.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            finally:
                server.close()

        def _answer(
            self, status: int, headers: list[tuple[str, str]], data: bytes, fault: Fault | None
        ) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in {"content-length", *_HOP}:
                    self.send_header(name, value)
            length = {name.lower(): value for name, value in headers}.get("content-length")
            self.send_header("Content-Length", str(len(data)) if data else length or "0")
            self.end_headers()
            if fault == "flip" and data and status < 300:
                middle = len(data) // 2
                data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
            if fault == "cut" and data:
                self.wfile.write(data[: len(data) // 2])
                self._break()
                return
            if fault == "slow" and data:
                half = len(data) // 2
                time.sleep(0.5)
                self.wfile.write(data[:half])
                self.wfile.flush()
                time.sleep(0.5)
                data = data[half:]
            self.wfile.write(data)

        def _answer_trouble(self) -> None:
            code, status = ("SlowDown", 503) if plan.done["storm"] % 2 else ("InternalError", 500)
            text = _TROUBLED.format(code).encode()
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        def _break(self) -> None:
            """Closes the connection without an answer, as if the network had failed."""
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
