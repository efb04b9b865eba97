"""A small server that answers chat requests in OpenAI's format, and can fail like real servers."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[[dict[str, Any], int], tuple[int, Any]]
"""Takes the body of a request and the number of earlier requests; returns status and body.

If the returned body is None, the server closes the connection without an answer. If the status is
0, the body is a list of raw bytes: the server sends one item every 0.1 s, and then closes the
connection.
"""


def echo(body: dict[str, Any], _number: int) -> tuple[int, Any]:
    """Answers with the text of the last message."""
    parts = body["messages"][-1]["content"]
    words = "".join(part.get("text", "") for part in parts)
    return 200, {"choices": [{"message": {"role": "assistant", "content": words}}]}


@dataclass
class FakeServer:
    """The address of a running server, and the requests that the server received."""

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def fake_server(behave: Behaviour = echo) -> Iterator[FakeServer]:
    """Starts a server on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with seen.lock:
                number = len(seen.bodies)
                seen.bodies.append(body)
                seen.headers.append(dict(self.headers))
                seen.paths.append(self.path)
                seen.at_once += 1
                seen.most_at_once = max(seen.most_at_once, seen.at_once)
            try:
                status, answer = behave(body, number)
            finally:
                with seen.lock:
                    seen.at_once -= 1
            if answer is None:
                self.close_connection = True
                return
            if not status:
                self.close_connection = True
                for part in answer:
                    self.wfile.write(part)
                    time.sleep(0.1)
                return
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "http://example.invalid/")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_args: Any) -> None:
            """Prints no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    seen = FakeServer(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
