"""What exports of whole trajectories share: the stretch that they show, and what is left out of it.

Belongs here: where a trajectory is cut. A stretch ends where an action is hidden, where a step
gives no record, and where the form cannot say an action; the longest stretch is exported.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.image_header import png_size
from demo_pipeline.common.json_files import dump_json
from demo_pipeline.datasets.cudag_actions import is_last_end_filmed, is_off_screen
from demo_pipeline.datasets.export_loop import ExportPlan, ExportSummary, plan_export
from demo_pipeline.datasets.foreign_actions import (
    CLICKS_OF_BUTTON,
    HELD_KEYS,
    UNKNOWN_KEY,
    ActionEncoder,
    InexpressibleError,
)
from demo_pipeline.datasets.hidden_actions import INCOMPLETE
from demo_pipeline.datasets.pointer_leaks import LEAK_EXCLUSIONS, leak_exclusion
from demo_pipeline.datasets.prompts import hidden_words
from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.datasets.selection import Candidate, DatasetTrajectory
from demo_pipeline.datasets.split_files import replace_surrogates
from demo_pipeline.formats.answers import AnsweredAction
from demo_pipeline.formats.cudag.tool_calls import escape_markers
from demo_pipeline.formats.desktopd.reader import StepFiles, Trajectory
from demo_pipeline.formats.desktopd.step_actions import StepAction, points
from demo_pipeline.formats.desktopd.vocabulary import CANVAS_HEIGHT, CANVAS_WIDTH
from demo_pipeline.formats.pixels import Pixel

LOSSES_FILE = "metadata.json"
OUTSIDE, TOO_SHORT = "outside_stretch", "too_short"
UNKNOWN_SYSTEM, NO_STEPS = "unknown_system", "no_steps"
STRETCH_EXCLUSIONS = ("off_screen", "missing_frame", *LEAK_EXCLUSIONS, OUTSIDE, TOO_SHORT)
STRETCH_COLUMNS = ("end_filmed", "pts", "leak", "unavoidable", "off_screen", "platform")
_MEANINGS = {
    "off_screen": "the action is outside the screenshot",
    "missing_frame": "the step has no screenshot",
    INCOMPLETE: "more than datasets.max_hidden_share of the actions before the step are hidden",
    "avoidable_leak": "the screenshot already shows the pointer at the target",
    "unavoidable_leak": "the same, but the pointer was there before",
    OUTSIDE: "before or after the longest stretch that can be shown",
    TOO_SHORT: "no stretch of the trajectory has datasets.min_steps steps",
    "split_leak": "another split begins with the same screenshot and task (trajectories)",
    NO_STEPS: "no step of the trajectory can be shown (trajectories)",
    UNKNOWN_SYSTEM: "the form has no name for the computer's system",
    UNKNOWN_KEY: "the form has no name for a key",
    HELD_KEYS: "the form cannot hold a key during another action",
    CLICKS_OF_BUTTON: "the form has no such clicks of this button",
}
_POINT = re.compile(r"\(\d+, \d+\)")
_ENDS = {True: "End the task: it is done.", False: "End the task: it was not done."}


@dataclass(frozen=True, slots=True)
class SaidStep:
    """A step of a stretch: its files, its screenshot's size, and its action in the form."""

    files: StepFiles
    size: Pixel
    said: Any


@dataclass(frozen=True, slots=True)
class Stretch:
    """The steps of a trajectory that an export shows.

    Attributes:
        steps: one after the other, without anything between them.
        before: what was done before the first of them, a sentence an action.
        final: the screenshot after the last one; None: the trajectory goes on, the video ends
            before the last action does, or it is missing.
        left_out: the steps that are not shown, by reason.
    """

    steps: tuple[SaidStep, ...]
    before: tuple[str, ...]
    final: Path | None
    left_out: Counter[str]


def plan_whole_trajectories(
    trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> ExportPlan:
    """The plan of an export of whole trajectories that cuts them itself, by `longest_stretch`."""
    plan = plan_export(trajectories, settings, whole_trajectories=True)
    return replace(plan, whole_trajectories=False)


def longest_stretch(
    candidate: Candidate,
    trajectory: Trajectory,
    rows: Mapping[int, ProvenanceRow],
    settings: DatasetSettings,
    encode: ActionEncoder,
) -> Stretch | Counter[str]:
    """The longest stretch, the earliest of equally long ones; or why there is none.

    A trajectory without a cut is taken however short it is; otherwise a stretch has at least
    `settings.min_steps` steps.

    Args:
        candidate: its hidden actions cut the trajectory.
        trajectory: the whole of it.
        rows: its provenance by step index, with `STRETCH_COLUMNS`.
        settings: which leaks take part, and the shortest stretch.
        encode: writes an action in the form.

    Returns:
        The stretch, or the number of steps that are left out, by reason.
    """
    left_out: Counter[str] = Counter()
    runs: list[list[SaidStep]] = [[]]
    for step in trajectory.steps:
        if candidate.hidden.before(step.index):
            runs.append([])
        said = said_step(step, rows[step.index], settings, encode)
        if isinstance(said, SaidStep):
            runs[-1].append(said)
        else:
            left_out[said] += 1
            runs.append([])
    best = max(runs, key=len)
    whole = len(best) == len(trajectory.steps) and not len(candidate.hidden)
    rest = sum(map(len, runs)) - len(best)
    if not best or (len(best) < settings.min_steps and not whole):
        return left_out + Counter({TOO_SHORT: rest + len(best)})
    return Stretch(
        tuple(best),
        tuple(_before(candidate, trajectory, best[0].files.index)),
        _final(candidate, trajectory, best[-1].files.index, rows),
        left_out + Counter({OUTSIDE: rest}),
    )


def said_step(
    step: StepFiles, row: ProvenanceRow, settings: DatasetSettings, encode: ActionEncoder
) -> SaidStep | str:
    """The step in the form, or why it cannot be shown."""
    size = readable_size(step.screenshot)
    if is_off_screen(step.action, row, size or (CANVAS_WIDTH, CANVAS_HEIGHT)):
        return "off_screen"
    if row["pts"] is None or size is None:
        return "missing_frame"
    if reason := leak_exclusion(row, settings):
        return reason
    try:
        action = AnsweredAction(step.action.action_type, step.action.parameters)
        return SaidStep(step, size, encode(action, size))
    except InexpressibleError as error:
        return error.reason


def readable_size(screenshot: Path) -> Pixel | None:
    """Width and height of a PNG; None: it is missing or not a PNG."""
    try:
        return png_size(screenshot)
    except (OSError, ValueError):
        return None


def _before(candidate: Candidate, trajectory: Trajectory, first: int) -> Iterator[str]:
    """Yield what was done before a step: hidden actions and steps, in words."""
    for step in trajectory.steps:
        if step.index > first:
            return
        yield from map(hidden_words, candidate.hidden.before(step.index))
        if step.index < first:
            yield _POINT.sub("a place", sentence(step.action))


def _final(
    candidate: Candidate, trajectory: Trajectory, last: int, rows: Mapping[int, ProvenanceRow]
) -> Path | None:
    ended = last == trajectory.steps[-1].index and not candidate.hidden.follow(last)
    ended = ended and is_last_end_filmed(trajectory.steps, rows)
    final = trajectory.final_screenshot
    return final if ended and readable_size(final) else None


def sentence(action: StepAction, places: Sequence[str] = ()) -> str:
    """What a step does, in one line without markers.

    Args:
        action: the action.
        places: its points as the form writes them; they replace the pixels.
    """
    named = dict(zip((f"({x}, {y})" for x, y in points(action)), places, strict=False))
    words = _POINT.sub(lambda found: named.get(found.group(), found.group()), action.reasoning)
    return replace_surrogates(escape_markers(" ".join(words.split()))[0])


def end_sentence(*, success: bool) -> str:
    """How the end of a task is said."""
    return _ENDS[success]


def write_losses(out: Path, summary: ExportSummary) -> None:
    """Write `metadata.json`: what the export holds, and what it leaves out, by reason.

    The reasons that the form has are listed even when nothing was left out for them.
    """
    left_out = {
        reason: {"count": count, "meaning": _MEANINGS[reason]}
        for reason, count in summary.excluded_records.items()
    }
    counts = {name: value for name, value in summary.as_dict().items() if name != "problems"}
    dump_json(out / LOSSES_FILE, {**counts, "excluded_steps": left_out})
