"""Answers without a model, which say what a score is worth.

Belongs here: what each baseline answers. They stand beside the predictions in every table.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from demo_pipeline.evaluation.true_steps import TERMINATE, ScreenPoint, TargetBox, TrueStep
from demo_pipeline.formats.answers import Answer, AnsweredAction
from demo_pipeline.formats.desktopd.step_actions import PARAMETERS, DragParameters
from demo_pipeline.formats.desktopd.vocabulary import ActionType

Baseline = Callable[[TrueStep, TrueStep | None], Answer]
"""Answers a step; the second is the step before it in the same trajectory, None at the start."""


def always_centre(step: TrueStep, _before: TrueStep | None = None) -> Answer:
    """A left click at the screen's centre."""
    return guessed_kind("left_click", step)


def repeat_last(step: TrueStep, before: TrueStep | None) -> Answer:
    """What was done in the step before; at the start a click at the centre."""
    return before.answer if before else always_centre(step)


def true_action_at_centre(step: TrueStep, _before: TrueStep | None = None) -> Answer:
    """The true action with its place at the screen's centre: everything but the place is right."""
    return _moved(step, _middle((0, 0, *step.size)))


def true_action_at_target(step: TrueStep, _before: TrueStep | None = None) -> Answer:
    """The true action at the centre of its target; at the screen's centre without a target.

    The end of a drag stays where it is.
    """
    return _moved(step, _middle(step.box or (0, 0, *step.size)), keep_end=True)


def truth(step: TrueStep, _before: TrueStep | None = None) -> Answer:
    """The right answer."""
    return step.answer


BASELINES: Mapping[str, Baseline] = {
    "screen centre": always_centre,
    "last action": repeat_last,
    "true, at centre": true_action_at_centre,
    "true, at target": true_action_at_target,
    "truth": truth,
}
MOST_FREQUENT = "frequent type"

_GUESSES: Mapping[str, tuple[ActionType, Mapping[str, Any]]] = {
    "left_click": (ActionType.CLICK, {"button": "left"}),
    "middle_click": (ActionType.CLICK, {"button": "middle"}),
    "triple_click": (ActionType.CLICK, {"clicks": 3}),
    "right_click": (ActionType.RIGHT_CLICK, {}),
    "double_click": (ActionType.DOUBLE_CLICK, {}),
    "type": (ActionType.TYPE, {"text": ""}),
    "hotkey": (ActionType.HOTKEY, {"keys": ["enter"]}),
    "scroll": (ActionType.SCROLL, {"direction": "down", "amount": 1}),
    "drag": (ActionType.DRAG, {}),
    "wait": (ActionType.WAIT, {"seconds": 1.0}),
}
GUESSED_KINDS = (*_GUESSES, TERMINATE)


def guessed_kind(kind: str, step: TrueStep) -> Answer:
    """An action of a kind without knowing more: at the centre, no text, Enter, one notch down."""
    return _guess(kind, step.size)


@lru_cache(maxsize=256)  # a store has few sizes of screens
def _guess(kind: str, size: tuple[int, int]) -> Answer:
    if kind == TERMINATE:
        return Answer((), "success")
    action_type, known = _GUESSES[kind]
    x, y = _middle((0, 0, *size))
    names = PARAMETERS[action_type].model_fields
    values = {name: x if name.endswith("x") else y for name in names if name[-1] in "xy"}
    return Answer((_action(action_type, {**values, **known}),))


def _middle(box: TargetBox) -> ScreenPoint:
    left, top, width, height = box
    return int(left + width / 2), int(top + height / 2)


def _moved(step: TrueStep, place: ScreenPoint, *, keep_end: bool = False) -> Answer:
    action = step.action
    if action is None:
        return step.answer
    known = action.parameters.members()
    if isinstance(action.parameters, DragParameters):
        moved = {"start_x": place[0], "start_y": place[1]}
        moved |= {} if keep_end else {"end_x": place[0], "end_y": place[1]}
    elif "x" in known:
        moved = {"x": place[0], "y": place[1]}
    else:
        return step.answer
    return Answer((_action(action.action_type, {**known, **moved}),))


def _action(kind: ActionType, parameters: Mapping[str, Any]) -> AnsweredAction:
    return AnsweredAction(kind, PARAMETERS[kind].model_validate(dict(parameters)))
