"""Exports transitions: the screenshot before a step, its action, and the screenshot after it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from demo_pipeline.desktopd.models import WaitParameters
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.exports.answers import action_text
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
    """An action, and the screenshots before and after it.

    Between the two screenshots there is no other action except waits.
    """

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    trajectory_id: str
    step_index: int = Field(ge=0, description="0-based index of the action's step")
    application: str
    instruction: str = Field(description="task of the whole demonstration")
    action_type: str = Field(description="type of the action in OSWorld-Desktopd")
    action: str = Field(
        description="type and parameters of the action as JSON; points are in pixels"
    )
    reasoning: str = Field(
        description="text about the action; in recordings, a sentence from a template"
    )
    waited_seconds: float = Field(
        ge=0, description="total duration of the waits between the action and `after`, seconds"
    )
    before: str = Field(
        description="path of the screenshot before the action, relative to the folder of the export"
    )
    after: str = Field(
        description="path of the screenshot before the next action, or of the final screenshot"
    )
    after_is_final: bool = Field(description="whether `after` is the final screenshot")


def _faults(row: TransitionRow, files: NamedFiles) -> Iterator[Fault]:
    """Yields the faults of the two screenshots of a row."""
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


_ROUNDING_MS = 1.0  # tolerance for comparing times, because event times are whole milliseconds


def _rows(source: Source) -> Iterator[Row | Excluded]:
    """Yields a transition for each step whose effect is visible in a screenshot.

    Waits after an action belong to its transition, because the screenshot before a wait may be too
    early to show the action's effect.
    """
    steps = source.trajectory.steps
    for number, step in enumerate(steps):
        waits, next_step = _waits_and_next(steps[number + 1 :])
        after = source.trajectory.final_screenshot
        if next_step is not None:
            after = next_step.screenshot
        reason = _exclusion(source, step, len(waits), next_step)
        if reason:
            yield Excluded(reason)
        elif not after.is_file():
            yield Excluded("missing_frame")
        else:
            yield _row(source, step, waits, after)


def _exclusion(source: Source, step: StepFiles, waits: int, next_step: StepFiles | None) -> str:
    """Returns why a step is left out; empty if the step can have a transition.

    Args:
        waits: number of waits directly after the step.
        next_step: the first step after the waits; None if the trajectory ends there.
    """
    if isinstance(step.action.parameters, WaitParameters):
        return "wait"
    size = None
    if step.screenshot.is_file():
        size = CANVAS
    if reason := step_exclusion(step, source.rows[step.index], source.settings, size):
        return reason
    if step.index in source.candidate.incomplete:
        return INCOMPLETE
    return _effect_exclusion(source, step, waits, next_step)


def _waits_and_next(steps: Sequence[StepFiles]) -> tuple[list[float], StepFiles | None]:
    """Returns the duration of each wait at the start of `steps`, and the first step after them.

    Durations are in seconds. The step is None if only waits follow.
    """
    seconds: list[float] = []
    for step in steps:
        if not isinstance(step.action.parameters, WaitParameters):
            return seconds, step
        seconds.append(step.action.parameters.seconds)
    return seconds, None


def _effect_exclusion(
    source: Source, step: StepFiles, waits: int, next_step: StepFiles | None
) -> str:
    """Returns why no screenshot shows the effect of a step; empty if the next screenshot does.

    For the arguments, see `_exclusion`.
    """
    hidden = source.candidate.hidden
    row = source.rows[step.index]
    next_index = step.index + waits + 1
    if any(hidden.before(index) for index in range(step.index + 1, next_index + 1)):
        return "hidden_after"
    if next_step is None:
        # If the video ends before the action ends, the final screenshot does not show the effect.
        return "" if row["end_filmed"] else "early_after"
    if next_step.index != next_index:
        return "missing_frame"
    next_row = source.rows[next_step.index]
    if next_row["reason_code"] == IMPORTED:
        return ""  # an imported screenshot shows the effect of the preceding step
    if next_row["pts"] is None or next_row["lead_ms"] is None:
        return "missing_frame"
    frame_ms = next_row["press_ms"] - next_row["lead_ms"]
    is_after_end = frame_ms >= row["end_ms"] - _ROUNDING_MS
    is_later_frame = next_row["pts"] > row["pts"]  # two steps may have the same frame
    if not is_after_end or not is_later_frame:
        return "early_after"
    return ""


def _row(source: Source, step: StepFiles, waits: Sequence[float], after: Path) -> Row:
    """Returns the transition of a step.

    Args:
        waits: duration of each wait directly after the step, seconds.
        after: the screenshot after the waits.
    """
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
    description="Rows with the screenshot before a step, its action, and the screenshot after "
    "it. No row spans an action that no screenshot shows.",
    code_version="14",
    kinds=frozenset({"parquet"}),
    settings=STEP_SETTINGS,
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
