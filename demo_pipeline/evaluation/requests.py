"""The requests of an evaluation, and sending them to a server that answers chats in OpenAI's form.

The history in a request is what the person did before, as in the datasets: a wrong answer does not
change what later steps are asked. Requests go to the host that was given and to no other: redirects
are not followed, proxies of the environment not used. What is asked and answered is in no error;
the files have mode 0600 from the first byte on, and results are appended line by line and synced.
"""

import base64
import http.client
import ipaddress
import json
import mmap
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal
from urllib.parse import unquote, urlsplit

from demo_pipeline.evaluation.predictions import batch_key
from demo_pipeline.evaluation.true_steps import StepRecord
from demo_pipeline.files.atomic_write import atomic_file, hidden_name, link_or_copy
from demo_pipeline.files.image_header import probe_image
from demo_pipeline.files.json_files import JsonFileError, json_bytes, parse_json
from demo_pipeline.settings import DatasetSettings

_OWNER_ONLY = 0o600
CHAT_PATH = "/chat/completions"
ImageForm = Literal["data", "path"]
_ANSWER_TOKENS = 2048


@contextmanager
def private_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes the name `path` at the end; see `atomic_file`."""
    with atomic_file(path) as file:
        os.fchmod(file.fileno(), _OWNER_ONLY)
        yield file


@contextmanager
def private_log(path: Path) -> Iterator[BinaryIO]:
    """A file to append whole lines to; a last line without an end is cut off first.

    Raises:
        OSError: the folder cannot be written to.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, _OWNER_ONLY)
    with os.fdopen(handle, "r+b") as file:
        os.fchmod(handle, _OWNER_ONLY)
        if path.stat().st_size:
            with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as data:
                end = data.rfind(b"\n") + 1
            file.truncate(end)
        file.seek(0, os.SEEK_END)
        yield file


def readable_by_others(path: Path) -> bool:
    """Whether somebody besides the owner may read a file."""
    return bool(path.stat().st_mode & 0o077)


@dataclass(frozen=True, slots=True)
class Question:
    """What a step is asked with: the system prompt of the form, its words, and its pictures.

    Attributes:
        system: what the model is told first; empty: nothing.
        chat: the other messages; a picture is `{"type": "image", "image": <path>}`.
    """

    system: str
    chat: list[dict[str, Any]]


QuestionForm = Callable[[StepRecord, DatasetSettings], Question]


def batch_request(
    record: StepRecord, question: Question, model: str, url: Callable[[Path], str]
) -> dict[str, Any]:
    """The request of a step in the OpenAI batch form; `url` makes the URL of a picture."""

    def sent(part: dict[str, Any]) -> dict[str, Any]:
        is_image = part["type"] == "image"
        return {"type": "image_url", "image_url": {"url": url(part["image"])}} if is_image else part

    messages: list[dict[str, Any]] = [{"role": "system", "content": question.system}]
    messages = messages if question.system else []
    messages += [m | {"content": list(map(sent, m["content"]))} for m in question.chat]
    settings = {"temperature": 0, "max_tokens": _ANSWER_TOKENS}
    return {
        "custom_id": batch_key((record.step.trajectory_id, record.step.step_index)),
        "method": "POST",
        "url": f"/v1{CHAT_PATH}",
        "body": {"model": model, "messages": messages, **settings},
    }


def data_url(picture: Path) -> str:
    """A PNG or JPEG as a data URL."""
    data = picture.read_bytes()
    kind = "jpeg" if data.startswith(b"\xff\xd8") else "png"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


# Pictures of a folder of requests: trajectory and place; and drafts that an ended run left.
_OWN_PICTURE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*_(steps_[0-9]{3,}_screenshot|final_screenshot)\.png"
    r"|\.[0-9a-f]{16}"
)


def copy_picture(picture: Path, copy: Path) -> None:
    """Put a picture under a name that may have the one of an earlier run."""
    draft = copy.with_name(hidden_name())
    try:
        link_or_copy(picture, draft)
        draft.replace(copy)
    finally:
        draft.unlink(missing_ok=True)  # two names of one file: the system leaves both


def remove_old_pictures(folder: Path, kept: set[str]) -> None:
    """Remove the pictures that an earlier run made, told by their names; other files stay."""
    for file in list(folder.iterdir()):
        ours = _OWN_PICTURE.fullmatch(file.name) and file.name not in kept
        if ours and file.is_file() and not file.is_symlink():
            file.unlink()


KEY_VARIABLE = "OPENAI_API_KEY"
_MOST_BYTES = 32 * 2**20  # of an answer
_REFUSED = {401, 403, 404, 405}  # every other request would be refused too
_PASSING = {0, 408, 409, 425, 429}
_LONGEST_PAUSE = 60.0  # seconds
_PART = 2**16  # bytes that are read at a time
_NO_ANSWER = "no answer"


class EndpointError(Exception):
    """The server cannot be used; the message says why and what to do."""


class RequestFileError(ValueError):
    """The requests cannot be used; the message names the line."""


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
    _open: set[http.client.HTTPConnection] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # the port is not a number
            usable = False
        if not usable or not self.url.isprintable() or " " in self.url:
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

    def ask(self, body: Any) -> tuple[int, Any, str]:
        """Send a chat, again after a failure that may pass.

        Returns:
            The status of HTTP (0: no answer), the chat, and a fixed phrase why there is none.

        Raises:
            EndpointError: the server refuses every request: a wrong key or address.
        """
        data = json.dumps(body).encode()
        for attempt in range(1, self.attempts + 1):
            if self._stopped.is_set():
                break
            status, text, after = self._once(data)
            if status in _REFUSED:
                raise EndpointError(
                    f"{self.host} answered {status}; check the endpoint, the name of the "
                    f"model and the variable {KEY_VARIABLE}"
                )
            if (status not in _PASSING and status < 500) or attempt == self.attempts:
                return status, *_parsed(status, text)
            backoff = self.pause * 2 ** (attempt - 1) * random.uniform(0.5, 1)  # noqa: S311
            (self.sleep or self._stopped.wait)(min(max(backoff, after), _LONGEST_PAUSE))
        return 0, None, _NO_ANSWER

    def stop(self) -> None:
        """End what is under way in all threads: what was asked gets no answer."""
        self._stopped.set()
        for connection in self._open.copy():
            _hang_up(connection)

    def _once(self, data: bytes) -> tuple[int, bytes, float]:
        """One attempt: the status, the answer, and the seconds that the server asks to wait.

        The timeout of a socket ends one read, and a server that drips its answer begins it again:
        one deadline is around the whole exchange.
        """
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        parts, end = urlsplit(self.url), time.monotonic() + self.timeout
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        connection = kinds[parts.scheme](self.host, parts.port, timeout=self.timeout)
        self._open.add(connection)
        deadline = threading.Timer(self.timeout, _hang_up, (connection,))
        deadline.daemon = True
        deadline.start()
        try:
            address = parts.path.rstrip("/").removesuffix(CHAT_PATH) + CHAT_PATH
            connection.request("POST", address, data, headers)
            if self._stopped.is_set():
                raise ConnectionAbortedError
            text = bytearray()
            with connection.getresponse() as answer:
                if 300 <= answer.status < 400:
                    raise EndpointError(f"{self.host} redirects; give the address that it leads to")
                while len(text) <= _MOST_BYTES and (part := answer.read1(_PART)):
                    text += part
                    if time.monotonic() >= end:  # a body without a length is not hung up
                        raise TimeoutError
                if time.monotonic() >= end or (len(text) <= _MOST_BYTES and answer.length):
                    raise ConnectionAbortedError  # `read1` itself says so of chunks alone
        except (OSError, http.client.HTTPException, ValueError):  # closed while it was read
            return 0, b"", 0.0
        finally:
            deadline.cancel()
            self._open.discard(connection)
            connection.close()
        after = answer.getheader("Retry-After") or ""
        pause = float(after) if after.isascii() and after.isdigit() else 0.0
        return answer.status, bytes(text), pause


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """End what is under way on a connection, in whatever thread: a read of it fails."""
    if connection.sock is not None:
        with suppress(OSError):
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


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


@dataclass(slots=True)
class RunCounts:
    """What happened: requests in the file, answered before, answered now, and failed now."""

    requests: int = 0
    before: int = 0
    answered: int = 0
    failed: int = 0


def count_requests(requests: Path, results: Path) -> tuple[int, int]:
    """How many requests a file has, and how many of them have an answer in `results`.

    Raises:
        RequestFileError: a line is not a request.
    """
    done = answered_ids(results)
    answered = [line["custom_id"] in done for line in _requests(requests)]
    return len(answered), sum(answered)


def answered_ids(results: Path) -> set[str]:
    """The ids that have an answer in a file of results; a damaged line has none."""
    found: set[str] = set()
    if not results.is_file():
        return found
    with results.open("rb") as lines:
        for line in lines:
            try:
                value = parse_json(line, "results", any_depth=False)
            except JsonFileError:
                continue
            if isinstance(value, dict) and not value.get("error"):
                response, key = value.get("response"), value.get("custom_id")
                answered = isinstance(response, dict) and response.get("status_code") == 200
                found |= {key} if answered and isinstance(key, str) else set()
    return found


def send_requests(
    requests: Path,
    results: Path,
    endpoint: Endpoint,
    model: str,
    *,
    at_once: int = 4,
    on_answer: Callable[[], None] = lambda: None,
) -> RunCounts:
    """Send every request without an answer, and append the results.

    Args:
        requests: JSON Lines in the OpenAI batch form.
        results: JSON Lines in the form of batch results, mode 0600; it may have some already.
        endpoint: the server.
        model: replaces the name in the requests.
        at_once: requests under way.
        on_answer: is called after every result.

    Raises:
        EndpointError: the server refuses every request.
        RequestFileError: a line is not a request.
    """
    counts = RunCounts()

    def send(line: Mapping[str, Any]) -> Mapping[str, Any]:
        answered = endpoint.ask(_body(line["body"], model, requests.parent))
        return _result(line["custom_id"], *answered)

    with private_log(results) as log, ThreadPoolExecutor(at_once) as pool:
        pending, lines = set[Future[Mapping[str, Any]]](), _unanswered(requests, results, counts)
        try:
            while True:
                some = islice(lines, at_once - len(pending))
                pending |= {pool.submit(send, line) for line in some}
                if not pending:
                    break
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in sorted(finished, key=lambda one: one.exception() is not None):
                    _note(future.result(), log, counts)
                    on_answer()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            endpoint.stop()  # leaving the pool waits for what is under way
            raise
    return counts


def _unanswered(requests: Path, results: Path, counts: RunCounts) -> Iterator[Mapping[str, Any]]:
    done = answered_ids(results)
    for line in _requests(requests):
        counts.requests += 1
        counts.before += line["custom_id"] in done
        if line["custom_id"] not in done:
            yield line


def _note(result: Mapping[str, Any], log: BinaryIO, counts: RunCounts) -> None:
    log.write(json_bytes(dict(result), compact=True))
    log.flush()
    os.fsync(log.fileno())
    counts.failed += bool(result["error"])
    counts.answered += not result["error"]


def _requests(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the requests of a file."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                value = parse_json(line, path.name)
            except JsonFileError as error:
                raise RequestFileError(f"{path.name}:{number}: {error.message}") from None
            known = isinstance(value, dict) and isinstance(value.get("body"), dict)
            if not known or not isinstance(value.get("custom_id"), str):
                raise RequestFileError(
                    f"{path.name}:{number}: not a request of a batch; write the file with "
                    "`demo-pipeline eval requests`"
                )
            yield value


def _body(body: Mapping[str, Any], model: str, folder: Path) -> dict[str, Any]:
    """The body with the model's name, and with pictures inside it instead of their paths."""
    messages = body.get("messages")
    if isinstance(messages, list):
        messages = [
            {**message, "content": [_part(part, folder) for part in message["content"]]}
            if isinstance(message, dict) and isinstance(message.get("content"), list)
            else message
            for message in messages
        ]
    return {**body, "model": model} | ({} if messages is None else {"messages": messages})


def _part(part: Any, folder: Path) -> Any:
    url = part.get("image_url", {}).get("url") if isinstance(part, dict) else None
    if not isinstance(url, str) or not url.startswith("file://"):
        return part
    picture = Path(unquote(urlsplit(url).path)).resolve()
    # A request may not make this machine send its other files.
    if not picture.is_relative_to(folder.resolve()):
        raise RequestFileError("a picture is not in the folder of the requests")
    try:
        probe_image(picture.read_bytes())
    except (OSError, ValueError):
        raise RequestFileError("a picture of the requests cannot be read") from None
    return {**part, "image_url": {"url": data_url(picture)}}


def _result(key: str, status: int, body: Any, fault: str) -> Mapping[str, Any]:
    """A line in the form of batch results."""
    response = {"status_code": 200, "request_id": "", "body": body}
    error = {"code": str(status), "message": fault}
    outcome = {"response": None, "error": error} if fault else {"response": response, "error": None}
    return {"id": "", "custom_id": key, **outcome}
