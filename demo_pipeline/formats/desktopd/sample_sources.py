"""Samples against the trajectory that they were made of.

Belongs here: the step that a sample shows, its instruction, and its history. The files of the
trajectory are read when they are there; otherwise the samples of a trajectory must agree with each
other.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo_pipeline.common.json_files import JsonFileError, load_json
from demo_pipeline.formats.desktopd.models import SftSample

_STEP_FILE = re.compile(r"(?:.*/)?trajectories/([^/]+)/steps/([0-9]+)/[^/]+", re.ASCII)
_MOST_NAMED = 8  # step numbers in a message

SampleFault = tuple[str, str, str]
"""Code, message and remedy."""


@dataclass(slots=True)
class SourceTrajectory:
    """What is known of a trajectory: from its files, else from the samples read so far.

    Attributes:
        instruction: of task.json; None: not known.
        actions: step index → action, as written text.
    """

    instruction: str | None = None
    actions: dict[int, str] = field(default_factory=dict)


class SampleSources:
    """The trajectories below a dataset. Only the last one is kept: samples lie together.

    Args:
        root: the dataset that paths are relative to; None: no file is read.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._last: tuple[str, SourceTrajectory] = ("", SourceTrajectory())

    def trajectory(self, name: str) -> SourceTrajectory:
        """What is known of the trajectory of this id."""
        if self._last[0] != name:
            self._last = (name, self._read(name))
        return self._last[1]

    def _read(self, name: str) -> SourceTrajectory:
        source = SourceTrajectory()
        if self._root is None:
            return source
        folder = self._root / "trajectories" / name
        task = _document(folder / "task.json")
        if isinstance(task, dict) and isinstance(task.get("instruction"), str):
            source.instruction = encodable(task["instruction"])
        for path in sorted(folder.glob("steps/[0-9]*/action.json")):
            action = _document(path)
            if isinstance(action, dict) and path.parent.name.isdecimal():
                source.actions[int(path.parent.name)] = _written(action)
        return source


def _document(path: Path) -> Any:
    try:
        return load_json(path)
    except JsonFileError:  # absent, or reported by the validation of trajectories
        return None


def encodable(text: str) -> str:
    """The text as exports write it: lone surrogates become `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _written(action: Any) -> str:
    """An action as text, the same for 500 and 500.0, and for null and an absent key."""
    return encodable(json.dumps(_plain(action), ensure_ascii=False, sort_keys=True))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_plain(child) for child in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def step_of(path: str) -> tuple[str, int] | None:
    """Trajectory and step of a file in a step folder; None for any other path."""
    found = _STEP_FILE.fullmatch(path)
    return (found[1], int(found[2])) if found else None


def sample_faults(sample: SftSample, sources: SampleSources) -> Iterator[SampleFault]:
    """Yield how a sample differs from its trajectory, and a gap in its history."""
    index = sample.output.action.step_index
    yield from _history_faults(sample.input.history, index)
    references = {"screenshot": sample.input.screenshot, "ui_tree": sample.input.ui_tree}
    known = {key: step_of(path) for key, path in references.items() if isinstance(path, str)}
    for key, where in known.items():
        if where is not None and where[1] != index:
            message = f"input.{key}: is of step {where[1]}, but the action is of step {index}"
            yield "wrong_step", message, f"name the {key} of the action's step"
    names = {where[0] for where in known.values() if where is not None}
    if len(names) > 1:
        message = "input: screenshot and ui_tree are of two trajectories"
        yield "wrong_step", message, "name the files of one step"
    elif names:
        yield from _trajectory_faults(sample, sources.trajectory(names.pop()))


def _history_faults(history: Sequence[dict[str, Any]], index: int) -> Iterator[SampleFault]:
    steps = [action.get("step_index") for action in history]
    absent = [step for step in range(index) if step not in steps]
    if absent:
        named = ", ".join(map(str, absent[:_MOST_NAMED]))
        more = f" and {len(absent) - _MOST_NAMED} more" if len(absent) > _MOST_NAMED else ""
        message = f"input.history: lacks the steps {named}{more} before step {index}"
        yield "history_gap", message, "list every step before this one"


def _trajectory_faults(sample: SftSample, source: SourceTrajectory) -> Iterator[SampleFault]:
    instruction = encodable(sample.input.instruction)
    if source.instruction is None:
        source.instruction = instruction
    elif source.instruction != instruction:
        message = "input.instruction: differs from that of the trajectory"
        yield "instruction_differs", message, "copy the instruction of task.json"
    action = sample.output.action
    taken = [(action.step_index, "output.action", action.model_dump(mode="json"))]
    for number, earlier in enumerate(sample.input.history):
        if isinstance(step := earlier.get("step_index"), int):
            taken.append((step, f"input.history[{number}]", earlier))
    for step, where, value in taken:
        written = _written(value)
        if source.actions.setdefault(step, written) != written:
            message = f"{where}: differs from the action of step {step} of the trajectory"
            yield "action_differs", message, "copy action.json of the step"
