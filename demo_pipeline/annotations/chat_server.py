"""Asking a server that answers chats in OpenAI's form, some at a time.

Requests go to the host that was given and to no other: redirects are not followed, proxies of the
environment not used. What is asked and answered is in no error.
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
_MOST_BYTES = 32 * 2**20  # of an answer
_REFUSED = {401, 403, 404, 405}  # every other request would be refused too
_PASSING = {0, 408, 409, 425, 429}
_CONNECTIONS = 4  # attempts until nobody listens there
_LONGEST_PAUSE = 60.0  # seconds
_NO_ANSWER = "no answer"

ItemT = TypeVar("ItemT")
FoundT = TypeVar("FoundT")


@dataclass(slots=True)
class Endpoint:
    """A server.

    Attributes:
        url: as given: the base that ends in `/v1`, or the whole address.
        key: sent as a bearer token; empty: none.
        attempts: how often a request is sent at most.
        timeout: seconds until an attempt has its whole answer.
        pause: seconds before the second attempt; each further pause is twice as long.
        sleep: waits.
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
        except ValueError:  # the port is not a number, or a bracket is open
            usable = False
        if not usable or not self.url.isprintable() or " " in self.url:
            raise ValueError("the endpoint must be a URL such as http://127.0.0.1:8000/v1")
        if parts.username or parts.password or parts.query:
            raise ValueError(
                f"the endpoint must hold no user, password or query; the key is read from "
                f"{KEY_VARIABLE}"
            )
        # What HTTP refuses to send it quotes in its error.
        if not (self.key.isascii() and self.key.isprintable()) or " " in self.key:
            raise ValueError(
                f"{KEY_VARIABLE} holds a line end, a space or a letter that no key has; set it anew"
            )
        if self.key and parts.scheme == "http" and not self.is_loopback:
            raise ValueError("a key is not sent without TLS; give an https:// endpoint")

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

    def require_consent(self, *, yes: bool) -> None:
        """Raise a ValueError for another machine, unless the person said yes."""
        if not self.is_loopback and not yes:
            raise ValueError(
                f"{self.host} is another host, and requests hold screens and typed text; give "
                "--yes to send them there"
            )

    async def ask(self, body: Any) -> tuple[int, Any, str]:
        """Send a chat, again after a failure that may pass.

        Returns:
            The status of HTTP (0: no answer), the chat, and a fixed phrase why there is none.

        Raises:
            ValueError: the server refuses every request, or nobody listens there.
        """
        import aiohttp  # noqa: PLC0415 - costs 0.4 s

        data = json.dumps(body).encode()
        attempt = 1
        while True:
            status = 0
            text = b""
            after = 0.0
            last = self.attempts
            try:
                status, text, after = await self._once(data)
            except aiohttp.ClientConnectorError:
                last = min(last, _CONNECTIONS)
                if attempt >= last:
                    raise ValueError(
                        f"{self.url} cannot be connected to; start the server there or correct "
                        "--endpoint, then the same command goes on"
                    ) from None
            except (aiohttp.ClientError, OSError, ValueError):  # a timeout is an OSError
                pass
            if 300 <= status < 400:
                raise ValueError(f"{self.host} redirects; give the address that it leads to")
            if status in _REFUSED:
                raise ValueError(
                    f"{self.host} answered {status}; check the endpoint, the name of the "
                    f"model and the variable {KEY_VARIABLE}"
                )
            if (status not in _PASSING and status < 500) or attempt >= last:
                return status, *_parsed(status, text)
            backoff = self.pause * 2 ** (attempt - 1) * random.uniform(0.5, 1)  # noqa: S311
            await self.sleep(min(max(backoff, after), _LONGEST_PAUSE))
            attempt += 1

    async def _once(self, data: bytes) -> tuple[int, bytes, float]:
        """One attempt: the status, the answer, and the seconds that the server asks to wait."""
        import aiohttp  # noqa: PLC0415 - costs 0.4 s

        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        url = f"{self.url.rstrip('/').removesuffix(CHAT_PATH)}{CHAT_PATH}"
        text = bytearray()
        limit = aiohttp.ClientTimeout(total=self.timeout)  # of the whole exchange
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.post(url, data=data, headers=headers, allow_redirects=False) as answer,
        ):
            if not 300 <= answer.status < 400:
                async for part in answer.content.iter_any():
                    text += part
                    if len(text) > _MOST_BYTES:
                        break
            after = answer.headers.get("Retry-After", "")
            pause = float(after) if after.isascii() and after.isdigit() else 0.0
            return answer.status, bytes(text), pause


def each_result(
    items: Iterable[ItemT], work: Callable[[ItemT], Coroutine[Any, Any, FoundT]], at_once: int
) -> Generator[FoundT, None, None]:
    """Yield what `work` makes of every item, as soon as it is there; `at_once` are under way.

    What an item raises comes after the results that were there with it. Then, and when the iterator
    is closed, whatever is under way is cancelled.
    """
    waiting = iter(items)
    pending = set[asyncio.Task[FoundT]]()
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
            for task in sorted(finished, key=lambda one: one.exception() is not None):
                yield task.result()


def _parsed(status: int, text: bytes) -> tuple[Any, str]:
    """The chat of an answer, and why there is none."""
    if not status or len(text) > _MOST_BYTES:
        return None, "too long" if status else _NO_ANSWER
    try:
        body = parse_json(text, "answer", any_depth=False)
    except JsonFileError:
        return None, "not JSON"
    if status != 200:
        return None, f"status {status}"
    is_chat = isinstance(body, dict) and body.get("choices")
    return (body, "") if is_chat else (None, "not a chat")  # some servers are overloaded so
