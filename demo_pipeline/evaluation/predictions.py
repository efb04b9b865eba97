"""Reading what a model answered: plain JSON Lines, or the results of an OpenAI batch.

Belongs here: finding the answer of a step, which of several lines of a step counts, and counting by
reason what cannot be used. Answers may hold what people typed: nothing here puts a word of them
into a message. A file is read twice; in memory are the places of its lines, and no answer.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from demo_pipeline.exports.answers import AnswerFormatError
from demo_pipeline.exports.tool_calls import is_int
from demo_pipeline.files.json_files import JsonFileError, json_bytes, parse_json

StepKey = tuple[str, int]
LONGEST_ANSWER = 200_000  # characters; models end earlier
_LONGEST_LINE = 4 * 2**20  # bytes; batch results repeat ids and counts
_MOST_STEPS = 1_000_000
MISSING = "missing"
UNKNOWN_STEP = "unknown step"
FAILED = "the request failed"
_TOO_LONG = "too long"
_DOUBLED = "doubled"
_NO_TEXT = "the response is not text"
_WRONG_KEY = "a key of the wrong type"


@dataclass(slots=True)
class Predictions:
    """The answers of a model by step.

    Attributes:
        file: has them.
        unusable: reason → number of lines that belong to no step.
        lines: number of lines.
        unasked: number of steps with a line that nobody asked for yet.
    """

    file: BinaryIO
    unusable: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    unasked: int = 0
    _found: dict[str, dict[int, int | str]] = field(default_factory=dict)  # a place, or a reason

    def add(self, place: int, line: bytes, known: Collection[str]) -> None:
        """Remember the line at a place in the file; see `read_predictions`.

        A request that failed and was sent again counts by its answer; of two answers neither does.
        """
        self.lines += 1
        try:
            (trajectory, step), text = parse_line(line)
        except AnswerFormatError as error:
            self.unusable[error.reason] += 1
            return
        if trajectory not in known or not 0 <= step < _MOST_STEPS:
            self.unusable[UNKNOWN_STEP] += 1
            return
        steps = self._found.setdefault(trajectory, {})
        before = steps.get(step)
        self.unasked += before is None
        if text is None:
            steps.setdefault(step, FAILED)
        elif len(text) > LONGEST_ANSWER:
            steps[step] = _TOO_LONG
        elif before in (None, FAILED):
            steps[step] = place
        elif isinstance(before, int):
            steps[step] = _DOUBLED

    def answer(self, key: StepKey) -> str:
        """The answer of a step. Every step may be asked for once.

        Raises:
            AnswerFormatError: there is none, there are several, or it cannot be used.
        """
        found = self._found.get(key[0], {}).get(key[1], MISSING)
        self.unasked -= found != MISSING
        if isinstance(found, str):
            raise AnswerFormatError(found)
        self.file.seek(found)
        return parse_line(self.file.readline(_LONGEST_LINE))[1] or ""


def batch_key(key: StepKey) -> str:
    """The `custom_id` of a step in a batch."""
    return f"{key[0]}/{key[1]}"


@contextmanager
def read_predictions(path: Path, known: Collection[str]) -> Iterator[Predictions]:
    """The answers in a file, while it is open.

    A line is `{"trajectory_id", "step_index", "response"}`, or a result of an OpenAI batch whose
    `custom_id` is `<trajectory_id>/<step_index>`.

    Args:
        path: the file.
        known: the trajectories that are asked about; other steps are counted and forgotten.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        found = Predictions(file)
        while line := file.readline(_LONGEST_LINE):
            place = file.tell() - len(line)
            rest = line
            while len(rest) == _LONGEST_LINE and not rest.endswith(b"\n"):
                rest = file.readline(_LONGEST_LINE)  # of a line that is too long to hold
            if line.strip():
                found.add(place, line, known)
        yield found


_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


def without_thoughts(text: str) -> str:
    """An answer without what a model thought before it, which may name anything.

    A template may have written `<think>` into the question, so that only its end is in the answer.
    """
    said = _THOUGHT.sub("", text)
    return said.rpartition("</think>")[2]


def parse_line(line: bytes) -> tuple[StepKey, str | None]:
    """The key and text of one line of either form; the text is None when the request failed.

    Raises:
        AnswerFormatError: it is too long, is not JSON, or lacks its key or text.
    """
    if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
        raise AnswerFormatError(_TOO_LONG)
    try:
        value = parse_json(line, "predictions", any_depth=False)
    except JsonFileError as error:
        raise AnswerFormatError("not UTF-8" if "UTF-8" in error.message else "not JSON") from None
    if not isinstance(value, dict):
        raise AnswerFormatError("not an object")
    if "custom_id" in value:
        if not isinstance(value["custom_id"], str):
            raise AnswerFormatError(_WRONG_KEY)
        key = re.fullmatch("(.+)/([0-9]{1,9})", value["custom_id"], re.DOTALL)
        if not key:
            raise AnswerFormatError("no key")
        return (key[1], int(key[2])), _batch_text(value)
    if "trajectory_id" not in value or "step_index" not in value:
        raise AnswerFormatError("no key")
    trajectory = value["trajectory_id"]
    step = value["step_index"]
    if isinstance(step, float) and step.is_integer():
        step = int(step)
    if not isinstance(trajectory, str) or not is_int(step):
        raise AnswerFormatError(_WRONG_KEY)
    return (trajectory, step), _text(value.get("response"))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise AnswerFormatError(_NO_TEXT)
    return value


def _batch_text(value: Mapping[str, Any]) -> str | None:
    """The words of the first choice; None when the request failed."""
    response = value.get("response")
    if value.get("error") or not isinstance(response, dict):
        return None
    body = response.get("body")
    if response.get("status_code") != 200 or not isinstance(body, dict):
        return None
    try:
        return _message_text(body["choices"][0]["message"])
    except AnswerFormatError:
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        raise AnswerFormatError(_NO_TEXT) from None


def _message_text(message: Mapping[str, Any]) -> str:
    """The content, and calls that the server took out of it, as they were written."""
    content = message.get("content")
    calls = message.get("tool_calls") or []
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if part.get("type") == "text")
    texts = [_text(content)] if content is not None or not calls else []
    for call in calls:
        name = call["function"]["name"]
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):  # servers send them as JSON text
            try:
                arguments = parse_json(arguments, "tool call", any_depth=False)
            except JsonFileError:
                raise AnswerFormatError("a tool call is not JSON") from None
        written = json_bytes({"name": name, "arguments": arguments}, compact=True)
        texts.append(f"<tool_call>\n{written.decode().strip()}\n</tool_call>")
    return "\n".join(texts)
