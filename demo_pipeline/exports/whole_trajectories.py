"""Selects the steps that exports of whole trajectories contain, and counts the left-out steps.

The longest stretch of consecutive steps is exported. A stretch ends at an action without a
screenshot, at an action that the format cannot express exactly, at a step without a usable
screenshot, and at a step that was marked as bad. If the stretch is only a part of the trajectory,
its record lists the earlier actions, and neither ends the task nor says that the task was done.

The points of a trajectory with native screenshots (see native_pictures.py) are in pixels of these
screenshots.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_pipeline.datasets.selection import BAD_STEP
from demo_pipeline.desktopd.models import Pixel, StepAction
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.exports.answers import (
    CLICKS_OF_BUTTON,
    HELD_KEYS,
    UNKNOWN_KEY,
    ActionEncoder,
    AnsweredAction,
    InexpressibleError,
)
from demo_pipeline.exports.export_summary import FinishedRows
from demo_pipeline.exports.form import Excluded, Row, Source
from demo_pipeline.exports.native_pictures import with_native_screenshots
from demo_pipeline.exports.prompts import done_words, hidden_words, points_in, with_points_replaced
from demo_pipeline.exports.step_facts import (
    STEP_EXCLUSIONS,
    STEP_SETTINGS,
    hovered_places,
    is_last_end_filmed,
    readable_size,
    step_exclusion,
)
from demo_pipeline.files.shown_text import escape_markers, replace_surrogates
from demo_pipeline.trajectories.provenance import INCOMPLETE

# Reasons to leave out steps; `_MEANINGS` explains each.
OUTSIDE = "outside_stretch"
TOO_SHORT = "too_short"
UNKNOWN_SYSTEM = "unknown_system"
NO_STEPS = "no_steps"
STRETCH_EXCLUSIONS = (*STEP_EXCLUSIONS, OUTSIDE, TOO_SHORT)
STRETCH_SETTINGS = STEP_SETTINGS
# Explanations of the reasons, which `losses_file` writes to `metadata.json`.
_MEANINGS = {
    "off_screen": "the action points outside the screenshot",
    "missing_frame": "the screenshot of the step is missing or unreadable",
    BAD_STEP: "a reviewer marked the step as bad",
    INCOMPLETE: "more than 30 % of the actions before the step are hidden: no screenshot "
    "shows them",
    "avoidable_leak": "the screenshot already shows the pointer at the target",
    "unavoidable_leak": "the screenshot already shows the pointer at the target, because the "
    "pointer was there when the previous action ended",
    "doubtful_text": "the typed text is uncertain: keys are unknown or ambiguous, or a UI tree "
    "contradicts the text",
    "unproven_clock": "the error of the clock may be so large that the screenshot shows another "
    "state of the screen",
    OUTSIDE: "the step is not in the longest stretch of steps that can be exported",
    TOO_SHORT: "no stretch of the trajectory has at least three steps",
    "split_leak": "a trajectory in another split begins with the same screenshot and task; "
    "trajectories are counted instead of steps",
    NO_STEPS: "no step of the trajectory can be exported; trajectories are counted instead of "
    "steps",
    UNKNOWN_SYSTEM: "the export format has no name for the computer's operating system",
    UNKNOWN_KEY: "the export format has no name for a key",
    HELD_KEYS: "the action holds a key or presses it more than 50 times, which the export format "
    "cannot express",
    CLICKS_OF_BUTTON: "the export format cannot express this drag, or this number of clicks, with "
    "this button",
}


@dataclass(frozen=True, slots=True)
class EncodedStep:
    """A step with its action in the format of an export.

    Attributes:
        size: width and height of its screenshot, pixels.
        encoded: the action as the export's `ActionEncoder` writes it.
    """

    files: StepFiles
    size: Pixel
    encoded: Any


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive steps of a trajectory that are exported as one record.

    Attributes:
        steps: the steps. No action between the first and the last one is left out.
        before: a sentence for each action before the first step.
        final: the screenshot after the last step. It is None if the trajectory continues after the
            stretch, if the video ends before the last action ends, or if the file is missing or
            unreadable.
        part: `first_step`, `last_step` and `total_steps`; None if the stretch contains all actions
            of the trajectory.
    """

    steps: tuple[EncodedStep, ...]
    before: tuple[str, ...]
    final: Path | None
    part: Mapping[str, int] | None

    @property
    def whole(self) -> bool:
        """Whether the stretch contains all actions of the trajectory, and has the final screenshot.

        Only then may the record contain the outcome of the task.
        """
        return self.final is not None and self.part is None

    def prompt(self, instruction: str) -> str:
        """Returns the instruction, with markers escaped, and a list of the earlier actions."""
        text = escape_markers(instruction)[0]
        if not self.before:
            return text
        earlier = [f"{number}. {words}" for number, words in enumerate(self.before, start=1)]
        return "\n".join([text, "", "Previous actions:", *earlier])


Rows = Iterator[Row | Excluded]


def stretch_rows(
    encode: ActionEncoder, make: Callable[[Stretch, Source], Rows]
) -> Callable[[Source], Rows]:
    """Returns a function for `Form.rows` that exports the longest stretch of a trajectory.

    The function yields the row of the stretch, and an `Excluded` for each step outside the stretch.
    Of equally long stretches, the earliest is exported. A stretch with fewer than
    `settings.min_steps` steps is exported only if it is the whole trajectory.

    Args:
        make: yields the row of a stretch.
    """

    def rows(recorded: Source) -> Rows:
        source = with_native_screenshots(recorded)
        candidate = source.candidate
        steps = source.trajectory.steps
        stretches: list[list[EncodedStep]] = [[]]
        for step in steps:
            if candidate.hidden.before(step.index):
                stretches.append([])
            step_or_reason: EncodedStep | str = BAD_STEP
            if step.index not in candidate.bad_steps:
                step_or_reason = encoded_step(source, step, encode)
            if isinstance(step_or_reason, str):
                yield Excluded(step_or_reason)
                stretches.append([])
            else:
                stretches[-1].append(step_or_reason)
        longest = max(stretches, key=len)
        total = sum(map(len, stretches))
        is_whole = len(longest) == len(steps) and not len(candidate.hidden)
        if not longest or (len(longest) < source.settings.min_steps and not is_whole):
            yield from [Excluded(TOO_SHORT)] * total
            return
        yield from [Excluded(OUTSIDE)] * (total - len(longest))
        first = longest[0].files.index
        last = longest[-1].files.index
        part = None
        if not is_whole:
            part = {"first_step": first, "last_step": last, "total_steps": len(steps)}
        before = tuple(_before(source, first))
        yield from make(Stretch(tuple(longest), before, _final(source, last), part), source)

    return rows


def encoded_step(source: Source, step: StepFiles, encode: ActionEncoder) -> EncodedStep | str:
    """Returns a step with its encoded action, or the reason why the step is left out."""
    size = readable_size(step.screenshot)
    reason = step_exclusion(step, source.rows[step.index], source.settings, size)
    if reason or size is None:
        return reason
    try:
        hovered = hovered_places(source.rows[step.index])
        action = AnsweredAction(step.action.action_type, step.action.parameters, hovered)
        return EncodedStep(step, size, encode(action, size))
    except InexpressibleError as error:
        return error.reason


def _before(source: Source, first: int) -> Iterator[str]:
    """Yields a sentence for each action before step `first`, even if no screenshot shows it."""
    for step in source.trajectory.steps:
        if step.index > first:
            return
        yield from map(hidden_words, source.candidate.hidden.before(step.index))
        if step.index < first:
            words = with_points_replaced(step.action.reasoning, {}, "a place")
            yield replace_surrogates(words) or done_words(step.action.action_type)


def _final(source: Source, last: int) -> Path | None:
    """Returns the screenshot after the step with index `last`, or None (see `Stretch.final`)."""
    steps = source.trajectory.steps
    final = source.trajectory.final_screenshot
    is_last = last == steps[-1].index and not source.candidate.hidden.follow(last)
    if not is_last or not is_last_end_filmed(steps, source.rows) or not readable_size(final):
        return None
    return final


def sentence(action: StepAction, point_text: Callable[[Pixel], str] = str) -> str:
    """Returns the description of an action on one line, with markers escaped.

    Args:
        point_text: converts a point in pixels to the notation of the export format.
    """
    points = {str(point): point_text(point) for point in points_in(action.reasoning)}
    return replace_surrogates(with_points_replaced(action.reasoning, points))


def counted_steps(steps: Sequence[EncodedStep], source: Source) -> dict[str, int]:
    """Counts the steps of a row, and how many of their targets were opened by hovering."""
    hovered = [step for step in steps if hovered_places(source.rows[step.files.index])]
    return {"steps": len(steps), "opened_by_hover": len(hovered)}


def counted_details(finished: FinishedRows) -> Mapping[str, Any]:
    """Returns the sums of `counted_steps` over the dataset, for `Form.details`."""
    return {name: finished.counts.get(name, 0) for name in ("steps", "opened_by_hover")}


def losses_file(finished: FinishedRows) -> Mapping[str, Any]:
    """Returns the content of `metadata.json`, for `Form.side_files`.

    The file contains the summary of the export, and the number of left-out steps for each reason,
    even if the number is 0.
    """
    left_out = {
        reason: {"count": count, "meaning": _MEANINGS[reason]}
        for reason, count in finished.summary.excluded_records.items()
    }
    contents = dict(finished.summary.as_dict())
    contents.pop("problems", None)
    return {"metadata.json": {**contents, "excluded_steps": left_out}}
