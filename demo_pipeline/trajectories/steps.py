"""Turns recorded actions into OSWorld-Desktopd steps, with positions on the canvas.

An action becomes a step, or a *hidden action* if no screenshot can show it. Pauses to think, and
actions on the recorder itself, are ignored. Typing that was split at a pause is joined if the
screen did not change in between.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    is_sign_doubtful,
    scroll_direction,
    sign_disagrees,
    video_notches,
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

UNKNOWN_TEXT = "<typed text that is not known>"  # replaces doubtful text
_Row = Mapping[str, Any]
_Recorded = tuple[Action, _Row, _Row]
"""An action with its rows in the tables of frames and of UI trees."""


def joined_typing(rows: Iterable[_Recorded]) -> Iterator[_Recorded]:
    """Yields the actions with their rows, and joins typing that continued on the same screen."""
    last: _Recorded | None = None
    for row in rows:
        if last is not None and row[1].get("reason_code") == CONTINUED:
            last = (_joined(last[0], row[0]), *last[1:])
            continue
        if last is not None:
            yield last
        last = row
    if last is not None:
        yield last


def _joined(first: Action, second: Action) -> Action:
    """Joins two parts of typing into one action.

    Scans confirm the joined text only if they confirm both parts.
    """
    text_evidence = first.text_evidence
    if TextEvidence.CONTRADICTED in {first.text_evidence, second.text_evidence}:
        text_evidence = TextEvidence.CONTRADICTED
    elif first.text_evidence != second.text_evidence:
        text_evidence = TextEvidence.UNSEEN
    return replace(
        first,
        text=(first.text or "") + (second.text or ""),
        events=sorted([*first.events, *second.events]),
        end_ms=max(first.end_ms, second.end_ms),
        last_event=max(first.last_event, second.last_event),
        text_evidence=text_evidence,
        text_scan_event=second.text_scan_event or first.text_scan_event,
        flags=sorted({*first.flags, *second.flags} - {CONTINUED, AFTER_LONG_REST}),
    )


def with_unknown_texts(actions: Iterable[_Recorded]) -> Iterator[_Recorded]:
    """Replaces each doubtful text by `UNKNOWN_TEXT`."""
    for action, frame, tree in actions:
        if action.action_type == "type" and DOUBTFUL_TEXT in action.flags:
            yield replace(action, text=UNKNOWN_TEXT), frame, tree
        else:
            yield action, frame, tree


_THINKING_PAUSE = "thinking_pause"
_NEITHER = (_THINKING_PAUSE, Reason.RECORDER.value)  # kinds of actions that are ignored
_KEYBOARD = frozenset({"type", "hotkey"})
_LOG = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class HoveredPlace:
    """A position of the resting pointer, and the time at which it came to rest.

    The position is in canvas pixels, the time in epoch milliseconds.
    """

    x: int
    y: int
    since_ms: int


@dataclass(frozen=True)
class Step:
    """An action that became a step.

    Attributes:
        action: the recorded action; scrolls have the direction and amount that the video shows.
        written: the content of action.json.
        frame: the action's row in the table of frames.
        tree: the action's row in the table of UI trees.
        wheel_disagrees: whether a scroll's direction in the video contradicts the direction that
            the wheel's unit and the platform imply. None for other actions, and for scrolls that
            the video does not show.
        hovered: the positions, in order, where the pointer rested and thereby made the pressed
            element appear, such as an item of a submenu. Empty without a hover.
    """

    action: Action
    written: StepAction
    frame: _Row
    tree: _Row
    wheel_disagrees: bool | None = None
    hovered: tuple[HoveredPlace, ...] = ()


@dataclass(frozen=True)
class Steps:
    """The steps of a demonstration, and its other actions.

    Attributes:
        steps: the steps in time order.
        hidden: the actions that no screenshot shows.
        neither: the number of ignored actions of each kind: pauses to think, and actions on the
            recorder.
        doubtful_scrolls: number of hidden scrolls whose direction is uncertain.
    """

    steps: tuple[Step, ...]
    hidden: HiddenActions
    neither: Mapping[str, int]
    doubtful_scrolls: int = 0

    @property
    def left_out(self) -> dict[str, int]:
        """The number of actions that did not become steps, for each reason."""
        counts = {name: self.neither.get(name, 0) for name in _NEITHER}
        hidden = self.hidden.by_reason()
        for reason in HiddenReason:
            counts[reason.value] = hidden.get(reason.value, 0)
        return counts


def build_steps(
    actions: Sequence[Action],
    frames: Sequence[_Row],
    trees: Sequence[_Row],
    evidence: Evidence,
    video_span: Span,
) -> Steps:
    """Turns the actions of a demonstration into steps and hidden actions.

    Args:
        frames: the row of frames.parquet of each action.
        trees: the row of trees.parquet of each action.
        evidence: facts measured in the video.
        video_span: presentation times of the video's first and last frame, seconds.
    """
    builder = _StepsBuilder(evidence, video_span)
    rows = joined_typing(zip(actions, frames, trees, strict=True))
    for action, frame, tree in with_unknown_texts(rows):
        builder.add(action, frame, tree)
    return Steps(
        tuple(_with_awaited(builder.steps, evidence)),
        HiddenActions(tuple(builder.hidden)),
        builder.neither,
        sum(_is_direction_doubtful(action, evidence.wheel) for action in actions),
    )


class _StepsBuilder:
    """Sorts the actions of a demonstration, in order, into steps and hidden actions."""

    def __init__(self, evidence: Evidence, video_span: Span) -> None:
        self._evidence = evidence
        self._video_span = video_span
        self._screen = evidence.screen()
        self._waits = {wait.action_index: wait.seconds for wait in evidence.waits}
        self._hovers = {hover.action_index: hover for hover in evidence.hovers}
        self._focus = _RecordedFocus()
        self.steps: list[Step] = []
        self.hidden: list[HiddenAction] = []
        self.neither: Counter[str] = Counter()

    def add(self, recorded: Action, frame: _Row, tree: _Row) -> None:
        """Adds the next action with its rows in the tables of frames and of UI trees."""
        action = _pressed_by_space(_as_filmed(recorded, self._evidence.wheel), tree)
        is_wait = action.action_index in self._waits and frame["file"]
        if action.action_type == "pause" and not is_wait:
            self.neither[_THINKING_PAUSE] += 1
        elif action.action_index in self._evidence.recorder_control:
            self.neither[Reason.RECORDER.value] += 1
        elif action.action_index in self._evidence.private_actions:
            self._hide_private(action)
        else:
            canvas = self._screen.canvas_of(action) or self._evidence.canvas
            reason = self._hidden_reason(recorded, action, frame, tree, canvas)
            if reason is None:
                self._add_step(recorded, action, frame, tree, canvas)
            else:
                self._hide(action, action.action_type, reason)

    def _hidden_reason(
        self, recorded: Action, action: Action, frame: _Row, tree: _Row, canvas: Canvas
    ) -> HiddenReason | None:
        """Returns why no screenshot can show an action; None if the action can be a step."""
        reason: HiddenReason | None = HiddenReason.UNKNOWN_SCALE
        if frame.get("reason_code") != Reason.UNKNOWN_SCALE:
            is_elsewhere = action.action_index in self._evidence.elsewhere
            reason = _unseen_place(action, canvas, is_elsewhere=is_elsewhere)
            reason = reason or self._focus.unseen(action, tree, canvas)
        if action.action_type == "scroll":
            is_doubtful = _is_direction_doubtful(recorded, self._evidence.wheel)
            if not action.amount or is_doubtful:
                reason = HiddenReason.UNCLEAR_SCROLL
        self._focus.follow(action, reason, self._evidence.elsewhere)
        if reason is None and not frame["file"]:
            reason = _unseen_time(self._evidence.clock, action.press_ms, self._video_span)
        return reason

    def _hide_private(self, action: Action) -> None:
        """Hides an action that was done while the screen was dark or locked.

        Successive private actions share a row, unless a step or another hidden action lies between
        them.
        """
        last = self.hidden[-1] if self.hidden else None
        is_listed = (
            last is not None
            and last.before_step == len(self.steps)
            and last.reason == HiddenReason.PRIVATE
        )
        if is_listed:
            _LOG.debug("action %d is hidden, too: %s", action.action_index, HiddenReason.PRIVATE)
        else:
            self._hide(action, ActionType.HOTKEY, HiddenReason.PRIVATE)

    def _hide(self, action: Action, action_type: str, reason: HiddenReason) -> None:
        self.hidden.append(
            HiddenAction(len(self.steps), action.action_index, action_type, action.press_ms, reason)
        )
        _LOG.debug("action %d is hidden: %s", action.action_index, reason)

    def _add_step(
        self, recorded: Action, action: Action, frame: _Row, tree: _Row, canvas: Canvas
    ) -> None:
        """Adds a step for `action`; `recorded` is the same action before corrections."""
        disagrees = sign_disagrees(recorded.wheel_sum, recorded.direction, self._evidence.wheel)
        written = _step_action(len(self.steps), action, tree, canvas, self._waits)
        hovered = _hovered_places(self._hovers.get(action.action_index), canvas)
        if hovered:
            sentence = _hover_sentence(written, hovered, tree)
            written = written.model_copy(update={"reasoning": sentence})
        self.steps.append(Step(action, written, frame, tree, disagrees, hovered))


def _step_action(
    index: int,
    action: Action,
    tree: _Row,
    canvas: Canvas,
    waits: Mapping[int, float],
) -> StepAction:
    """Returns the content of action.json for an action."""
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
    """Returns the sentence about a step, with the names of its target and its window."""
    return step_sentence(kind, parameters, target, _box(tree), tree.get("window_title") or "")


def _hovered_places(hover: Hover | None, canvas: Canvas) -> tuple[HoveredPlace, ...]:
    """Returns the positions of a hover on the canvas; empty if a position is outside."""
    if hover is None or not all(canvas.on_screen(place.x, place.y) for place in hover.places):
        return ()
    return tuple(
        HoveredPlace(*canvas.pixel_of(place.x, place.y), int(place.since_ms))
        for place in hover.places
    )


def _hover_sentence(written: StepAction, places: Sequence[HoveredPlace], tree: _Row) -> str:
    """Returns the sentence about a step and the hover before it."""
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
    """Yields the steps, and names the awaited element in the sentences of waits.

    The awaited element is the next step's target, if it appeared during the wait.
    """
    waits = {wait.action_index for wait in evidence.waits if wait.acted_on}
    for number, step in enumerate(steps):
        if step.action.action_index in waits and number + 1 < len(steps):
            following = steps[number + 1]
            target = following.written.target_element
            parameters = step.written.parameters
            sentence = _sentence(ActionType.WAIT, parameters, following.tree, target)
            yield replace(step, written=step.written.model_copy(update={"reasoning": sentence}))
        else:
            yield step


def _as_filmed(action: Action, vote: WheelVote) -> Action:
    """Returns a scroll with the direction that the video shows; other actions are unchanged.

    If the log does not show the unit of the wheel's deltas, the amount is computed with the unit
    that the video shows. If that unit is unknown, the amount is 0.
    """
    if action.action_type != "scroll":
        return action
    if UNCLEAR_UNIT in action.flags:
        direction, unit = vote.unclear.get(action.action_index, (action.direction, None))
        amount = video_notches(action.wheel_sum or 0.0, unit)
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
    """Returns whether the direction of a scroll is uncertain.

    It is uncertain if the only scroll visible in the video contradicts the direction that the
    wheel's unit and the platform imply.
    """
    if recorded.action_type != "scroll" or UNCLEAR_UNIT in recorded.flags:
        return False
    if recorded.wheel_method == OVERRIDE or recorded.action_index in vote.sideways:
        return False
    return is_sign_doubtful(recorded.wheel_sum, recorded.direction, vote)


_PRESSED_BY_SPACE = frozenset({"button", "checkbox", "radiobutton", "tab", "menuitem", "link"})


def _pressed_by_space(action: Action, tree: _Row) -> Action:
    """Returns a hotkey for typed spaces that pressed a button; other actions are unchanged."""
    presses = len(action.text or "")
    if action.text != " " * presses or not presses or tree["target_role"] not in _PRESSED_BY_SPACE:
        return action
    return replace(action, action_type="hotkey", text=None, keys=["space"], presses=presses)


def _unseen_place(action: Action, canvas: Canvas, *, is_elsewhere: bool) -> HiddenReason | None:
    """Returns why a pointing action is, or may be, partly outside the canvas.

    Returns None if the action is on the canvas, and for actions without the pointer.

    Args:
        is_elsewhere: whether the action is at the border of the screen, perhaps on another display.
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


def _unseen_time(clock: Clock, press_ms: int, video_span: Span) -> HiddenReason:
    """Returns why the video has no frame before an action that began at `press_ms`."""
    if not clock.is_known(press_ms):
        return HiddenReason.UNKNOWN_TIME
    press_s = clock.video_time(press_ms)
    if press_s <= video_span.start:
        return HiddenReason.BEFORE_VIDEO
    return HiddenReason.AFTER_VIDEO if press_s > video_span.end else HiddenReason.UNDECODABLE


class _RecordedFocus:
    """Tracks whether the keyboard focus is on the recorded screen.

    The focus leaves the screen with a mouse press that was, or may have been, on another display.
    It returns with a mouse press on the recorded screen, or when a scan finds the focus on that
    screen.
    """

    def __init__(self) -> None:
        self._elsewhere = False

    def unseen(self, action: Action, tree: _Row, canvas: Canvas) -> HiddenReason | None:
        """Returns `off_screen` for keys that may have gone to another display, otherwise None."""
        if action.action_type not in _KEYBOARD or not self._elsewhere:
            return None
        self._elsewhere = not _has_focus(tree, canvas)
        return HiddenReason.OFF_SCREEN if self._elsewhere else None

    def follow(
        self, action: Action, reason: HiddenReason | None, elsewhere: Collection[int]
    ) -> None:
        """Updates the focus after a mouse press.

        Args:
            reason: why the action is hidden; None if it is on the recorded screen.
            elsewhere: indexes of the actions that may be on another display.
        """
        if action.action_type in POINTER_TYPES - {"scroll"}:
            may_be_elsewhere = (
                reason is HiddenReason.NO_POSITION and action.action_index in elsewhere
            )
            self._elsewhere = reason is HiddenReason.OFF_SCREEN or may_be_elsewhere


def _has_focus(tree: _Row, canvas: Canvas) -> bool:
    """Returns whether the focused element of a scan after a press is on the recorded screen."""
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
    """Returns left, top, width and height of the target on the canvas, or None."""
    if tree.get("target_x") is None:
        return None
    return (tree["target_x"], tree["target_y"], tree["target_width"], tree["target_height"])


def _parameters(
    action: Action, canvas: Canvas, waits: Mapping[int, float]
) -> tuple[ActionType, dict[str, Any]]:
    """Returns the type and the parameters of an action in OSWorld-Desktopd."""
    match action.action_type:
        case "type":
            return ActionType.TYPE, {"text": action.text}
        case "hotkey":
            hotkey: dict[str, Any] = {"keys": list(action.keys)}
            if (action.presses or 1) > 1:
                hotkey["presses"] = action.presses
            return ActionType.HOTKEY, hotkey
        case "pause":
            return ActionType.WAIT, {"seconds": waits[action.action_index]}
    parameters = _pointer_parameters(action, canvas)
    if action.modifiers:
        parameters["modifiers"] = list(action.modifiers)
    return ActionType(action.action_type), parameters


def _pointer_parameters(action: Action, canvas: Canvas) -> dict[str, Any]:
    x, y = canvas.pixel_of(action.x or 0.0, action.y or 0.0)
    match action.action_type:
        case "click":
            click = {"x": x, "y": y, "button": action.button}
            if action.clicks == 3:
                click["clicks"] = 3
            return click
        case "drag":
            end_x, end_y = canvas.pixel_of(action.end_x or 0.0, action.end_y or 0.0)
            drag: dict[str, Any] = {"start_x": x, "start_y": y, "end_x": end_x, "end_y": end_y}
            if action.button != "left":
                drag["button"] = action.button
            if action.clicks:
                drag["clicks"] = action.clicks
            return drag
        case "scroll":
            return {"x": x, "y": y, "direction": action.direction, "amount": action.amount}
        case _:
            return {"x": x, "y": y}
