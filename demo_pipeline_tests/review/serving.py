"""A review server for tests: in this process, or as a command in a process of its own."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from demo_pipeline.review.review_data import ReviewData
from demo_pipeline.review.server import build_app
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline_tests.sample_workspace import variables_of

TOKEN = "a-token-that-no-other-site-can-know"  # noqa: S105 - for test servers only


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A running server."""

    port: int
    token: str = TOKEN
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: Any = None,
        raw: bool = False,
        **headers: str | None,
    ) -> Answer:
        """Sends a request like the review page. Headers whose value is None are not sent."""
        sent: dict[str, str | None] = {}
        if method == "POST":
            sent["origin"] = f"http://127.0.0.1:{self.port}"
        if body is not None:
            sent["content-type"] = "application/json"
        sent |= {name.replace("_", "-"): text for name, text in headers.items()}
        chosen = {name: text for name, text in sent.items() if text is not None}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        target = path if raw else f"/{self.token}/{path}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, target, data, chosen)
        answer = connection.getresponse()
        received = Answer(
            answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        )
        connection.close()
        return received

    def decide(
        self, demonstration: str, kind: str, value: Any, decision: str, version: str = ""
    ) -> Answer:
        version = version or self.ask(f"api/demonstrations/{demonstration}").json["version"]
        body = {"id": decision, "version": version, "kind": kind, "value": value}
        return self.ask(f"api/demonstrations/{demonstration}/decisions", "POST", body)


@contextmanager
def served(workspace: Workspace, author: str = "ann", port: int = 0) -> Iterator[Served]:
    """Runs a server in a thread of this process, on a free port or on `port`."""
    connection = socket.create_server(("127.0.0.1", port))
    port = connection.getsockname()[1]
    app = build_app(ReviewData(workspace.store, workspace.uploads), author, TOKEN, port)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([connection],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Served(port)
    finally:
        server.should_exit = True
        thread.join()
        connection.close()


def start_command(root: Path, port: int, *arguments: str, wait: bool = True) -> Served:
    """Starts `demo-pipeline review` in a process of its own, and waits until the server answers.

    Args:
        root: the folder with store and uploads, as `sample_workspace` makes it.
        port: the port of the server.
        arguments: further arguments of the command.
        wait: whether to wait until the server has sent a queue.
    """
    command = [sys.executable, "-m", "demo_pipeline.cli.app", "review", f"--port={port}"]
    process = subprocess.Popen(
        [*command, *arguments],
        env=os.environ | variables_of(root),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    token = address.split("/")[3]
    running = Served(port, token, process)
    for _ in range(200):
        try:
            if running.ask("api/queue" if wait else "page.css").status == 200:
                break
        except OSError:
            time.sleep(0.05)
    return running


def kill(running: Served) -> None:
    assert running.process is not None
    running.process.send_signal(signal.SIGKILL)
    running.process.wait()
    assert running.process.stdout is not None
    running.process.stdout.close()
