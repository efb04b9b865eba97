"""Writes the requests of an evaluation and sends them to a server.

The history in a request contains the person's actions, so that a wrong answer does not change later
requests. Errors quote neither requests nor answers. Only the owner can read the files. Results are
appended and synced line by line.
"""

import asyncio
import base64
import mmap
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from demo_pipeline.annotations.chat_server import CHAT_PATH, Endpoint, each_result
from demo_pipeline.evaluation.predictions import batch_key
from demo_pipeline.evaluation.true_steps import StepRecord
from demo_pipeline.files.atomic_write import atomic_file, link_or_copy
from demo_pipeline.files.image_files import probe_image
from demo_pipeline.files.json_files import JsonFileError, json_bytes, parse_json
from demo_pipeline.files.shown_text import replace_surrogates

_OWNER_ONLY = 0o600
_ANSWER_TOKENS = 2048  # `max_tokens` of a request


@contextmanager
def private_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a new file with mode 0600, and moves the file to `path` when the block ends."""
    with atomic_file(path) as file:
        os.fchmod(file.fileno(), _OWNER_ONLY)
        yield file


@contextmanager
def private_log(path: Path) -> Iterator[BinaryIO]:
    """Opens a file with mode 0600 for appending lines, and removes an unfinished last line.

    Raises:
        OSError: the folder is not writable.
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
    """Whether users other than the owner may read, write or execute a file."""
    return bool(path.stat().st_mode & 0o077)


def batch_request(
    record: StepRecord, system: str, words: str, model: str, url: Callable[[Path], str]
) -> dict[str, Any]:
    """Returns the request of a step in OpenAI's batch format.

    Args:
        system: the system message; empty if there is none.
        words: the text after the screenshot.
        url: returns the URL of a screenshot.
    """
    image = {"type": "image_url", "image_url": {"url": url(record.draft.screenshot)}}
    text = {"type": "text", "text": replace_surrogates(words)}
    messages = list[dict[str, Any]]()
    if system:
        messages.append({"role": "system", "content": system})
    messages.append({"role": "user", "content": [image, text]})
    return {
        "custom_id": batch_key((record.step.trajectory_id, record.step.step_index)),
        "method": "POST",
        "url": f"/v1{CHAT_PATH}",
        "body": {
            "model": model,
            "messages": messages,
            "temperature": 0,
            "max_tokens": _ANSWER_TOKENS,
        },
    }


def data_url(picture: Path) -> str:
    """Returns a PNG or JPEG as a data URL."""
    data = picture.read_bytes()
    kind = "jpeg" if data.startswith(b"\xff\xd8") else "png"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


# Names of copied screenshots: the trajectory's id, an underscore, and the screenshot's path in the
# trajectory with underscores instead of slashes.
_COPIED_SCREENSHOT = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*_(steps_[0-9]{3,}_screenshot|final_screenshot)(_native)?\.png"
)


def copy_picture(picture: Path, copy: Path) -> None:
    """Copies a screenshot, and replaces the copy of an earlier run."""
    copy.unlink(missing_ok=True)
    link_or_copy(picture, copy)


def remove_old_pictures(folder: Path, kept: set[str]) -> None:
    """Removes the screenshots that an earlier run copied into a folder, except those in `kept`.

    Other files stay.
    """
    for file in list(folder.iterdir()):
        is_old_copy = _COPIED_SCREENSHOT.fullmatch(file.name) and file.name not in kept
        if is_old_copy and file.is_file() and not file.is_symlink():
            file.unlink()


def count_requests(requests: Path, results: Path) -> tuple[int, int]:
    """Counts the requests in a file, and how many of them have an answer in `results`.

    Raises:
        ValueError: a line is not a request.
    """
    answered = answered_ids(results)
    all_requests = 0
    answered_requests = 0
    for line in _requests(requests):
        all_requests += 1
        answered_requests += line["custom_id"] in answered
    return all_requests, answered_requests


def answered_ids(results: Path) -> set[str]:
    """Returns the ids that have an answer in a file of results. Damaged lines are ignored."""
    ids: set[str] = set()
    if not results.is_file():
        return ids
    with results.open("rb") as lines:
        for line in lines:
            try:
                value = parse_json(line, "results", any_depth=False)
            except JsonFileError:
                continue
            if not isinstance(value, dict) or value.get("error"):
                continue
            response = value.get("response")
            key = value.get("custom_id")
            is_answered = isinstance(response, dict) and response.get("status_code") == 200
            if is_answered and isinstance(key, str):
                ids.add(key)
    return ids


def send_requests(
    requests: Path,
    results: Path,
    endpoint: Endpoint,
    model: str,
    *,
    at_once: int = 4,
    on_answer: Callable[[], None] = lambda: None,
) -> tuple[int, int]:
    """Sends every request that has no answer yet, and appends the results.

    Args:
        requests: JSON Lines in OpenAI's batch format.
        results: JSON Lines in the format of batch results; the file may contain results already.
        model: replaces the name of the model in the requests.
        at_once: number of concurrent requests.
        on_answer: is called after every result.

    Returns:
        The number of newly answered requests, and the number of failed requests.

    Raises:
        ValueError: the server refuses every request, or a line is not a request.
    """
    answered_before = answered_ids(results)
    answered = 0
    failed = 0

    async def send(line: Mapping[str, Any]) -> Mapping[str, Any]:
        body = await asyncio.to_thread(_body, line["body"], model, requests.parent)
        return _result(line["custom_id"], *await endpoint.ask(body))

    unanswered = (line for line in _requests(requests) if line["custom_id"] not in answered_before)
    with (
        private_log(results) as log,
        closing(each_result(unanswered, send, at_once)) as new_results,
    ):
        for result in new_results:
            log.write(json_bytes(dict(result), compact=True))
            log.flush()
            os.fsync(log.fileno())
            if result["error"]:
                failed += 1
            else:
                answered += 1
            on_answer()
    return answered, failed


def _requests(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the requests in a file.

    Raises:
        ValueError: a line is not a request.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                value = parse_json(line, path.name)
            except JsonFileError as error:
                raise ValueError(f"{path.name}:{number}: {error.message}") from None
            has_body = isinstance(value, dict) and isinstance(value.get("body"), dict)
            if not has_body or not isinstance(value.get("custom_id"), str):
                raise ValueError(
                    f"{path.name}:{number}: not a request of a batch; write the file with "
                    "`demo-pipeline eval requests`"
                )
            yield value


def _body(body: Mapping[str, Any], model: str, folder: Path) -> dict[str, Any]:
    """Returns the body with the model's name, and with image data instead of file URLs.

    Args:
        folder: the folder that contains the file of requests, and must contain all images.
    """
    filled = {**body, "model": model}
    messages = body.get("messages")
    if isinstance(messages, list):
        filled["messages"] = [_message_with_images(message, folder) for message in messages]
    return filled


def _message_with_images(message: Any, folder: Path) -> Any:
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    return {**message, "content": [_part_with_image(part, folder) for part in message["content"]]}


def _part_with_image(part: Any, folder: Path) -> Any:
    if not isinstance(part, dict):
        return part
    url = part.get("image_url", {}).get("url")
    if not isinstance(url, str) or not url.startswith("file://"):
        return part
    picture = Path(unquote(urlsplit(url).path)).resolve()
    # Without this check, a file of requests could make this machine send any local file.
    if not picture.is_relative_to(folder.resolve()):
        raise ValueError("an image is not in the folder of the requests")
    try:
        probe_image(picture.read_bytes())
    except (OSError, ValueError):
        raise ValueError("an image of the requests cannot be read") from None
    return {**part, "image_url": {"url": data_url(picture)}}


def _result(key: str, status: int, body: Any, fault: str) -> Mapping[str, Any]:
    """Returns a line in the format of batch results.

    Args:
        key: the request's `custom_id`.
        status: the HTTP status.
        body: the server's answer.
        fault: why the request failed; empty if it succeeded.
    """
    response: dict[str, Any] | None = {"status_code": 200, "request_id": "", "body": body}
    error: dict[str, Any] | None = None
    if fault:
        response = None
        error = {"code": str(status), "message": fault}
    return {"id": "", "custom_id": key, "response": response, "error": error}
