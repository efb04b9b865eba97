"""Makes the CUDAG records of a trajectory: a record per step, and one that ends the task.

A record consists of a screenshot, a prompt with the earlier actions, an answer, and metadata.
Prompts also list steps without a record. Steps outside the recorded screen are listed without a
coordinate. Steps that tool calls cannot fully express, such as drags with the right button, are
listed with a note. Actions that no screenshot shows are described in words.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from demo_pipeline.desktopd.models import (
    ActionType,
    DragParameters,
    HotkeyParameters,
    ScrollParameters,
    StepAction,
    points,
)
from demo_pipeline.desktopd.trajectory_reader import StepFiles, Trajectory
from demo_pipeline.exports.answers import MOST_CALLS, AnsweredAction
from demo_pipeline.exports.cudag.models import (
    DRAG,
    IMAGE_TOKEN,
    CudagMetadata,
    Pair,
    TestedPlace,
    cudag_id,
    target_tolerance,
    tested_place,
    to_ru,
)
from demo_pipeline.exports.form import Excluded, Source, json_text
from demo_pipeline.exports.grounding_elements import names_one_element
from demo_pipeline.exports.prompts import (
    grounding_prompt,
    hidden_words,
    history_line,
    human_prompt,
    system_prompt,
    units_per_notch,
)
from demo_pipeline.exports.step_facts import (
    CANVAS,
    STEP_EXCLUSIONS,
    STEP_SETTINGS,
    hovered_places,
    is_last_end_filmed,
    is_off_screen,
    readable_size,
    step_exclusion,
)
from demo_pipeline.exports.token_estimates import chat_tokens, resized
from demo_pipeline.exports.tool_calls import (
    ToolCall,
    WheelUnits,
    render_tool_calls,
    write_calls,
)
from demo_pipeline.files.shown_text import escape_markers
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.pointer_leaks import LEAK_EXCLUSIONS
from demo_pipeline.trajectories.provenance import INCOMPLETE, ProvenanceRow

# Reason for leaving out a step whose key is pressed more than `MOST_CALLS` times: its answer would
# need a call for each press.
HELD_KEY = "held_key"
DRAFT_EXCLUSIONS = (  # reasons why `record_drafts` leaves out a record
    *(*STEP_EXCLUSIONS[:2], INCOMPLETE, *LEAK_EXCLUSIONS),
    *("no_tool_call", "not_grounded", "hidden_end", HELD_KEY),
)
DRAFT_SETTINGS = (  # settings that `record_drafts` reads
    *(*STEP_SETTINGS, "prompt_style"),
    *("cudag_scroll_unit", "max_pixels"),
    *("tolerance_min", "tolerance_max", "default_tolerance", "scroll_tolerance", "drag_tolerance"),
)


def wheel_units(settings: DatasetSettings) -> WheelUnits:
    """Returns the unit of the argument `pixels` of scroll calls."""
    return WheelUnits(units_per_notch(settings))


def tool_calls(
    action: StepAction,
    size: Pair,
    settings: DatasetSettings,
    seen: Pair | None = None,
    hovered: tuple[Pair, ...] = (),
) -> tuple[ToolCall, ...]:
    """Returns the calls of a step's action.

    Args:
        action: the action; its points are pixels of the screenshot.
        size: width and height of the screenshot, pixels.
        settings: define the meaning of `pixels` in scrolls.
        seen: see `write_calls`.
        hovered: positions where the pointer hovers before the action, pixels of the screenshot.
    """
    answer = AnsweredAction(action.action_type, action.parameters, hovered)
    return write_calls(answer, size, wheel_units(settings), seen)


def _described(
    action: StepAction,
    row: ProvenanceRow,
    size: Pair,
    settings: DatasetSettings,
    seen: Pair | None,
) -> tuple[tuple[ToolCall, ...], str]:
    """Returns the calls and the note that describe an action in the prompts of later records.

    The note adds facts that the calls cannot express; it may be empty.
    """
    if is_off_screen(action, row, size):
        call = tool_calls(action, size, settings, seen)[0]
        arguments = dict(call.arguments)
        arguments.pop("coordinate", None)
        return (ToolCall(call.action, arguments),), " outside the recorded screen"
    calls = tool_calls(action, size, settings, seen, hovered_places(row))
    parameters = action.parameters.members()
    note = ""
    if modifiers := parameters.get("modifiers"):
        note = f" while holding {' + '.join(modifiers)}"
    button = parameters.get("button")
    if isinstance(action.parameters, DragParameters) and button in ("right", "middle"):
        note += f" with the {button} button"
    if isinstance(action.parameters, DragParameters) and action.parameters.clicks:
        note += f" after {action.parameters.clicks - 1} clicks there"
    return calls, note


class RecordDraft(NamedTuple):
    """A record before its split is known.

    Attributes:
        id: id of the record, and stem of its image.
        screenshot: the PNG in the trajectory.
        prompt: text of the human turn, with control markers (special tokens) escaped.
        markers: number of control markers escaped in the prompt, not counting the instruction's.
        calls: the correct answer.
        metadata: the metadata of the record.
        tested: position and tolerance of the record's test; None means those in `metadata`.
        hovered: positions where the pointer hovers before the action, pixels of the screenshot.
    """

    id: str
    screenshot: Path
    prompt: str
    markers: int
    calls: tuple[ToolCall, ...]
    metadata: CudagMetadata
    tested: TestedPlace | None = None
    hovered: tuple[Pair, ...] = ()

    def line(self, suffix: str = ".png", folder: str = "") -> str:
        """Returns the record as a JSON line of a split.

        Args:
            suffix: file extension of the record's image.
            folder: the folder that contains the folder `images`: empty, or `test/`.
        """
        record = {
            "id": self.id,
            "image": f"{folder}images/{self.id}{suffix}",
            "conversations": [
                {"from": "human", "value": f"{IMAGE_TOKEN}\n{self.prompt}"},
                {"from": "gpt", "value": render_tool_calls(self.calls)[0]},
            ],
            "metadata": self.metadata._asdict(),
        }
        return json.dumps(record, ensure_ascii=False)

    def tests(self) -> dict[str, str]:
        """Returns the record's test as JSON: `test` for test.json and `test_row` for test.jsonl.

        The result is empty for actions without a position.

        A test expects the last call of the record, and `real_coords` is the call's position. For a
        drag, `real_coords` is the end and `start_coords` the start. `person_coords` is the position
        of the person's action, even if the test expects the centre of the target. `target_bbox` is
        [0, 0, 0, 0] unless the test accepts any point of the target.
        """
        if not self.metadata.has_coordinate:
            return {}
        metadata = self.metadata
        start = (0, 0)
        if metadata.task_type == DRAG:
            start = metadata.real_coords
            metadata = metadata._replace(real_coords=metadata.end_coords, end_coords=(0, 0))
        person = metadata.real_coords
        call = self.calls[-1].as_dict()
        if self.tested:
            point, tolerance = self.tested
            metadata = metadata._replace(real_coords=point, tolerance=tolerance)
            call["arguments"]["coordinate"] = to_ru(*point, metadata.image_size)
        else:
            metadata = metadata._replace(target_bbox=(0, 0, 0, 0))
        entry: dict[str, Any] = {
            "test_id": self.id,
            "screenshot": f"images/{self.id}.png",
            "prompt": self.prompt,
            "expected_action": call,
            "tolerance": metadata.tolerance,
            "metadata": {**metadata._asdict(), "start_coords": start, "person_coords": person},
        }
        texts = {name: json_text(entry[name]) for name in ("expected_action", "metadata")}
        return {"test": json_text(entry), "test_row": json_text({**entry, **texts})}


def record_drafts(source: Source, *, absolute: bool = False) -> Iterator[RecordDraft | Excluded]:
    """Yields a record for each step, then the record that ends the task on the final screenshot.

    A step without a record is yielded as `Excluded` with a reason in `DRAFT_EXCLUSIONS`. The last
    record is also left out if a hidden action follows the last step, or if the video ends before
    the last action ends.

    Args:
        absolute: whether coordinates are pixels of the screenshot as the model resizes it (see
            `resized`) instead of RU.
    """
    trajectory = source.trajectory
    settings = source.settings
    history: list[str] = []
    for step in trajectory.steps:
        for action in source.candidate.hidden.before(step.index):
            history.append(f"{len(history) + 1}. {hidden_words(action)}")
        row = source.rows[step.index]
        image_size = readable_size(step.screenshot)
        size = image_size or CANVAS
        seen = resized(size, settings.max_pixels) if absolute else None
        calls, note = _described(step.action, row, size, settings, seen)
        reason = step_exclusion(step, row, settings, image_size)
        if not reason and note:
            reason = "no_tool_call"
        if not reason and settings.prompt_style == "grounding" and not names_one_element(step):
            reason = "not_grounded"
        if not reason and step.index in source.candidate.incomplete:
            reason = INCOMPLETE
        if not reason and len(calls) > MOST_CALLS:
            reason = HELD_KEY
        if reason:
            yield Excluded(reason)
        else:
            metadata = _metadata(source, step, calls, size)
            name = f"{cudag_id(trajectory.id)}_{step.index:03d}"
            prompt = _prompt(trajectory, step.action, history, settings)
            tested = tested_place(step.action, row, size)
            yield _counted(
                RecordDraft(
                    *(name, step.screenshot, *prompt, calls, metadata, tested),
                    hovered=hovered_places(row),
                ),
                settings,
            )
        history.append(history_line(len(history) + 1, calls, note))
    yield _end_draft(source, history)


def _end_draft(source: Source, history: Sequence[str]) -> RecordDraft | Excluded:
    """Returns the record that ends the task; its step index is the last step's index plus 1."""
    trajectory = source.trajectory
    settings = source.settings
    screenshot = trajectory.final_screenshot
    success = trajectory.result.success
    last = -1
    if trajectory.steps:
        last = trajectory.steps[-1].index
    hides_actions = source.candidate.hidden.follow(last)
    shows_end = not hides_actions and is_last_end_filmed(trajectory.steps, source.rows)
    if shows_end and last + 1 in source.candidate.incomplete:
        return Excluded(INCOMPLETE)
    size = readable_size(screenshot)
    if settings.prompt_style == "grounding":
        return Excluded("not_grounded")
    if not shows_end:
        return Excluded("hidden_end")
    if size is None:
        return Excluded("missing_frame")
    if success:
        status = "success"
        reasoning = "The task is done."
    else:
        status = "failure"
        reasoning = "The task was not done."
    metadata = CudagMetadata(
        task_type="terminate",
        image_size=size,
        trajectory_id=trajectory.id,
        step_index=last + 1,
        application=trajectory.task.application,
        reasoning=reasoning,
    )
    call = ToolCall("terminate", {"status": status})
    name = f"{cudag_id(trajectory.id)}_{metadata.step_index:03d}"
    prompt = _prompt(trajectory, None, history, settings)
    return _counted(RecordDraft(name, screenshot, *prompt, (call,), metadata), settings)


def _counted(draft: RecordDraft, settings: DatasetSettings) -> RecordDraft:
    """Returns the record with its estimated number of tokens."""
    turns = (system_prompt(settings), draft.prompt, render_tool_calls(draft.calls)[0])
    tokens = chat_tokens(turns, [draft.metadata.image_size], settings.max_pixels)
    return draft._replace(metadata=draft.metadata._replace(tokens=tokens))


def _prompt(
    trajectory: Trajectory,
    action: StepAction | None,
    history: Sequence[str],
    settings: DatasetSettings,
) -> tuple[str, int]:
    """Returns the prompt of a record, and the number of control markers escaped in it.

    Markers in the instruction are not counted; see `CudagForm.count_trajectory`.

    Args:
        trajectory: the trajectory, which has the instruction.
        action: the action of the step; None for the record that ends the task.
        history: a line for each earlier action.
        settings: define the style of the prompt.
    """
    if settings.prompt_style == "grounding" and action is not None:
        return escape_markers(grounding_prompt(action))
    actions: Sequence[str] = ()
    if settings.prompt_style == "history":
        actions = history
    return human_prompt(trajectory.task.instruction, actions, settings.history_actions), 0


def _metadata(
    source: Source, step: StepFiles, calls: Sequence[ToolCall], size: Pair
) -> CudagMetadata:
    """Returns the metadata of a step's record, without the number of tokens."""
    action = step.action
    task_type: str = action.action_type.value
    if action.action_type is ActionType.CLICK:
        task_type = calls[-1].action  # such as `left_click` or `triple_click`
    tolerance, box = target_tolerance(action, source.rows[step.index], size, source.settings)
    metadata = CudagMetadata(
        task_type=task_type.replace("_", "-"),
        image_size=size,
        trajectory_id=source.trajectory.id,
        step_index=step.index,
        application=source.trajectory.task.application,
        reasoning=action.reasoning,
        target_bbox=box,
    )
    match points(action):
        case [place]:
            metadata = metadata._replace(
                has_coordinate=True, real_coords=place, tolerance=tolerance
            )
        case [start, end]:
            metadata = metadata._replace(
                has_coordinate=True, real_coords=start, end_coords=end, tolerance=tolerance
            )
    match action.parameters:
        case ScrollParameters(direction=direction, amount=amount):
            metadata = metadata._replace(scroll_direction=direction, scroll_amount=amount)
        case HotkeyParameters(presses=int(presses)):
            metadata = metadata._replace(presses=presses)
    return metadata
