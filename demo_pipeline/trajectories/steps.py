"""Turns recorded actions into OSWorld-Desktopd steps, on the canvas.

Belongs here: which actions become steps and why the others are hidden, the parameters and targets
of steps, and joining typing again that was parted where the screen stayed the same.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from demo_pipeline.actions.action_tables import (
    AFTER_LONG_REST,
    CONTINUED,
    DOUBTFUL_TEXT,
    POINTER_TYPES,
    Action,
)
from demo_pipeline.actions.scrolls import (
    EVIDENCE,
    OVERRIDE,
    UNCLEAR_UNIT,
    WheelVote,
    filmed_notches,
    is_sign_doubtful,
    scroll_direction,
    sign_disagrees,
)
from demo_pipeline.actions.text_evidence import TextEvidence
from demo_pipeline.desktopd.models import (
    PARAMETERS,
    ActionType,
    Parameters,
    StepAction,
    TargetElement,
)
from demo_pipeline.observation.clock.canvas import Canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.evidence import Evidence, Hover
from demo_pipeline.observation.frames.frame_choice import Reason
from demo_pipeline.observation.frames.video_reader import Span
from demo_pipeline.trajectories.provenance import HiddenAction, HiddenActions, HiddenReason
from demo_pipeline.trajectories.step_sentences import hover_sentence, step_sentence

UNKNOWN_TEXT = "<typed text that is not known>"  # stands for a text in doubt
_Row = Mapping[str, Any]
_Recorded = tuple[Action, _Row, _Row]


def joined_typing(rows: Iterable[_Recorded]) -> Iterator[_Recorded]:
    """Each action with its rows of the frames and trees tables; typing that went on is one."""
    last: _Recorded | None = None
    for row in rows:
        if last is not None and row[1].get("reason_code") == CONTINUED:
            last = (_typed_on(last[0], row[0]), *last[1:])
            continue
        if last is not None:
            yield last
        last = row
    if last is not None:
        yield last


def _typed_on(first: Action, more: Action) -> Action:
    """Two parts of one typing as one action."""
    return replace(
        first,
        text=(first.text or "") + (more.text or ""),
        events=sorted([*first.events, *more.events]),
        end_ms=max(first.end_ms, more.end_ms),
        last_event=max(first.last_event, more.last_event),
        text_evidence=_evidence_of_both(first, more),
        text_scan_event=more.text_scan_event or first.text_scan_event,
        flags=sorted({*first.flags, *more.flags} - {CONTINUED, AFTER_LONG_REST}),
    )


def _evidence_of_both(first: Action, more: Action) -> str | None:
    """The text evidence of two parts: confirmed only if both are."""
    evidence = {first.text_evidence, more.text_evidence}
    if TextEvidence.CONTRADICTED in evidence:
        return TextEvidence.CONTRADICTED
    return first.text_evidence if len(evidence) == 1 else TextEvidence.UNSEEN


def with_unknown_texts(actions: Iterable[_Recorded]) -> Iterator[_Recorded]:
    """The same, with `UNKNOWN_TEXT` for each typed text that is in doubt."""
    for action, frame, tree in actions:
        if action.action_type == "type" and DOUBTFUL_TEXT in action.flags:
            yield replace(action, text=UNKNOWN_TEXT), frame, tree
        else:
            yield action, frame, tree


_NEITHER = ("thinking_pause", Reason.RECORDER.value)
_KEYBOARD = frozenset({"type", "hotkey"})
_PRIVATE = HiddenReason.PRIVATE
_LOG = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class HoveredPlace:
    """Where the pointer rested: a pixel of the canvas, and epoch milliseconds."""

    x: int
    y: int
    since_ms: int


@dataclass(frozen=True)
class Step:
    """An action that became a step, with its rows of the frames and trees tables.

    `wheel_disagrees`: whether the video shows the opposite of the sign that the rule gives for a
    scroll; None for other actions, and when the video does not show it. `hovered`: where the
    pointer rested and opened what was pressed, in order; empty: nothing opened so.
    """

    action: Action
    written: StepAction
    frame: _Row
    tree: _Row
    wheel_disagrees: bool | None = None
    hovered: tuple[HoveredPlace, ...] = ()


@dataclass(frozen=True)
class Steps:
    """The steps of a demonstration and the actions that are not steps.

    Attributes:
        steps: in time order.
        hidden: the actions that no screenshot shows.
        neither: pauses to think (`thinking_pause`) and what the person did to the recorder itself
            (`build_actions`), counted.
        doubtful_scrolls: how many scrolls have no certain direction; they are hidden.
    """

    steps: tuple[Step, ...]
    hidden: HiddenActions
    neither: Mapping[str, int]
    doubtful_scrolls: int = 0

    @property
    def left_out(self) -> dict[str, int]:
        """How many actions are not steps, by reason; every reason is named."""
        counts = dict.fromkeys(HiddenReason, 0) | self.hidden.by_reason()
        named = {str(reason): count for reason, count in counts.items()}
        return {name: self.neither.get(name, 0) for name in _NEITHER} | named


def build_steps(
    actions: Sequence[Action],
    frames: Sequence[_Row],
    trees: Sequence[_Row],
    evidence: Evidence,
    filmed: Span,
) -> Steps:
    """Number the steps; what no screenshot can show is hidden.

    Pauses to think, and what the person did to the recorder itself, are neither steps nor hidden.

    Args:
        actions: of the demonstration, in time order.
        frames: the row of frames.parquet of each action.
        trees: the row of trees.parquet of each action.
        evidence: what the video shows about the recording.
        filmed: presentation times of the video's first and last frame, seconds.
    """
    screen = evidence.screen()
    base = evidence.canvas
    waits = {wait.action_index: wait.seconds for wait in evidence.waits}
    hovers = {hover.action_index: hover for hover in evidence.hovers}
    steps: list[Step] = []
    hidden: list[HiddenAction] = []
    neither = Counter[str]()
    focus = _RecordedFocus()
    rows = joined_typing(zip(actions, frames, trees, strict=True))
    for recorded, frame, tree in with_unknown_texts(rows):
        action = _pressed_by_space(_as_filmed(recorded, evidence.wheel), tree)
        if action.action_type == "pause" and not (action.action_index in waits and frame["file"]):
            neither["thinking_pause"] += 1
            continue
        if action.action_index in evidence.recorder_control:
            neither[Reason.RECORDER.value] += 1
            continue
        if action.action_index in evidence.private_actions:
            private = (len(steps), action.action_index, ActionType.HOTKEY, action.press_ms)
            if not hidden or (hidden[-1].before_step, hidden[-1].reason) != (len(steps), _PRIVATE):
                hidden.append(HiddenAction(*private, _PRIVATE))
            _LOG.debug("action %d is hidden: %s", recorded.action_index, _PRIVATE)
            continue
        canvas = screen.canvas_of(action) or base
        if frame.get("reason_code") == Reason.UNKNOWN_SCALE:
            reason: HiddenReason | None = HiddenReason.UNKNOWN_SCALE
        else:
            is_elsewhere = action.action_index in evidence.elsewhere
            reason = _unseen_place(action, canvas, is_elsewhere=is_elsewhere)
            reason = reason or focus.unseen(action, tree, canvas)
        if action.action_type == "scroll" and (
            not action.amount or _is_direction_doubtful(recorded, evidence.wheel)
        ):
            reason = HiddenReason.UNCLEAR_SCROLL
        focus.follow(action, reason, evidence.elsewhere)
        if reason is None and not frame["file"]:
            reason = _unseen_time(evidence.clock, action.press_ms, filmed)
        if reason is not None:
            row = (len(steps), action.action_index, action.action_type, action.press_ms)
            hidden.append(HiddenAction(*row, reason))
            _LOG.debug("action %d is hidden: %s", recorded.action_index, reason)
            continue
        disagrees = sign_disagrees(recorded.wheel_sum, recorded.direction, evidence.wheel)
        written = _step_action(len(steps), action, tree, canvas, waits)
        hovered = _hovered_places(hovers.get(action.action_index), canvas)
        if hovered:
            said = _hover_sentence(written, hovered, tree)
            written = written.model_copy(update={"reasoning": said})
        steps.append(Step(action, written, frame, tree, disagrees, hovered))
    written_steps = tuple(_with_awaited(steps, evidence))
    doubtful_scrolls = sum(_is_direction_doubtful(action, evidence.wheel) for action in actions)
    return Steps(written_steps, HiddenActions(tuple(hidden)), neither, doubtful_scrolls)


def _step_action(
    index: int,
    action: Action,
    tree: _Row,
    canvas: Canvas,
    waits: Mapping[int, float],
) -> StepAction:
    kind, values = _parameters(action, canvas, waits)
    parameters = PARAMETERS[kind].model_validate(values)
    target = _target(tree)
    return StepAction(
        step_index=index,
        action_type=kind,
        parameters=parameters,
        target_element=target,
        reasoning=_sentence(kind, parameters, tree, target),
    )


def _sentence(
    kind: ActionType, parameters: Parameters, tree: _Row, target: TargetElement | None
) -> str:
    """What was done, by the words that name the target and the window."""
    return step_sentence(kind, parameters, target, _box(tree), tree.get("window_title") or "")


def _hovered_places(hover: Hover | None, canvas: Canvas) -> tuple[HoveredPlace, ...]:
    """The places of a hover that are on the canvas; empty when one is not."""
    if hover is None or not all(canvas.on_screen(place.x, place.y) for place in hover.places):
        return ()
    return tuple(
        HoveredPlace(*canvas.pixel_of(place.x, place.y), int(place.since_ms))
        for place in hover.places
    )


def _hover_sentence(written: StepAction, places: Sequence[HoveredPlace], tree: _Row) -> str:
    """What was done, with what the pointer had to rest on before."""
    element = None
    if tree.get("hover_id"):
        element = TargetElement(
            id=tree["hover_id"], role=tree["hover_role"], name=tree["hover_name"]
        )
    return hover_sentence(
        written.reasoning,
        written.action_type,
        written.parameters,
        [(place.x, place.y) for place in places],
        element,
    )


def _with_awaited(steps: Sequence[Step], evidence: Evidence) -> Iterator[Step]:
    """The steps; waits for what the next step acted on name it."""
    waits = {wait.action_index for wait in evidence.waits if wait.acted_on}
    for step, after in pairwise([*steps, None]):
        if step is None:
            continue
        if after is not None and step.action.action_index in waits:
            target = after.written.target_element
            tree = after.tree
            said = _sentence(ActionType.WAIT, step.written.parameters, tree, target)
            yield replace(step, written=step.written.model_copy(update={"reasoning": said}))
        else:
            yield step


def _as_filmed(action: Action, vote: WheelVote) -> Action:
    """A scroll with the direction that the video shows; any other action as it is.

    One whose unit only the video can tell has the amount that the video shows, else none.
    """
    if action.action_type != "scroll":
        return action
    if UNCLEAR_UNIT in action.flags:
        direction, unit = vote.unclear.get(action.action_index, (action.direction, None))
        amount = filmed_notches(action.wheel_sum or 0.0, unit)
        if action.wheel_method == OVERRIDE:
            return replace(action, amount=amount)
        return replace(action, direction=direction, amount=amount, wheel_method=EVIDENCE)
    direction = scroll_direction(
        action.action_index, action.wheel_sum, action.direction, action.wheel_method, vote
    )
    if direction is None:
        return action
    return replace(action, direction=direction, wheel_method=EVIDENCE)


def _is_direction_doubtful(recorded: Action, vote: WheelVote) -> bool:
    """Whether a single scroll of the video contradicts the rule that gives this one's direction."""
    if recorded.action_type != "scroll" or UNCLEAR_UNIT in recorded.flags:
        return False
    if recorded.wheel_method == OVERRIDE or recorded.action_index in vote.sideways:
        return False
    return is_sign_doubtful(recorded.wheel_sum, recorded.direction, vote)


_PRESSED_BY_SPACE = frozenset({"button", "checkbox", "radiobutton", "tab", "menuitem", "link"})


def _pressed_by_space(action: Action, tree: _Row) -> Action:
    """A space that pressed the element with the focus, as a key; any other action as it is."""
    presses = len(action.text or "")
    if action.text != " " * presses or not presses or tree["target_role"] not in _PRESSED_BY_SPACE:
        return action
    return replace(action, action_type="hotkey", text=None, keys=["space"], presses=presses)


def _unseen_place(action: Action, canvas: Canvas, *, is_elsewhere: bool) -> HiddenReason | None:
    """Why a pointing action is no whole action on the canvas; None when it is.

    `is_elsewhere`: it is at the border, and may have been done on another display.
    """
    if action.action_type not in POINTER_TYPES:
        return None
    if "never_released" in action.flags:
        return HiddenReason.NEVER_RELEASED
    ends = [(action.x, action.y)]
    if action.action_type == "drag":
        ends.append((action.end_x, action.end_y))
    for x, y in ends:
        if x is None or y is None:
            return HiddenReason.NO_POSITION
        if not canvas.on_screen(x, y):
            return HiddenReason.OFF_SCREEN
    return HiddenReason.NO_POSITION if is_elsewhere else None


def _unseen_time(clock: Clock, press_ms: int, filmed: Span) -> HiddenReason:
    """Why the video has no frame before an action that began at `press_ms`."""
    if not clock.is_known(press_ms):
        return HiddenReason.UNKNOWN_TIME
    press_s = clock.video_time(press_ms)
    if press_s <= filmed.start:
        return HiddenReason.BEFORE_VIDEO
    return HiddenReason.AFTER_VIDEO if press_s > filmed.end else HiddenReason.UNDECODABLE


class _RecordedFocus:
    """Whether keys go to the recorded screen.

    A press on another display, or that may have been there, takes the keyboard focus there. What is
    typed then goes where no screenshot shows it, until the person presses a button on the recorded
    screen, or a scan made since has the focus on an element of that screen.
    """

    def __init__(self) -> None:
        self._elsewhere = False

    def unseen(self, action: Action, tree: _Row, canvas: Canvas) -> HiddenReason | None:
        """`off_screen` for keys that may have gone to another display."""
        if action.action_type not in _KEYBOARD or not self._elsewhere:
            return None
        self._elsewhere = not _has_focus(tree, canvas)
        return HiddenReason.OFF_SCREEN if self._elsewhere else None

    def follow(
        self, action: Action, reason: HiddenReason | None, elsewhere: Collection[int]
    ) -> None:
        """Note a press, which takes the focus to where it was; a scroll does not.

        `elsewhere`: indexes of the actions that may have been done on another display.
        """
        if action.action_type in POINTER_TYPES - {"scroll"}:
            may_be = reason is HiddenReason.NO_POSITION and action.action_index in elsewhere
            self._elsewhere = reason is HiddenReason.OFF_SCREEN or may_be


def _has_focus(tree: _Row, canvas: Canvas) -> bool:
    """Whether a scan from after the press has the focus on the recorded screen."""
    if tree["target_method"] != "focused" or tree["target_id"] is None:
        return False
    return bool(
        tree["target_x"] < canvas.width - canvas.pad_x
        and tree["target_y"] < canvas.height - canvas.pad_y
        and tree["target_x"] + tree["target_width"] > canvas.pad_x
        and tree["target_y"] + tree["target_height"] > canvas.pad_y
    )


def _target(tree: _Row) -> TargetElement | None:
    if tree["target_id"] is None:
        return None
    return TargetElement(id=tree["target_id"], role=tree["target_role"], name=tree["target_name"])


def _box(tree: _Row) -> tuple[int, int, int, int] | None:
    box = [tree.get(f"target_{side}") for side in ("x", "y", "width", "height")]
    left, top, width, height = (side or 0 for side in box)
    return None if None in box else (left, top, width, height)


def _parameters(
    action: Action, canvas: Canvas, waits: Mapping[int, float]
) -> tuple[ActionType, dict[str, Any]]:
    match action.action_type:
        case "type":
            return ActionType.TYPE, {"text": action.text}
        case "hotkey":
            presses = {"presses": action.presses} if (action.presses or 1) > 1 else {}
            return ActionType.HOTKEY, {"keys": list(action.keys), **presses}
        case "pause":
            return ActionType.WAIT, {"seconds": waits[action.action_index]}
    modifiers = {"modifiers": list(action.modifiers)} if action.modifiers else {}
    return ActionType(action.action_type), {**_pointer_parameters(action, canvas), **modifiers}


def _pointer_parameters(action: Action, canvas: Canvas) -> dict[str, Any]:
    x, y = canvas.pixel_of(action.x or 0.0, action.y or 0.0)
    match action.action_type:
        case "click":
            clicks = {"clicks": 3} if action.clicks == 3 else {}
            return {"x": x, "y": y, "button": action.button, **clicks}
        case "drag":
            end_x, end_y = canvas.pixel_of(action.end_x or 0.0, action.end_y or 0.0)
            path = {"start_x": x, "start_y": y, "end_x": end_x, "end_y": end_y}
            button = {"button": action.button} if action.button != "left" else {}
            return path | button | ({"clicks": action.clicks} if action.clicks else {})
        case "scroll":
            return {"x": x, "y": y, "direction": action.direction, "amount": action.amount}
        case _:
            return {"x": x, "y": y}
