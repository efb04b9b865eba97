"""Makes CUDAG records of the steps of a trajectory.

Belongs here: the screenshot, prompt and answer of a record, and what calls cannot say of an action:
held modifiers, a drag with another button, a place outside the screen. Steps that give no record
stay in the history of later records, because they happened: off-screen steps without a coordinate,
steps that the tool cannot express with a note. Hidden actions are named there in words. Records are
read a few lines at a time: DuckDB would keep each JSON file as a whole in memory.
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

HELD_KEY = "held_key"  # it would be more than `MOST_CALLS` calls, a press each
DRAFT_EXCLUSIONS = (
    *(*STEP_EXCLUSIONS[:2], INCOMPLETE, *LEAK_EXCLUSIONS),
    *("no_tool_call", "not_grounded", "hidden_end", HELD_KEY),
)
DRAFT_SETTINGS = (
    *(*STEP_SETTINGS, "prompt_style"),
    *("cudag_scroll_sign", "cudag_scroll_unit", "max_pixels"),
    *("tolerance_min", "tolerance_max", "default_tolerance", "scroll_tolerance", "drag_tolerance"),
)


def wheel_units(settings: DatasetSettings) -> WheelUnits:
    """What `pixels` mean in the records that these settings give."""
    return WheelUnits(settings.cudag_scroll_sign, units_per_notch(settings))


def tool_calls(
    action: StepAction,
    size: Pair,
    settings: DatasetSettings,
    seen: Pair | None = None,
    hovered: tuple[Pair, ...] = (),
) -> tuple[ToolCall, ...]:
    """The calls of a step's action after those of where the pointer rests; see `write_calls`."""
    answer = AnsweredAction(action.action_type, action.parameters, hovered)
    return write_calls(answer, size, wheel_units(settings), seen)


def _described(
    action: StepAction,
    row: ProvenanceRow,
    size: Pair,
    settings: DatasetSettings,
    seen: Pair | None,
) -> tuple[tuple[ToolCall, ...], str]:
    """The calls of an action as the history of later records shows them, and what they leave out.

    That is a note; empty when the calls say it all.
    """
    if is_off_screen(action, row, size):
        call = tool_calls(action, size, settings, seen)[0]
        rest = {name: given for name, given in call.arguments.items() if name != "coordinate"}
        return (ToolCall(call.action, rest),), " outside the recorded screen"
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
        id: id of the record, and the stem of its image.
        screenshot: the PNG in the trajectory.
        prompt: what is asked, with markers escaped.
        markers: how many markers were escaped in the prompt, beside those of the instruction.
        calls: the right answer.
        metadata: the record's metadata.
        tested: what its test accepts; None: the place in `metadata`.
        hovered: where the pointer rests before, pixels of the screenshot.
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
        """The record as a line of a split.

        Args:
            suffix: the file extension of its image.
            folder: of the folder `images`: empty, or `test/`.
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
        """The record as a test: `test` is an entry of `test.json`, `test_row` one of `test.jsonl`.

        Empty for an action without a place, such as typing: a test of CUDAG compares a place, and
        with the tolerance [0, 0] it would compare nothing.

        A test expects the last call of the record, and its `real_coords` are the place of that
        call: of a drag the end, whose start is `start_coords`. `person_coords` is where the person
        pointed, also when the test expects the centre of the target. `target_bbox` is there if each
        point of the target passes: in a text field the place matters, not the field.
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
    """Yield a record per step, then the `terminate` record on the final screenshot.

    `absolute`: coordinates are pixels of the screenshot as a model sees it, see `resized`.

    A step that gives no record is yielded as `Excluded`, for a reason of `DRAFT_EXCLUSIONS`. There
    is no `terminate` record when a hidden action follows the last step or the video ends before its
    action does: the person had not ended.
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
    """The `terminate` record, whose step index follows that of the last step."""
    trajectory = source.trajectory
    settings = source.settings
    screenshot = trajectory.final_screenshot
    success = trajectory.result.success
    last = -1
    if trajectory.steps:
        last = trajectory.steps[-1].index
    hides = source.candidate.hidden.follow(last)
    ended = not hides and is_last_end_filmed(trajectory.steps, source.rows)
    if ended and last + 1 in source.candidate.incomplete:
        return Excluded(INCOMPLETE)
    size = readable_size(screenshot)
    if settings.prompt_style == "grounding":
        return Excluded("not_grounded")
    if not ended:
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
    """A record with the estimate of its tokens."""
    turns = (system_prompt(settings), draft.prompt, render_tool_calls(draft.calls)[0])
    tokens = chat_tokens(turns, [draft.metadata.image_size], settings.max_pixels)
    return draft._replace(metadata=draft.metadata._replace(tokens=tokens))


def _prompt(
    trajectory: Trajectory,
    action: StepAction | None,
    history: Sequence[str],
    settings: DatasetSettings,
) -> tuple[str, int]:
    """The prompt, and how many markers were escaped in it beside those of the instruction."""
    if settings.prompt_style == "grounding" and action is not None:
        return escape_markers(grounding_prompt(action))
    actions: Sequence[str] = ()
    if settings.prompt_style == "history":
        actions = history
    return human_prompt(trajectory.task.instruction, actions, settings.history_actions), 0


def _metadata(
    made_of: Source, step: StepFiles, calls: Sequence[ToolCall], size: Pair
) -> CudagMetadata:
    """The metadata of a step."""
    action = step.action
    task_type: str = action.action_type.value
    if action.action_type is ActionType.CLICK:
        task_type = calls[-1].action  # the button, or a triple click
    tolerance, box = target_tolerance(action, made_of.rows[step.index], size, made_of.settings)
    metadata = CudagMetadata(
        task_type=task_type.replace("_", "-"),
        image_size=size,
        trajectory_id=made_of.trajectory.id,
        step_index=step.index,
        application=made_of.trajectory.task.application,
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
