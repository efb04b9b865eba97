"""Reads the answers of a model: plain JSON Lines, or the results of an OpenAI batch.

Messages never quote answers, which may contain text that people typed. The file is read twice, so
that only the byte offsets of the steps' lines are in memory.
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
LONGEST_ANSWER = 200_000  # maximum number of characters of an answer; real answers are shorter
# Maximum number of bytes of a line. Besides the answer, lines of batch results contain ids and
# counts.
_LONGEST_LINE = 4 * 2**20
_MOST_STEPS = 1_000_000  # maximum number of steps of a trajectory
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
        file: the open file of answers.
        unusable: number of lines that are invalid or belong to an unknown step, by reason.
        lines: number of lines.
        unasked: number of steps in the file for which `answer` has not been called yet.
    """

    file: BinaryIO
    unusable: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    unasked: int = 0
    # Maps trajectory and step to the byte offset of the line, or to the reason why the step has no
    # usable answer.
    _offsets: dict[str, dict[int, int | str]] = field(default_factory=dict)

    def add(self, offset: int, line: bytes, known_trajectories: Collection[str]) -> None:
        """Adds the line at a byte offset of the file; see `read_predictions`.

        If a step has an answer and a failed request, the answer is used. If a step has two answers,
        neither is used.
        """
        self.lines += 1
        try:
            (trajectory, step), text = parse_line(line)
        except AnswerFormatError as error:
            self.unusable[error.reason] += 1
            return
        if trajectory not in known_trajectories or not 0 <= step < _MOST_STEPS:
            self.unusable[UNKNOWN_STEP] += 1
            return
        steps = self._offsets.setdefault(trajectory, {})
        before = steps.get(step)
        self.unasked += before is None
        if text is None:
            steps.setdefault(step, FAILED)
        elif len(text) > LONGEST_ANSWER:
            steps[step] = _TOO_LONG
        elif before in (None, FAILED):
            steps[step] = offset
        elif isinstance(before, int):
            steps[step] = _DOUBLED

    def answer(self, key: StepKey) -> str:
        """Returns the answer of a step.

        Call this method only once per step, because it also updates `unasked`.

        Raises:
            AnswerFormatError: the step has no answer, several answers, or an unusable one.
        """
        trajectory, step = key
        offset = self._offsets.get(trajectory, {}).get(step, MISSING)
        self.unasked -= offset != MISSING
        if isinstance(offset, str):  # the reason why there is no answer
            raise AnswerFormatError(offset)
        self.file.seek(offset)
        _, text = parse_line(self.file.readline(_LONGEST_LINE))
        return text or ""


def batch_key(key: StepKey) -> str:
    """Returns the `custom_id` of a step in a batch."""
    return f"{key[0]}/{key[1]}"


@contextmanager
def read_predictions(path: Path, known_trajectories: Collection[str]) -> Iterator[Predictions]:
    """Opens the answers in a file.

    A line is `{"trajectory_id", "step_index", "response"}`, or a result of an OpenAI batch whose
    `custom_id` is `<trajectory_id>/<step_index>`.

    Args:
        known_trajectories: trajectory ids. Answers for other trajectories count as unusable.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        predictions = Predictions(file)
        while line := file.readline(_LONGEST_LINE):
            offset = file.tell() - len(line)
            rest = line
            while len(rest) == _LONGEST_LINE and not rest.endswith(b"\n"):
                rest = file.readline(_LONGEST_LINE)  # skips the end of a long line
            if line.strip():
                predictions.add(offset, line, known_trajectories)
        yield predictions


_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


def without_thoughts(text: str) -> str:
    """Removes the thoughts of a model, because thoughts may mention other actions.

    Thoughts are between `<think>` and `</think>`. If a chat template puts `<think>` into the
    question, the answer has only the end tag.
    """
    return _THOUGHT.sub("", text).rpartition("</think>")[2]


def parse_line(line: bytes) -> tuple[StepKey, str | None]:
    """Returns the step and the answer of a line. The answer is None if the request failed.

    Raises:
        AnswerFormatError: the line is too long, is not JSON, or has no valid step or text.
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
    """Returns the text of the first choice in a batch result; None if the request failed."""
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
    """Returns the content of a message, followed by its tool calls as text.

    The tool calls are added because some servers move them from the content to a separate field.
    """
    content = message.get("content")
    calls = message.get("tool_calls") or []
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if part.get("type") == "text")
    texts = list[str]()
    if content is not None or not calls:
        texts.append(_text(content))
    for call in calls:
        name = call["function"]["name"]
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):  # the usual form: JSON as text
            try:
                arguments = parse_json(arguments, "tool call", any_depth=False)
            except JsonFileError:
                raise AnswerFormatError("a tool call is not JSON") from None
        written = json_bytes({"name": name, "arguments": arguments}, compact=True)
        texts.append(f"<tool_call>\n{written.decode().strip()}\n</tool_call>")
    return "\n".join(texts)
