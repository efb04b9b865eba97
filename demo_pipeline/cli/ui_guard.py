"""Protects Dagster's UI with a proxy that forwards only requests from the UI's own pages.

Dagster's webserver accepts every request, and even a GET request can launch a run with any
configuration. Any web page in a browser on this machine could send such a request. Therefore the
webserver gets a private port with a secret path, and people open the port of this proxy.
"""

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from email.message import Message
from email.parser import BytesParser

from demo_pipeline.files.web_requests import OTHER_ADDRESS, is_token, own_hosts, page_refusal

_PORT = "UI_GUARD_PORT"
_UPSTREAM = "UI_GUARD_UPSTREAM"
_TOKEN = "UI_GUARD_TOKEN"  # noqa: S105  # the name of a variable
_HEAD_BYTES = 64 * 2**10  # maximum size of the head of a request; browsers send 1 to 4 kB
_CHUNK = 2**16  # number of bytes copied at once
_ONCE = frozenset({"host", "origin", "sec-fetch-site"})  # headers that must not be repeated
_GRAPHQL = "/graphql"  # never the target of a redirect, because GraphQL executes GET requests
_NO_TOKEN = "open the address that `demo-pipeline ui` printed"  # noqa: S105 - a sentence
_STARTING = "Dagster is starting; this page loads by itself in a moment"
_REASONS = {307: "Temporary Redirect", 400: "Bad Request", 403: "Forbidden", 503: "Starting"}


def start_guard(
    listening: socket.socket, upstream: tuple[str, int], token: str
) -> subprocess.Popen[bytes]:
    """Starts the guard, a process that protects Dagster's UI; see `UiGuard`.

    The calling process keeps the guard's standard input open, even after `exec`. Therefore the
    guard ends when the calling process ends.

    Args:
        listening: the socket that browsers connect to.
        upstream: address and port of Dagster's webserver.
        token: the secret at the start of every path of the webserver.
    """
    port = listening.getsockname()[1]
    variables = {
        _PORT: f"{listening.fileno()}:{port}",
        _UPSTREAM: f"{upstream[0]}:{upstream[1]}",
        _TOKEN: token,
    }
    guard = subprocess.Popen(
        [sys.executable, "-m", "demo_pipeline.cli.ui_guard"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[listening.fileno()],
        env={**os.environ, **variables},
    )
    if guard.stdin is not None:
        os.set_inheritable(guard.stdin.fileno(), True)
    return guard


def private_address() -> tuple[str, int]:
    """Returns a free address and port of this machine for Dagster's webserver.

    The address must be secret, because the webserver redirects its root to the secret path. On
    Linux, the address is one of 16 million (127.*.*.*), drawn at random. On other systems, only the
    port is random.
    """
    address = "127.0.0.1"
    if sys.platform == "linux":
        address = ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])
    with socket.create_server((address, 0)) as probe:
        port: int = probe.getsockname()[1]
        return address, port


class UiGuard:
    """Forwards or refuses requests to Dagster's UI, one request for each connection.

    Args:
        upstream: address and port of Dagster's webserver.
        token: the secret at the start of every path of the webserver.
    """

    def __init__(self, port: int, upstream: tuple[str, int], token: str) -> None:
        self._hosts = own_hosts(port)
        self._upstream = upstream
        self._token = token

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reads the head of a request, and forwards or refuses it."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, _, rest = head.partition(b"\r\n")
            headers = BytesParser().parsebytes(rest, headersonly=True)
            status, text = self.verdict(first.decode("latin-1"), headers)
            if status:
                writer.write(_response(status, text))
            else:
                await self._pass_on(_for_one_request(first, rest, headers), reader, writer)
        except asyncio.LimitOverrunError:
            writer.write(_response(400, "the request's head is too long"))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the browser closed the connection
        finally:
            with suppress(ConnectionError):
                await writer.drain()
                writer.close()

    def verdict(self, first: str, headers: Message) -> tuple[int, str]:
        """Decides whether to forward, refuse or redirect a request.

        `first` is the request line.

        Returns:
            The status and the text of the guard's own answer. For a redirect, the text is the path.
            If the request is to be forwarded, the status is 0.
        """
        words = first.split(" ")
        repeated = [name for name in _ONCE if len(headers.get_all(name, [])) > 1]
        if len(words) != 3 or not words[1].startswith("/") or repeated:
            return 400, "this is not a request of a browser"
        method = words[0]
        path = words[1]
        host = headers.get("host", "")
        has_token = is_token(path, self._token)
        if host not in self._hosts and not has_token:
            return 403, OTHER_ADDRESS
        origins = {f"http://{host}"}
        if host not in self._hosts:
            origins.add(f"https://{host}")  # a proxy between browser and guard may use TLS
        site = headers.get("sec-fetch-site", "none")
        if refusal := page_refusal(method, origins, headers.get("origin"), site):
            return 403, refusal
        if has_token:
            return 0, ""
        if method != "GET" or path.startswith(_GRAPHQL):
            return 403, _NO_TOKEN
        return 307, f"/{self._token}{path}"

    async def _pass_on(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Sends the head of a request to the webserver, then copies data in both directions."""
        try:
            answers, requests = await asyncio.open_connection(*self._upstream)
        except ConnectionError:
            writer.write(_response(503, _STARTING))
            return
        requests.write(head)
        sending = asyncio.create_task(_copy(reader, requests))
        try:
            await _copy(answers, writer)
        finally:
            sending.cancel()
            requests.close()


def _for_one_request(first: bytes, rest: bytes, headers: Message) -> bytes:
    """Adds `Connection: close` to the head of a request, unless the request opens a websocket.

    Because of this header, the browser opens a new connection for each request, so the guard
    decides about every request.
    """
    if "upgrade" in headers.get("connection", "").lower():
        return first + b"\r\n" + rest
    lines = [line for line in rest.split(b"\r\n") if line]
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([first, *kept, b"Connection: close", b"", b""])


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while chunk := await source.read(_CHUNK):
            target.write(chunk)
            await target.drain()


def _response(status: int, text: str) -> bytes:
    """Returns the bytes of the guard's own answer. For a redirect, `text` is the new path."""
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        "Connection: close",
        "Cache-Control: no-store",
    ]
    body = f"{text}\n".encode()
    if status == 307:
        lines.append(f"Location: {text}")
        body = b""
    if status == 503:
        lines.append("Refresh: 2")
    lines += ["Content-Type: text/plain; charset=utf-8", f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


async def _serve(handle: int, guard: UiGuard) -> None:
    listening = socket.socket(fileno=handle)
    server = await asyncio.start_server(guard.answer, sock=listening, limit=_HEAD_BYTES)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, ended.set)
    async with server:
        await ended.wait()


def guard_until_the_end() -> None:
    """Runs the guard until its standard input is closed; see `start_guard`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the guard ends after Dagster, when stdin closes
    handle, _, port = os.environ[_PORT].partition(":")
    address, _, upstream = os.environ[_UPSTREAM].partition(":")
    guard = UiGuard(int(port), (address, int(upstream)), os.environ[_TOKEN])
    asyncio.run(_serve(int(handle), guard))


if __name__ == "__main__":
    guard_until_the_end()
