"""What exports of whole trajectories share: where a trajectory is cut, and what is left out.

A stretch ends where an action is hidden, where a step gives no record, and where the form cannot
say an action; the longest stretch is exported. A stretch that is only a part of the trajectory says
so, names the actions before it, and neither ends the task nor judges it. An action that a form
cannot say exactly is a loss that the export counts; it is never written as another one.

Where the trajectory has the screen's own pictures, they are shown, and points are pixels of them.
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

OUTSIDE = "outside_stretch"
TOO_SHORT = "too_short"
UNKNOWN_SYSTEM = "unknown_system"
NO_STEPS = "no_steps"
STRETCH_EXCLUSIONS = (*STEP_EXCLUSIONS, OUTSIDE, TOO_SHORT)
STRETCH_SETTINGS = ("min_steps", *STEP_SETTINGS)
_MEANINGS = {
    "off_screen": "the action is outside the screenshot",
    "missing_frame": "the step has no screenshot",
    BAD_STEP: "a reviewer marked the step as bad",
    INCOMPLETE: "more than datasets.max_hidden_share of the actions before the step are hidden",
    "avoidable_leak": "the screenshot already shows the pointer at the target",
    "unavoidable_leak": "the same, but the pointer was there before",
    "doubtful_text": "typed text that is not known: no scan shows it, or one contradicts it",
    "unproven_clock": "the clock may be off by so much that the screenshot shows another state",
    OUTSIDE: "before or after the longest stretch that can be shown",
    TOO_SHORT: "no stretch of the trajectory has datasets.min_steps steps",
    "split_leak": "another split begins with the same screenshot and task (trajectories)",
    NO_STEPS: "no step of the trajectory can be shown (trajectories)",
    UNKNOWN_SYSTEM: "the form has no name for the computer's system",
    UNKNOWN_KEY: "the form has no name for a key",
    HELD_KEYS: "the form cannot hold a key during another action",
    CLICKS_OF_BUTTON: "the form has no such clicks of this button",
}


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
        part: which steps of the trajectory these are, when anything is cut off: `first_step`,
            `last_step` and `total_steps`; None: nothing is.
    """

    steps: tuple[SaidStep, ...]
    before: tuple[str, ...]
    final: Path | None
    part: Mapping[str, int] | None

    @property
    def whole(self) -> bool:
        """Whether it shows all and the end, so that what is said of the whole is said of it."""
        return self.final is not None and self.part is None

    def prompt(self, instruction: str) -> str:
        """The instruction without markers, and after it the actions before the first step."""
        text = escape_markers(instruction)[0]
        if not self.before:
            return text
        earlier = [f"{number}. {words}" for number, words in enumerate(self.before, start=1)]
        return "\n".join([text, "", "Previous actions:", *earlier])


Rows = Iterator[Row | Excluded]


def stretch_rows(
    encode: ActionEncoder, make: Callable[[Stretch, Source], Rows]
) -> Callable[[Source], Rows]:
    """What yields an `Excluded` for each step outside the longest stretch, and what `make` makes.

    Of equally long ones the earliest is taken. A trajectory without a cut is taken however short it
    is; otherwise a stretch has at least `settings.min_steps` steps.

    Args:
        encode: writes an action in the form.
        make: yields the record of a stretch.
    """

    def rows(recorded: Source) -> Rows:
        source = with_native_screenshots(recorded)
        candidate = source.candidate
        steps = source.trajectory.steps
        runs: list[list[SaidStep]] = [[]]
        for step in steps:
            if candidate.hidden.before(step.index):
                runs.append([])
            is_bad = step.index in candidate.bad_steps
            said = BAD_STEP if is_bad else said_step(source, step, encode)
            if isinstance(said, SaidStep):
                runs[-1].append(said)
            else:
                yield Excluded(said)
                runs.append([])
        best = max(runs, key=len)
        total = sum(map(len, runs))
        whole = len(best) == len(steps) and not len(candidate.hidden)
        if not best or (len(best) < source.settings.min_steps and not whole):
            yield from [Excluded(TOO_SHORT)] * total
            return
        yield from [Excluded(OUTSIDE)] * (total - len(best))
        first = best[0].files.index
        last = best[-1].files.index
        before = tuple(_before(source, first))
        final = _final(source, last)
        part = {"first_step": first, "last_step": last, "total_steps": len(steps)}
        yield from make(Stretch(tuple(best), before, final, None if whole else part), source)

    return rows


def said_step(source: Source, step: StepFiles, encode: ActionEncoder) -> SaidStep | str:
    """The step in the form, or why it cannot be shown."""
    size = readable_size(step.screenshot)
    reason = step_exclusion(step, source.rows[step.index], source.settings, size)
    if reason or size is None:
        return reason
    try:
        hovered = hovered_places(source.rows[step.index])
        action = AnsweredAction(step.action.action_type, step.action.parameters, hovered)
        return SaidStep(step, size, encode(action, size))
    except InexpressibleError as error:
        return error.reason


def _before(source: Source, first: int) -> Iterator[str]:
    """Yield what was done before a step: hidden actions and steps, in words."""
    for step in source.trajectory.steps:
        if step.index > first:
            return
        yield from map(hidden_words, source.candidate.hidden.before(step.index))
        if step.index < first:
            words = with_points_replaced(step.action.reasoning, {}, "a place")
            yield replace_surrogates(words) or done_words(step.action.action_type)


def _final(source: Source, last: int) -> Path | None:
    steps = source.trajectory.steps
    final = source.trajectory.final_screenshot
    ended = last == steps[-1].index and not source.candidate.hidden.follow(last)
    ended = ended and is_last_end_filmed(steps, source.rows)
    return final if ended and readable_size(final) else None


def sentence(action: StepAction, written: Callable[[Pixel], str] = str) -> str:
    """What a step does, in one line without markers.

    Args:
        action: the action.
        written: a point as the form writes it.
    """
    named = {str(point): written(point) for point in points_in(action.reasoning)}
    return replace_surrogates(with_points_replaced(action.reasoning, named))


def counted_steps(steps: Sequence[SaidStep], source: Source) -> dict[str, int]:
    """What a dataset counts: the steps of a row, and those that press what hovering opened."""
    rows = (source.rows[step.files.index] for step in steps)
    return {"steps": len(steps), "opened_by_hover": sum(bool(hovered_places(row)) for row in rows)}


def counted_details(finished: FinishedRows) -> Mapping[str, Any]:
    """The counts of `counted_steps`; see `Form.details`."""
    return {name: finished.counts.get(name, 0) for name in ("steps", "opened_by_hover")}


def losses_file(finished: FinishedRows) -> Mapping[str, Any]:
    """`metadata.json`: the rows of the export, and what it leaves out, by reason.

    The reasons that the form has are listed even when nothing was left out for them.
    """
    left_out = {
        reason: {"count": count, "meaning": _MEANINGS[reason]}
        for reason, count in finished.summary.excluded_records.items()
    }
    summary = {k: value for k, value in finished.summary.as_dict().items() if k != "problems"}
    return {"metadata.json": {**summary, "excluded_steps": left_out}}
