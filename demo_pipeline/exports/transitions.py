"""Exports transitions: the screenshot before a step, its action, and the screenshot after it.

Belongs here: the model of a row of `<split>.parquet`, from which its JSON Schema is made, which
steps have a picture of what they did, and the rows.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from demo_pipeline.desktopd.models import WaitParameters
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.exports.answers import (
    action_text,
)
from demo_pipeline.exports.cudag.models import cudag_id
from demo_pipeline.exports.form import Excluded, File, Form, Row, Source, Table, of_row
from demo_pipeline.exports.hub_layout import HubTable
from demo_pipeline.exports.record_checks import (
    Fault,
    NamedFiles,
    RecordFormat,
    row_schema,
    schema_file,
)
from demo_pipeline.exports.step_facts import (
    CANVAS,
    STEP_EXCLUSIONS,
    STEP_SETTINGS,
    step_exclusion,
)
from demo_pipeline.files.base_model import Document
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.trajectories.pointer_leaks import LEAK_EXCLUSIONS
from demo_pipeline.trajectories.provenance import IMPORTED, INCOMPLETE

TRANSITIONS_SCHEMA_FILE = "transitions.schema.json"


class TransitionRow(Document):
    """What an action did to the screen. Nothing that no screenshot shows happened in between."""

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    trajectory_id: str
    step_index: int = Field(ge=0, description="0-based, of the action")
    application: str
    instruction: str = Field(description="of the whole demonstration")
    action_type: str = Field(description="OSWorld-Desktopd action type")
    action: str = Field(description="JSON: action_type and parameters; points are pixels")
    reasoning: str = Field(description="a sentence about the action, by a template")
    waited_seconds: float = Field(ge=0, description="waits after the action, before `after`")
    before: str = Field(description="screenshot before the action: a path below the folder")
    after: str = Field(description="screenshot before the next input, or the last one")
    after_is_final: bool = Field(description="no input follows")


def _faults(row: TransitionRow, files: NamedFiles) -> Iterator[Fault]:
    before = files.picture(row.before)
    after = files.picture(row.after)
    if row.before == row.after:
        yield Fault("no_transition", "after: is the same file as before")
    if before != after and not isinstance(before, str) and not isinstance(after, str):
        yield Fault("image_size", "after: has another size than before")
    folder = f"trajectories/{row.trajectory_id}/"
    if not (row.before.startswith(folder) and row.after.startswith(folder)):
        yield Fault("wrong_step", "a picture is of another trajectory")


TRANSITIONS_FORMAT = RecordFormat(
    TransitionRow, lambda row: (("before", row.before), ("after", row.after)), _faults
)


_ROUNDING_MS = 1.0  # times of frames are fractions of a millisecond, times of input are not


def _rows(source: Source) -> Iterator[Row | Excluded]:
    """Yield a transition per step whose effect is in a picture.

    A wait is not a transition of its own: its screenshot is from before its action's effect, and it
    belongs to the action. No transition spans a hidden action (`hidden_after`), and none ends with
    a picture from before the end of its action (`early_after`).
    """
    steps = source.trajectory.steps
    for number, step in enumerate(steps):
        waits, after = _until_next(steps[number + 1 :])
        size = CANVAS if step.screenshot.is_file() else None
        picture = source.trajectory.final_screenshot if after is None else after.screenshot
        reason = (
            "wait"
            if isinstance(step.action.parameters, WaitParameters)
            else step_exclusion(step, source.rows[step.index], source.settings, size)
            or (INCOMPLETE if step.index in source.candidate.incomplete else "")
            or _spanned(source, step, len(waits), after)
            or ("" if picture.is_file() else "missing_frame")
        )
        yield Excluded(reason) if reason else _row(source, step, waits, picture)


def _until_next(steps: Sequence[StepFiles]) -> tuple[list[float], StepFiles | None]:
    """The seconds of each wait before the next input, and its step; None: no input follows."""
    seconds: list[float] = []
    for step in steps:
        if not isinstance(step.action.parameters, WaitParameters):
            return seconds, step
        seconds.append(step.action.parameters.seconds)
    return seconds, None


def _spanned(source: Source, step: StepFiles, waits: int, after: StepFiles | None) -> str:
    """Why the next picture does not show what a step did; empty when it does."""
    rows = source.rows
    hidden = source.candidate.hidden
    next_index = step.index + waits + 1
    if any(hidden.before(index) for index in range(step.index + 1, next_index + 1)):
        return "hidden_after"
    if after is None:  # the final picture is the last frame if the video ends before the action
        return "" if rows[step.index]["end_filmed"] else "early_after"
    row = rows[step.index]
    shown = rows[after.index]
    if after.index == next_index and shown["reason_code"] == IMPORTED:
        return ""  # a step's screenshot is what the step before it led to
    if after.index != next_index or shown["pts"] is None or shown["lead_ms"] is None:
        return "missing_frame"
    ended = shown["press_ms"] - shown["lead_ms"] >= row["end_ms"] - _ROUNDING_MS
    later = shown["pts"] > row["pts"]  # a fallback frame can serve two steps
    return "" if ended and later else "early_after"


def _row(source: Source, step: StepFiles, waits: Sequence[float], after: Path) -> Row:
    action = step.action
    text = action_text(action.action_type, action.parameters)
    files = {source.name(path): path for path in (step.screenshot, after)}
    before_name, after_name = files
    row: dict[str, Any] = {
        "id": f"{cudag_id(source.trajectory.id)}_{step.index:03d}",
        "trajectory_id": source.id,
        "step_index": step.index,
        "application": source.application,
        "instruction": source.instruction,
        "action_type": action.action_type.value,
        "action": text,
        "reasoning": replace_surrogates(action.reasoning),
        "waited_seconds": round(sum(waits), 3),
        "before": before_name,
        "after": after_name,
        "after_is_final": after == source.trajectory.final_screenshot,
    }
    return Row(row["id"], text, step.screenshot, {"row": row}, files)


FORM = Form(
    name="transitions",
    asset="transitions_dataset",
    folder="transitions",
    description="The screenshot before a step, its action, and the screenshot after it. No "
    "transition spans an action that no screenshot shows.",
    code_version="13",
    kinds=frozenset({"parquet"}),
    settings=("max_hidden_share", *STEP_SETTINGS),
    exclusions=(
        *(*STEP_EXCLUSIONS[:2], INCOMPLETE, *LEAK_EXCLUSIONS),
        *("wait", "hidden_after", "early_after"),
    ),
    rows=_rows,
    files=(
        File(
            "row",
            "{split}.parquet",
            lambda _: Table(row_schema(TransitionRow)),
            checked=TRANSITIONS_FORMAT,
            config="default",
        ),
    ),
    check="transitions_schema",
    kind_of=of_row("row", "action_type"),
    marks=(TRANSITIONS_SCHEMA_FILE,),
    side_files=schema_file(TRANSITIONS_SCHEMA_FILE, TransitionRow),
    hub=(
        HubTable(
            "transitions",
            "the screenshot before an action, the action as JSON, and the screenshot after it",
            pictures=("before", "after"),
        ),
    ),
)
