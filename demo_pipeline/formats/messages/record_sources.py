"""Records of a messages export against their trajectory, and against the Parquet files.

Belongs here: the step that a record shows, its instruction, and its numbered history. The files of
the trajectory are read when they are there.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.common.json_files import JsonFileError, load_json
from demo_pipeline.formats.cudag.tool_calls import escape_markers
from demo_pipeline.formats.desktopd.sample_sources import SampleFault, encodable, step_of
from demo_pipeline.formats.messages.models import (
    ImagePart,
    MessagesRecord,
    TextPart,
    UserMessage,
)

_HISTORY = "\n\nPrevious actions:\n"
_FINAL = re.compile(r"(?:.*/)?trajectories/([^/]+)/final_screenshot\.png")
_NUMBER = re.compile(r"([0-9]+)\. ", re.ASCII)
_PLAIN = ("id", "trajectory_id", "step_index", "application", "task_type")


class RecordSources:
    """The instructions of the trajectories below a folder; only the last one is kept.

    Args:
        root: the folder that the records' paths are relative to.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._last: tuple[str, str | None] = ("", None)

    def instruction(self, trajectory: str) -> str | None:
        """The instruction as prompts show it; None when task.json is not there."""
        if self._last[0] != trajectory:
            task = self._document(trajectory, "task.json")
            text = task.get("instruction")
            shown = escape_markers(encodable(text))[0] if isinstance(text, str) else None
            self._last = (trajectory, shown)
        return self._last[1]

    def target(self, trajectory: str, step: int) -> str | None:
        """The name of the element that a step acts on, in one line; None when it is not known."""
        action = self._document(trajectory, f"steps/{step:03d}/action.json")
        target = action.get("target_element")
        name = target.get("name") if isinstance(target, dict) else None
        return escape_markers(" ".join(name.split()))[0] if isinstance(name, str) else None

    def _document(self, trajectory: str, name: str) -> Mapping[str, Any]:
        if "/" in trajectory or trajectory in ("", ".", ".."):
            return {}
        try:
            value = load_json(self._root / "trajectories" / trajectory / name)
        except (JsonFileError, ValueError):  # absent, or reported by its own validation
            return {}
        return value if isinstance(value, dict) else {}


def record_faults(record: MessagesRecord, sources: RecordSources) -> Iterator[SampleFault]:
    """Yield how a record differs from its trajectory, and a gap in its history."""
    yield from _image_faults(record)
    text = "".join(part.text for part in _asked(record) if isinstance(part, TextPart))
    asked, _, history = text.partition(_HISTORY)
    if history:
        lines = history.removesuffix("\n").split("\n")  # typed text may hold other line ends
        yield from _history_faults(lines, record.step_index)
    wanted = sources.instruction(record.trajectory_id)
    if wanted is None or asked == wanted or _names_target(asked, bool(history), record, sources):
        return
    message = "messages: the instruction differs from that of the trajectory"
    yield "instruction_differs", message, "copy the instruction of task.json"


def _asked(record: MessagesRecord) -> Sequence[ImagePart | TextPart]:
    """The parts of the last question."""
    users = [message for message in record.messages if isinstance(message, UserMessage)]
    return users[-1].content if users else ()


def _image_faults(record: MessagesRecord) -> Iterator[SampleFault]:
    """Yield a fault when the last image is not the screenshot of the record's step."""
    images = [part.image for part in _asked(record) if isinstance(part, ImagePart)]
    if not images:
        return
    path = images[-1]
    where, final = step_of(path), _FINAL.fullmatch(path)
    trajectory = where[0] if where else final[1] if final else record.trajectory_id
    if trajectory != record.trajectory_id:
        message = "images: the last one is of another trajectory"
        yield "wrong_step", message, "name the screenshot of the record's step"
    elif where is not None and where[1] != record.step_index:
        message = f"images: the last one is of step {where[1]}, expected step {record.step_index}"
        yield "wrong_step", message, "name the screenshot of the record's step"
    elif final and record.task_type != "terminate":
        message = "images: the last one is the final screenshot, which no action follows"
        yield "wrong_step", message, "name the screenshot of the record's step"


def _history_faults(lines: list[str], step: int) -> Iterator[SampleFault]:
    """Previous actions are numbered from 1; each earlier step and each hidden action is one."""
    numbers = [found and int(found[1]) for found in map(_NUMBER.match, lines)]
    if numbers != list(range(1, len(lines) + 1)) or len(lines) < step:
        message = f"messages: the previous actions are not all of those before step {step}"
        yield "history_gap", message, "number every earlier action from 1, without a gap"


def _names_target(
    asked: str, has_history: bool, record: MessagesRecord, sources: RecordSources
) -> bool:
    """Whether a record asks for its target by name instead of giving the instruction."""
    name = sources.target(record.trajectory_id, record.step_index)
    return not has_history and bool(name) and str(name) in asked


def differing_columns(line: Any, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns of a Parquet row that differ from its line.

    Of the messages their texts are compared: a table may hold them in another form.
    """
    if not isinstance(line, dict):
        return
    yield from (name for name in _PLAIN if row.get(name) != line.get(name))
    if list(_texts(line.get("messages"))) != list(_texts(row.get("messages"))):
        yield "messages"
    if list(_images(line.get("messages"))) != list(map(_path, row.get("images") or ())):
        yield "images"


def _images(value: Any) -> Iterator[Any]:
    """The paths that the parts of messages name, in order."""
    messages = value if isinstance(value, list) else []
    contents = (message.get("content") for message in messages if isinstance(message, dict))
    for content in contents:
        parts = content if isinstance(content, list) else []
        yield from (part["image"] for part in parts if isinstance(part, dict) and "image" in part)


def _path(image: Any) -> Any:
    """The path of a table's picture, which may be there itself."""
    return image.get("path") if isinstance(image, dict) else image


def _texts(value: Any) -> Iterator[str]:
    """The roles and texts of messages, in order; kinds of parts and absent keys do not count."""
    if isinstance(value, dict):
        for key in sorted(value):
            if key not in {"type", "image"}:
                yield from _texts(value[key])
    elif isinstance(value, list):
        for child in value:
            yield from _texts(child)
    elif isinstance(value, str):
        yield value
