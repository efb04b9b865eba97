"""Sends the requests of a file to a server and keeps what it answers.

Belongs here: the loop with a bounded number of requests at a time, and going on where an earlier
run ended. Results are appended line by line and synced, so that a kill costs what was under way.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from demo_pipeline.common.image_header import probe_image
from demo_pipeline.common.json_files import JsonFileError, json_bytes, parse_json
from demo_pipeline.evaluation.endpoint import Endpoint, Reply
from demo_pipeline.evaluation.private_files import private_log
from demo_pipeline.evaluation.request_lines import data_url


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
                value = parse_json(line, "results")
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
