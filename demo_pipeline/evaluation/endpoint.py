"""A server that answers chats in OpenAI's form.

Belongs here: one request and its repetitions. It talks to the host that it was given and to no
other: redirects are not followed, proxies of the environment not used. What is asked and answered
is in no error.
"""

import http.client
import ipaddress
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.evaluation.request_lines import CHAT_PATH

KEY_VARIABLE = "OPENAI_API_KEY"
_MOST_BYTES = 32 * 2**20  # of an answer
_REFUSED = {401, 403, 404, 405}  # every other request would be refused too
_PASSING = {408, 409, 425, 429}
_LONGEST_PAUSE = 60.0  # seconds
_PART = 2**16  # bytes that are read at a time


class EndpointError(Exception):
    """The server cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered.

    Attributes:
        status: of HTTP; 0: there was no answer.
        body: the parsed JSON; None when it is not JSON.
        fault: why there is no body; a fixed phrase.
    """

    status: int
    body: Any = None
    fault: str = ""


@dataclass(slots=True)
class Endpoint:
    """A server.

    Attributes:
        url: as given: the base that ends in `/v1`, or the whole address.
        key: sent as a bearer token; empty: none.
        attempts: how often a request is sent at most.
        timeout: seconds until an attempt has its whole answer.
        pause: seconds before the second attempt; each further pause is twice as long.
        sleep: waits; None: until `stop` is called at most.
    """

    url: str
    key: str = field(default="", repr=False)
    attempts: int = 5
    timeout: float = 600.0
    pause: float = 1.0
    sleep: Callable[[float], object] | None = None
    _stopped: threading.Event = field(default_factory=threading.Event, repr=False)
    _local: threading.local = field(default_factory=threading.local, repr=False)
    _open: set[http.client.HTTPConnection] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        is_clean = self.url.isprintable() and " " not in self.url
        known = parts.scheme in ("http", "https") and parts.hostname and port != -1
        if not known or not is_clean:
            raise EndpointError("the endpoint must be a URL such as http://127.0.0.1:8000/v1")
        if parts.username or parts.password or parts.query:
            raise EndpointError(
                f"the endpoint must hold no user, password or query; the key is read from "
                f"{KEY_VARIABLE}"
            )
        # What HTTP refuses to send it quotes in its error.
        if not (self.key.isascii() and self.key.isprintable()) or " " in self.key:
            raise EndpointError(
                f"{KEY_VARIABLE} holds a line end, a space or a letter that no key has; set it anew"
            )
        if self.key and parts.scheme == "http" and not self.is_loopback:
            raise EndpointError("a key is not sent without TLS; give an https:// endpoint")

    @property
    def host(self) -> str:
        """The name or address of the server."""
        return urlsplit(self.url).hostname or ""

    @property
    def is_loopback(self) -> bool:
        """Whether the server is this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def ask(self, body: Any) -> Reply:
        """Send a chat, again after a failure that may pass.

        Raises:
            EndpointError: the server refuses every request: a wrong key or address.
        """
        data = json.dumps(body).encode()
        for attempt in range(1, self.attempts + 1):
            if self._stopped.is_set():
                break
            reply, after = self._once(data)
            if reply.status in _REFUSED:
                raise EndpointError(
                    f"{self.host} answered {reply.status}; check the endpoint, the name of the "
                    f"model and the variable {KEY_VARIABLE}"
                )
            passing = reply.status in _PASSING or reply.status >= 500 or not reply.status
            if not passing or attempt == self.attempts:
                return reply
            backoff = self.pause * 2 ** (attempt - 1) * random.uniform(0.5, 1)  # noqa: S311
            (self.sleep or self._stopped.wait)(min(max(backoff, after), _LONGEST_PAUSE))
        return Reply(0, None, "no attempt")

    def stop(self) -> None:
        """End what is under way in all threads: what was asked gets no answer."""
        self._stopped.set()
        for connection in self._open.copy():
            if connection.sock is not None:
                with suppress(OSError):
                    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connections of all threads; none may be asking."""
        while self._open:
            self._open.pop().close()
        self._local = threading.local()

    def _once(self, data: bytes) -> tuple[Reply, float]:
        """One attempt, and the seconds that the server asks to wait."""
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        deadline = time.monotonic() + self.timeout
        try:
            connection = self._connection()
            connection.request("POST", self._path(), data, headers)
            if self._stopped.is_set():
                raise ConnectionAbortedError
            answer = connection.getresponse()
            text = _read_answer(answer, deadline)
            if answer.will_close or len(text) > _MOST_BYTES:
                self._close()
        except (OSError, http.client.HTTPException):
            self._close()
            return Reply(0, None, "no answer"), 0.0
        after = answer.getheader("Retry-After") or ""
        wait = float(after) if after.isascii() and after.isdigit() else 0.0
        if 300 <= answer.status < 400:
            raise EndpointError(f"{self.host} redirects; give the address that it leads to")
        return _reply(answer.status, text), wait

    def _path(self) -> str:
        path = urlsplit(self.url).path.rstrip("/")
        return path if path.endswith(CHAT_PATH) else path + CHAT_PATH

    def _connection(self) -> http.client.HTTPConnection:
        """The connection of this thread."""
        held: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if held is not None:
            return held
        parts = urlsplit(self.url)
        new: http.client.HTTPConnection
        if parts.scheme == "https":
            tls = ssl.create_default_context()
            new = http.client.HTTPSConnection(
                self.host, parts.port, timeout=self.timeout, context=tls
            )
        else:
            new = http.client.HTTPConnection(self.host, parts.port, timeout=self.timeout)
        self._local.connection = new
        self._open.add(new)
        return new

    def _close(self) -> None:
        held = getattr(self._local, "connection", None)
        if held is not None:
            held.close()
            self._open.discard(held)
            self._local.connection = None


def _read_answer(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    """The body, or its beginning when it is longer than may be.

    Raises:
        OSError: it is not complete in time.
        http.client.HTTPException: the server hung up before its end.
    """
    text = bytearray()
    while len(text) <= _MOST_BYTES and (part := answer.read1(_PART)):
        text += part
        if time.monotonic() > deadline:
            raise TimeoutError
    if len(text) <= _MOST_BYTES and answer.length:
        raise http.client.IncompleteRead(b"")  # `read1` itself says so of chunks alone
    answer.close()  # `read1` leaves it open at its end, and the connection unusable
    return bytes(text)


def _reply(status: int, text: bytes) -> Reply:
    if len(text) > _MOST_BYTES:
        return Reply(status, None, "too long")
    try:
        body = parse_json(text, "answer")
    except JsonFileError:
        return Reply(status, None, "not JSON")
    if status == 200 and not (isinstance(body, dict) and body.get("choices")):
        return Reply(status, None, "not a chat")  # some servers say so that they are overloaded
    return Reply(status, body)
