"""Sends requests for chat completions in OpenAI's format to a server, several at a time.

Requests go only to the given host: redirects and proxies are not used. Errors contain no text of
requests or answers.
"""

import asyncio
import ipaddress
import json
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

from demo_pipeline.files.json_files import JsonFileError, parse_json

KEY_VARIABLE = "OPENAI_API_KEY"
CHAT_PATH = "/chat/completions"
_MOST_BYTES = 32 * 2**20  # maximum length of an answer; longer answers are refused
# HTTP statuses that stop the whole run, because all other requests would fail in the same way.
_FATAL_STATUSES = {401, 403, 404, 405}
# HTTP statuses after which a retry may succeed, besides 500 and above. 0 means no answer.
_TRANSIENT_STATUSES = {0, 408, 409, 425, 429}
_CONNECTION_ATTEMPTS = 4  # number of failed connections after which the server counts as down
_LONGEST_PAUSE = 60.0  # maximum time between two attempts, seconds
_NO_ANSWER = "no answer"

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class Endpoint:
    """A server that answers requests for chat completions.

    Attributes:
        url: the base URL, which ends in `/v1`, or the whole URL of chat completions.
        key: API key, sent as a bearer token if it is not empty.
        attempts: maximum number of attempts for a request.
        timeout: number of seconds within which the whole answer must arrive.
        pause: maximum number of seconds between the first and the second attempt, unless the server
            asks for a longer wait. The maximum doubles with each attempt. No wait is longer than
            `_LONGEST_PAUSE`.
        sleep: function that waits for a number of seconds. Tests replace it.
    """

    url: str
    key: str = field(default="", repr=False)
    attempts: int = 5
    timeout: float = 600.0
    pause: float = 1.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    def __post_init__(self) -> None:
        parts = urlsplit("")
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # the port is not a number, or a bracket is not closed
            usable = False
        if not usable or not self.url.isprintable() or " " in self.url:
            raise ValueError("the endpoint must be a URL such as http://127.0.0.1:8000/v1")
        if parts.username or parts.password or parts.query:
            raise ValueError(
                f"the endpoint must contain no user, password or query; the key is read from "
                f"{KEY_VARIABLE}"
            )
        # If the key made the header invalid, the error of the HTTP library would quote the key.
        if not (self.key.isascii() and self.key.isprintable()) or " " in self.key:
            raise ValueError(
                f"{KEY_VARIABLE} contains a line end, a space or another character that a key "
                "cannot contain; set it again"
            )
        if self.key and parts.scheme == "http" and not self.is_loopback:
            raise ValueError("a key is not sent without TLS; give an https:// endpoint")

    @property
    def host(self) -> str:
        """The host name or IP address of the server."""
        return urlsplit(self.url).hostname or ""

    @property
    def is_loopback(self) -> bool:
        """Whether the server is this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def require_consent(self, *, yes: bool) -> None:
        """Raises ValueError if the server is another machine and the user did not give --yes."""
        if not self.is_loopback and not yes:
            raise ValueError(
                f"{self.host} is another host, and requests contain screens and typed text; give "
                "--yes to send them there"
            )

    async def ask(self, body: Any) -> tuple[int, Any, str]:
        """Sends a request and retries after transient errors.

        Returns:
            The HTTP status, the chat completion, and an empty string. If there is no chat
            completion, the second value is None, and the third is the reason as a fixed phrase. If
            no answer arrived, the status is 0.

        Raises:
            ValueError: the server redirects, refuses every request, or cannot be reached.
        """
        import aiohttp  # noqa: PLC0415 - costs 0.4 s

        data = json.dumps(body).encode()
        attempt = 1
        while True:
            status = 0
            text = b""
            retry_after = 0.0
            last = self.attempts
            try:
                status, text, retry_after = await self._attempt(data)
            except aiohttp.ClientConnectorError:
                last = min(last, _CONNECTION_ATTEMPTS)
                if attempt >= last:
                    raise ValueError(
                        f"{self.url}: no connection; start the server there or correct "
                        "--endpoint, then repeat the command, which continues where it stopped"
                    ) from None
            except (aiohttp.ClientError, OSError, ValueError):  # a timeout is an OSError
                pass
            if 300 <= status < 400:
                raise ValueError(
                    f"{self.host} redirects to another address; give that address as --endpoint"
                )
            if status in _FATAL_STATUSES:
                raise ValueError(
                    f"{self.host} answered {status}; check the endpoint, the name of the "
                    f"model and the variable {KEY_VARIABLE}"
                )
            is_transient = status in _TRANSIENT_STATUSES or status >= 500
            if not is_transient or attempt >= last:
                return status, *_parsed(status, text)
            backoff = self.pause * 2 ** (attempt - 1) * random.uniform(0.5, 1)  # noqa: S311
            await self.sleep(min(max(backoff, retry_after), _LONGEST_PAUSE))
            attempt += 1

    async def _attempt(self, data: bytes) -> tuple[int, bytes, float]:
        """Sends the request once.

        Returns:
            The HTTP status, the body of the answer, and the number of seconds that the server asks
            to wait before a retry, or 0.
        """
        import aiohttp  # noqa: PLC0415 - costs 0.4 s

        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        url = f"{self.url.rstrip('/').removesuffix(CHAT_PATH)}{CHAT_PATH}"
        text = bytearray()
        limit = aiohttp.ClientTimeout(total=self.timeout)  # from connecting to the last byte
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.post(url, data=data, headers=headers, allow_redirects=False) as answer,
        ):
            if not 300 <= answer.status < 400:
                async for part in answer.content.iter_any():
                    text += part
                    if len(text) > _MOST_BYTES:
                        break
            retry_after = answer.headers.get("Retry-After", "")
            seconds = 0.0
            if retry_after.isascii() and retry_after.isdigit():
                seconds = float(retry_after)
            return answer.status, bytes(text), seconds


def each_result(
    items: Iterable[ItemT], work: Callable[[ItemT], Coroutine[Any, Any, ResultT]], at_once: int
) -> Generator[ResultT, None, None]:
    """Runs `work` on up to `at_once` items at a time, and yields each result once it is ready.

    If `work` raises an exception, the other results that are ready are yielded first.
    An exception, or closing the generator, cancels all other work.
    """
    waiting = iter(items)
    pending = set[asyncio.Task[ResultT]]()
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        while True:
            more = islice(waiting, at_once - len(pending))
            pending |= {loop.create_task(work(item)) for item in more}
            if not pending:
                return
            finished, pending = runner.run(
                asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            )
            for task in sorted(finished, key=_has_failed):
                yield task.result()


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.exception() is not None


def _parsed(status: int, text: bytes) -> tuple[Any, str]:
    """Returns the chat completion and "", or None and the reason why it is missing; see `ask`."""
    if not status:
        return None, _NO_ANSWER
    if len(text) > _MOST_BYTES:
        return None, "too long"
    try:
        body = parse_json(text, "answer", any_depth=False)
    except JsonFileError:
        return None, "not JSON"
    if status != 200:
        return None, f"status {status}"
    if not isinstance(body, dict) or not body.get("choices"):
        return None, "not a chat"  # some overloaded servers send other JSON with status 200
    return body, ""
