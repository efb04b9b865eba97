"""The requests of an evaluation, and sending them to a server that answers chats in OpenAI's form.

Belongs here: what a line asks (the history in it is what the person did before, as in the datasets:
a wrong answer does not change what later steps are asked), one request and its repetitions, the
loop with a bounded number of requests at a time, and going on where an earlier run ended. It talks
to the host that it was given and to no other: redirects are not followed, proxies of the
environment not used. What is asked and answered is in no error; the files have mode 0600 from the
first byte on, and results are appended line by line and synced.
"""

import base64
import http.client
import ipaddress
import json
import os
import random
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal
from urllib.parse import unquote, urlsplit

from demo_pipeline.evaluation.predictions import batch_key
from demo_pipeline.evaluation.true_steps import StepRecord
from demo_pipeline.files.atomic_write import hidden_name, link_or_copy, replace_synced
from demo_pipeline.files.image_header import probe_image
from demo_pipeline.files.json_files import JsonFileError, json_bytes, parse_json
from demo_pipeline.settings import DatasetSettings

_OWNER_ONLY = 0o600


@contextmanager
def private_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes the name `path` at the end unless an error was raised.

    Raises:
        OSError: the disk is full, or the folder cannot be written to; no draft is left.
    """
    draft = path.with_name(hidden_name())
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace_synced(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def private_log(path: Path) -> Iterator[BinaryIO]:
    """A file to append whole lines to; a last line without an end is cut off first.

    Raises:
        OSError: the folder cannot be written to.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, _OWNER_ONLY)
    with os.fdopen(handle, "r+b") as file:
        os.fchmod(file.fileno(), _OWNER_ONLY)
        file.truncate(_end_of_lines(file))
        file.seek(0, os.SEEK_END)
        yield file


def _end_of_lines(file: BinaryIO, block: int = 2**16) -> int:
    """The number of bytes up to the last line end."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - block)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def readable_by_others(path: Path) -> bool:
    """Whether somebody besides the owner may read a file."""
    return bool(path.stat().st_mode & 0o077)


CHAT_PATH = "/chat/completions"
# Pictures of a folder of requests: trajectory and place; and drafts that an ended run left.
_OWN_PICTURE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*_(steps_[0-9]{3,}_screenshot|final_screenshot)\.png"
    r"|\.[0-9a-f]{16}"
)
ImageForm = Literal["data", "path"]
Chat = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Question:
    """What a step is asked with: the system prompt of the form, its words, and its pictures.

    Attributes:
        system: what the model is told first; empty: nothing.
        chat: the other messages; a picture is `{"type": "image", "image": <path>}`.
    """

    system: str
    chat: Chat


QuestionForm = Callable[[StepRecord, DatasetSettings], Question]


@dataclass(slots=True)
class RequestWriter:
    """Writes the lines.

    Attributes:
        out: the file.
        form: of the questions.
        settings: of the datasets.
        model: the name in every request.
        system: replaces the system prompt of the form; None: it stays.
        images: `data`: inside the line; `path`: as `file://` URLs of copies in `folder`.
        folder: for the pictures, when they are not inside; it exists.
        max_tokens: of an answer.
        written: how many lines were written.
        pictures: names of the copies in `folder` that were made.
    """

    out: BinaryIO
    form: QuestionForm
    settings: DatasetSettings
    model: str
    system: str | None = None
    images: ImageForm = "data"
    folder: Path = field(default_factory=Path)
    max_tokens: int = 2048
    written: int = 0
    pictures: set[str] = field(default_factory=set)

    def add(self, record: StepRecord) -> None:
        """Write the request of a step."""
        question = self.form(record, self.settings)
        system = question.system if self.system is None else self.system
        messages = [{"role": "system", "content": system}] if system else []
        messages += [self._message(message, record) for message in question.chat]
        line = {
            "custom_id": batch_key((record.step.trajectory_id, record.step.step_index)),
            "method": "POST",
            "url": f"/v1{CHAT_PATH}",
            "body": {
                "model": self.model,
                "messages": messages,
                "temperature": 0,
                "max_tokens": self.max_tokens,
            },
        }
        self.out.write(json_bytes(line, compact=True))
        self.written += 1

    def _message(self, message: Mapping[str, Any], record: StepRecord) -> dict[str, Any]:
        content = message["content"]
        if isinstance(content, list):
            content = [self._part(part, record) for part in content]
        return {**message, "content": content}

    def _part(self, part: Mapping[str, Any], record: StepRecord) -> Mapping[str, Any]:
        if part["type"] != "image":
            return part
        picture: Path = part["image"]
        if self.images == "data":
            url = data_url(picture)
        else:
            place = picture.relative_to(record.candidate.source.path).as_posix()
            copy = self.folder / f"{record.step.trajectory_id}_{place.replace('/', '_')}"
            if copy.name not in self.pictures:
                _replace(copy, picture)
                self.pictures.add(copy.name)
            url = copy.resolve().as_uri()
        return {"type": "image_url", "image_url": {"url": url}}

    def remove_old_pictures(self) -> None:
        """Remove the pictures in `folder` that an earlier run made and this one did not.

        They are told by their names; other files and links stay.
        """
        for file in list(self.folder.iterdir()):
            ours = _OWN_PICTURE.fullmatch(file.name) and file.name not in self.pictures
            if ours and file.is_file() and not file.is_symlink():
                file.unlink()


def _replace(copy: Path, picture: Path) -> None:
    """Put a picture under a name that may have the one of an earlier run."""
    draft = copy.with_name(hidden_name())
    try:
        link_or_copy(picture, draft)
        draft.replace(copy)
    finally:
        draft.unlink(missing_ok=True)  # two names of one file: the system leaves both


def data_url(picture: Path) -> str:
    """A PNG or JPEG as a data URL."""
    data = picture.read_bytes()
    kind = "jpeg" if data.startswith(b"\xff\xd8") else "png"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


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
            _hang_up(connection)

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
        connection = self._connection()
        # The timeout of a socket ends one read: a server that drips its headers begins it again.
        deadline = threading.Timer(self.timeout, _hang_up, (connection,))
        deadline.daemon = True
        deadline.start()
        try:
            connection.request("POST", self._path(), data, headers)
            if self._stopped.is_set():
                raise ConnectionAbortedError
            answer = connection.getresponse()
            text = _read_answer(answer, deadline)
            if answer.will_close or len(text) > _MOST_BYTES:
                self._close()
        except (OSError, http.client.HTTPException, ValueError):  # closed while it was read
            self._close()
            return Reply(0, None, "no answer"), 0.0
        finally:
            deadline.cancel()
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


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """End what is under way on a connection, in whatever thread: a read of it fails."""
    if connection.sock is not None:
        with suppress(OSError):
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


def _read_answer(answer: http.client.HTTPResponse, deadline: threading.Timer) -> bytes:
    """The body, or its beginning when it is longer than may be.

    Raises:
        OSError: the connection failed, or the deadline has passed.
        http.client.HTTPException: the server hung up before its end.
    """
    text = bytearray()
    while len(text) <= _MOST_BYTES and (part := answer.read1(_PART)):
        text += part
        if deadline.finished.is_set():  # the connection of a body without a length is the answer's
            raise TimeoutError
    if len(text) <= _MOST_BYTES and answer.length:
        raise http.client.IncompleteRead(b"")  # `read1` itself says so of chunks alone
    answer.close()  # `read1` leaves it open at its end, and the connection unusable
    return bytes(text)


def _reply(status: int, text: bytes) -> Reply:
    if len(text) > _MOST_BYTES:
        return Reply(status, None, "too long")
    try:
        body = parse_json(text, "answer", any_depth=False)
    except JsonFileError:
        return Reply(status, None, "not JSON")
    if status == 200 and not (isinstance(body, dict) and body.get("choices")):
        return Reply(status, None, "not a chat")  # some servers say so that they are overloaded
    return Reply(status, body)


class RequestFileError(ValueError):
    """The requests cannot be used; the message names the line."""


@dataclass(frozen=True, slots=True)
class RunCounts:
    """What happened: requests in the file, answered before, answered now, and failed now."""

    requests: int
    before: int
    answered: int
    failed: int


def count_requests(requests: Path, results: Path) -> tuple[int, int]:
    """How many requests a file has, and how many of them have an answer in `results`.

    Raises:
        RequestFileError: a line is no request.
    """
    done, total, before = answered_ids(results), 0, 0
    for _, line in _requests(requests):
        total, before = total + 1, before + (line["custom_id"] in done)
    return total, before


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
                if isinstance(response, dict) and response.get("status_code") == 200:
                    found.update([key] if isinstance(key, str) else [])
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
        RequestFileError: a line is no request.
    """
    done, counts = answered_ids(results), {"requests": 0, "before": 0, "answered": 0, "failed": 0}

    def send(line: Mapping[str, Any]) -> Mapping[str, Any]:
        reply = endpoint.ask(_body(line["body"], model, requests.parent))
        return _result(line["custom_id"], reply)

    with closing(endpoint), private_log(results) as log, ThreadPoolExecutor(at_once) as pool:
        pending: set[Future[Mapping[str, Any]]] = set()
        try:
            for _, line in _requests(requests):
                counts["requests"] += 1
                if line["custom_id"] in done:
                    counts["before"] += 1
                    continue
                pending.add(pool.submit(send, line))
                while len(pending) >= at_once:
                    pending = _collect(pending, log, counts, on_answer)
            while pending:
                pending = _collect(pending, log, counts, on_answer)
        except BaseException:
            for future in pending:
                future.cancel()
            endpoint.stop()  # leaving the pool waits for what is under way
            raise
    return RunCounts(**counts)


def _collect(
    pending: set[Future[Mapping[str, Any]]],
    log: BinaryIO,
    counts: dict[str, int],
    on_answer: Callable[[], None],
) -> set[Future[Mapping[str, Any]]]:
    """Write the results that are there, and return what is still under way."""
    finished, waiting = wait(pending, return_when=FIRST_COMPLETED)
    faults = []
    for future in finished:
        if (fault := future.exception()) is not None:
            faults.append(fault)
            continue
        result = future.result()
        log.write(json_bytes(dict(result), compact=True))
        log.flush()
        os.fsync(log.fileno())
        counts["failed" if result["error"] else "answered"] += 1
        on_answer()
    if faults:
        raise faults[0]
    return waiting


def _requests(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line numbers and requests of a file."""
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
            yield number, value


def _body(body: Mapping[str, Any], model: str, folder: Path) -> dict[str, Any]:
    """The body with the model's name, and with pictures inside it instead of their paths."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return {**body, "model": model}
    return {**body, "model": model, "messages": [_message(part, folder) for part in messages]}


def _message(message: Any, folder: Path) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return message
    return {**message, "content": [_part(part, folder) for part in content]}


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


def _result(key: str, reply: Reply) -> Mapping[str, Any]:
    """A line in the form of batch results."""
    if reply.status == 200 and reply.body is not None:
        response = {"status_code": 200, "request_id": "", "body": reply.body}
        return {"id": "", "custom_id": key, "response": response, "error": None}
    fault = reply.fault or f"status {reply.status}"
    error = {"code": str(reply.status), "message": fault}
    return {"id": "", "custom_id": key, "response": None, "error": error}
