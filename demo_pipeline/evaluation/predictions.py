"""Reading what a model answered: plain JSON Lines, or the results of an OpenAI batch.

Belongs here: finding the answer of a step, which of several lines of a step counts, and counting by
reason what cannot be used. Answers may hold what people typed: nothing here puts a word of them
into a message. A file is read twice; the places of its lines are kept in a temporary database,
which SQLite keeps in memory up to a limit and beyond it in a file without a name. It holds no
answer.
"""

import errno
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from demo_pipeline.exports.cudag.tool_calls import is_int
from demo_pipeline.files.json_files import JsonFileError, json_bytes, parse_json

FAILED = "the request failed"
_REASONS = {"doubled": "doubled", "failed": FAILED}
StepKey = tuple[str, int]
_CACHE_KIB = 2048
_TABLE = """
    CREATE TABLE answers (
        trajectory TEXT, step INTEGER, place INTEGER, reason TEXT, PRIMARY KEY (trajectory, step)
    ) WITHOUT ROWID
"""
_NOTE = """
    INSERT INTO answers VALUES (:trajectory, :step, :place, NULL) ON CONFLICT DO UPDATE SET
        reason = CASE WHEN place IS NOT NULL THEN :doubled
            WHEN reason = :failed THEN NULL ELSE reason END,
        place = ifnull(place, excluded.place)
"""
_NOTE_FAILED = "INSERT INTO answers VALUES (?, ?, NULL, ?) ON CONFLICT DO NOTHING"
_REFUSE = """
    INSERT INTO answers VALUES (?, ?, NULL, ?) ON CONFLICT DO UPDATE SET reason = excluded.reason
"""
_FIND = "SELECT place, reason FROM answers WHERE trajectory = ? AND step = ?"


class AnswerPlaces:
    """Steps and the places of their answers. A context manager, which deletes the table.

    Its methods raise OSError when the disk is full.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        for setting in ("journal_mode = OFF", f"cache_size = -{_CACHE_KIB}"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute(_TABLE)
        self._database.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._database.close()

    def note(self, key: StepKey, place: int) -> None:
        """Remember an answer; a second one for a step leaves it without one."""
        values = {"trajectory": key[0], "step": key[1], "place": place, **_REASONS}
        self._execute(_NOTE, values)

    def note_failed(self, key: StepKey) -> None:
        """Remember a request that failed; another line for the step counts in its stead."""
        self._execute(_NOTE_FAILED, (*key, FAILED))

    def refuse(self, key: StepKey, reason: str) -> None:
        """Remember that a line of a step cannot be used; the step has no answer then."""
        self._execute(_REFUSE, (*key, reason))

    def find(self, key: StepKey) -> tuple[int | None, str | None] | None:
        """The place of a step's answer, and why it cannot be used; None: the step has no line."""
        found: tuple[int | None, str | None] | None = self._execute(_FIND, key).fetchone()
        return found

    def __len__(self) -> int:
        """The number of steps."""
        return int(self._execute("SELECT count(*) FROM answers").fetchone()[0])

    def _execute(
        self, command: str, values: Mapping[str, Any] | Sequence[Any] = ()
    ) -> sqlite3.Cursor:
        try:
            return self._database.execute(command, values)
        except sqlite3.OperationalError as error:
            message = f"a temporary file cannot be written ({error}); make room, or set TMPDIR"
            raise OSError(errno.ENOSPC, message) from None


LONGEST_ANSWER = 200_000  # characters; models end earlier
_LONGEST_LINE = 4 * 2**20  # bytes; batch results repeat ids and counts
_MOST_STEPS = 1_000_000
MISSING, UNKNOWN_STEP = "missing", "unknown step"
_TOO_LONG = "too long"


class UnusableAnswer(ValueError):  # noqa: N818 - the name states what is wrong
    """A line, or an answer in it, that cannot be used; the text is one of a few fixed reasons."""


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """The key and text of one line; `text` is None when the request failed."""

    key: StepKey
    text: str | None


@dataclass(slots=True)
class Predictions:
    """The answers of a model by step.

    Attributes:
        fetch: the answer at a place that `add` was given; None: the request failed.
        places: where the answers are.
        known: the trajectories that are asked about; other steps are counted and forgotten.
        unusable: reason → number of lines that belong to no step.
        lines: number of lines.
    """

    fetch: Callable[[int], str | None]
    places: AnswerPlaces
    known: Collection[str]
    unusable: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    _asked: int = 0

    def add(self, place: int, line: AnswerLine) -> None:
        """Remember where the answer of a step is."""
        trajectory, step = line.key
        if trajectory not in self.known or not 0 <= step < _MOST_STEPS:
            self.unusable[UNKNOWN_STEP] += 1
        elif line.text is None:
            self.places.note_failed(line.key)
        elif len(line.text) > LONGEST_ANSWER:
            self.places.refuse(line.key, _TOO_LONG)
        else:
            self.places.note(line.key, place)

    def answer(self, key: StepKey) -> str:
        """The answer of a step. Every step may be asked for once.

        Raises:
            UnusableAnswer: there is none, there are several, or it cannot be used.
        """
        found = self.places.find(key)
        if found is None:
            raise UnusableAnswer(MISSING)
        self._asked += 1
        place, reason = found
        text = None if reason or place is None else self.fetch(place)
        if text is None:
            raise UnusableAnswer(reason or FAILED)
        return text

    def unasked(self) -> int:
        """How many steps with a line nobody asked for."""
        return len(self.places) - self._asked


def batch_key(key: StepKey) -> str:
    """The `custom_id` of a step in a batch."""
    return f"{key[0]}/{key[1]}"


@contextmanager
def read_predictions(path: Path, known: Collection[str]) -> Iterator[Predictions]:
    """The answers in a file, while it is open.

    A line is `{"trajectory_id", "step_index", "response"}`, or a result of an OpenAI batch whose
    `custom_id` is `<trajectory_id>/<step_index>`. A request that failed and was sent again counts
    by its answer.

    Args:
        path: the file.
        known: the trajectories that are asked about.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file, AnswerPlaces() as places:

        def fetch(place: int) -> str | None:
            file.seek(place)
            return parse_line(file.readline(_LONGEST_LINE)).text

        found = Predictions(fetch, places, known)
        for place, line in _lines(file):
            if line is None:
                found.unusable[_TOO_LONG] += 1
            elif not line.strip():
                continue
            found.lines += 1
            if line is None:
                continue
            try:
                found.add(place, parse_line(line))
            except UnusableAnswer as error:
                found.unusable[str(error)] += 1
        yield found


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield the offset and bytes of every line; None for one that is too long to hold."""
    while True:
        place = file.tell()
        line = file.readline(_LONGEST_LINE)
        if not line:
            return
        if len(line) < _LONGEST_LINE or line.endswith(b"\n"):
            yield place, line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(_LONGEST_LINE)
        yield place, None


@contextmanager
def rows_as_predictions(
    rows: Iterable[tuple[Any, Any, Any]], known: Collection[str]
) -> Iterator[Predictions]:
    """The answers in rows of trajectory id, step index and response, as a table has them."""
    texts: list[str] = []
    with AnswerPlaces() as places:
        found = Predictions(texts.__getitem__, places, known)
        for trajectory, step, text in rows:
            found.lines += 1
            try:
                found.add(len(texts), AnswerLine(_key(trajectory, step), _text(text)))
            except UnusableAnswer as error:
                found.unusable[str(error)] += 1
            else:
                texts.append(text)
        yield found


def parse_line(line: bytes) -> AnswerLine:
    """The key and text of one line of either form.

    Raises:
        UnusableAnswer: it is not JSON, or lacks its key or text.
    """
    try:
        value = parse_json(line, "predictions", any_depth=False)
    except JsonFileError as error:
        reason = "not UTF-8" if "UTF-8" in error.message else "not JSON"
        raise UnusableAnswer(reason) from None
    if not isinstance(value, dict):
        raise UnusableAnswer("not an object")
    if "custom_id" in value:
        return AnswerLine(_custom_key(value["custom_id"]), _batch_text(value))
    if "trajectory_id" not in value or "step_index" not in value:
        raise UnusableAnswer("no key")
    return AnswerLine(
        _key(value["trajectory_id"], value["step_index"]), _text(value.get("response"))
    )


def _key(trajectory: Any, step: Any) -> StepKey:
    if isinstance(step, float) and step.is_integer():
        step = int(step)
    if not isinstance(trajectory, str) or not is_int(step):
        raise UnusableAnswer("a key of the wrong type")
    return trajectory, step


def _custom_key(value: Any) -> StepKey:
    if not isinstance(value, str):
        raise UnusableAnswer("a key of the wrong type")
    trajectory, _, step = value.rpartition("/")
    if not trajectory or not step.isascii() or not step.isdigit() or len(step) > 9:
        raise UnusableAnswer("no key")
    return trajectory, int(step)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UnusableAnswer("the response is not text")
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
    except UnusableAnswer:
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        raise UnusableAnswer("the response is not text") from None


def _message_text(message: Mapping[str, Any]) -> str:
    """The content, and calls that the server took out of it, as they were written."""
    content, calls = message.get("content"), message.get("tool_calls") or []
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if part.get("type") == "text")
    texts = [_text(content)] if content is not None or not calls else []
    for call in calls:
        arguments = call["function"]["arguments"]
        arguments = _arguments(arguments) if isinstance(arguments, str) else arguments
        texts.append(_written_call(call["function"]["name"], arguments))
    return "\n".join(texts)


def _arguments(text: str) -> Any:
    """The arguments of a structured call, which servers send as JSON text."""
    try:
        return parse_json(text, "tool call", any_depth=False)
    except JsonFileError:
        raise UnusableAnswer("a tool call is not JSON") from None


def _written_call(name: Any, arguments: Any) -> str:
    value = {"name": name, "arguments": arguments}
    return f"<tool_call>\n{json_bytes(value, compact=True).decode().strip()}\n</tool_call>"
