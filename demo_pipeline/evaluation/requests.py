"""The requests of an evaluation, and sending them to a server.

The history in a request is what the person did before, as in the datasets: a wrong answer does not
change what later steps are asked. What is asked and answered is in no error; the files have mode
0600 from the first byte on, and results are appended line by line and synced.
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


def batch_request(
    record: StepRecord, system: str, words: str, model: str, url: Callable[[Path], str]
) -> dict[str, Any]:
    """The request of a step in the OpenAI batch form.

    Args:
        record: of the step.
        system: what the model is told first; empty: nothing.
        words: beside the screen.
        model: its name.
        url: makes the URL of a picture.
    """
    shown = {"type": "image_url", "image_url": {"url": url(record.draft.screenshot)}}
    asked = [shown, {"type": "text", "text": replace_surrogates(words)}]
    told = [{"role": "system", "content": system}] if system else []
    messages = [*told, {"role": "user", "content": asked}]
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
    """A PNG or JPEG as a data URL."""
    data = picture.read_bytes()
    kind = "jpeg" if data.startswith(b"\xff\xd8") else "png"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


# Pictures of a folder of requests: trajectory and place.
_OWN_PICTURE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*_(steps_[0-9]{3,}_screenshot|final_screenshot)(_native)?\.png"
)


def copy_picture(picture: Path, copy: Path) -> None:
    """Put a picture under a name that may have the one of an earlier run."""
    copy.unlink(missing_ok=True)
    link_or_copy(picture, copy)


def remove_old_pictures(folder: Path, kept: set[str]) -> None:
    """Remove the pictures that an earlier run made, told by their names; other files stay."""
    for file in list(folder.iterdir()):
        ours = _OWN_PICTURE.fullmatch(file.name) and file.name not in kept
        if ours and file.is_file() and not file.is_symlink():
            file.unlink()


def count_requests(requests: Path, results: Path) -> tuple[int, int]:
    """How many requests a file has, and how many of them have an answer in `results`.

    Raises:
        ValueError: a line is not a request.
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
                response = value.get("response")
                key = value.get("custom_id")
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
) -> tuple[int, int]:
    """Send every request without an answer, and append the results.

    Args:
        requests: JSON Lines in the OpenAI batch form.
        results: JSON Lines in the form of batch results, mode 0600; it may have some already.
        endpoint: the server.
        model: replaces the name in the requests.
        at_once: requests under way.
        on_answer: is called after every result.

    Returns:
        How many were answered now, and how many failed.

    Raises:
        ValueError: the server refuses every request, or a line is not a request.
    """
    done = answered_ids(results)
    answered = 0
    failed = 0

    async def send(line: Mapping[str, Any]) -> Mapping[str, Any]:
        body = await asyncio.to_thread(_body, line["body"], model, requests.parent)
        return _result(line["custom_id"], *await endpoint.ask(body))

    unanswered = (line for line in _requests(requests) if line["custom_id"] not in done)
    with private_log(results) as log, closing(each_result(unanswered, send, at_once)) as found:
        for result in found:
            log.write(json_bytes(dict(result), compact=True))
            log.flush()
            os.fsync(log.fileno())
            failed += bool(result["error"])
            answered += not result["error"]
            on_answer()
    return answered, failed


def _requests(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the requests of a file."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                value = parse_json(line, path.name)
            except JsonFileError as error:
                raise ValueError(f"{path.name}:{number}: {error.message}") from None
            known = isinstance(value, dict) and isinstance(value.get("body"), dict)
            if not known or not isinstance(value.get("custom_id"), str):
                raise ValueError(
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
        raise ValueError("a picture is not in the folder of the requests")
    try:
        probe_image(picture.read_bytes())
    except (OSError, ValueError):
        raise ValueError("a picture of the requests cannot be read") from None
    return {**part, "image_url": {"url": data_url(picture)}}


def _result(key: str, status: int, body: Any, fault: str) -> Mapping[str, Any]:
    """A line in the form of batch results."""
    response = {"status_code": 200, "request_id": "", "body": body}
    error = {"code": str(status), "message": fault}
    outcome = {"response": None, "error": error} if fault else {"response": response, "error": None}
    return {"id": "", "custom_id": key, **outcome}
