"""The strict rule of this project: everything that an action says has to be right.

Belongs here: the rule. Published rules give much for the type alone; this one gives nothing for it.
"""

import unicodedata
from collections.abc import Sequence

from demo_pipeline.evaluation.true_steps import ScreenPoint, TrueStep, action_kind, in_box, places
from demo_pipeline.formats.answers import Answer, AnsweredAction
from demo_pipeline.formats.desktopd.step_actions import (
    ClickParameters,
    DragParameters,
    HotkeyParameters,
    PointParameters,
    ScrollParameters,
    TypeParameters,
)

NEAR = 0.01  # of the screen's width and height, where no target is known
_NOTCH = 1


def score_step_strict(step: TrueStep, answer: Answer) -> float:
    """1 when the answer is one action that is right in everything, else 0.

    The type with button and number of clicks; held modifiers; the place in the target's box, or
    within 1 % of the screen's sides where the target is not known; both ends of a drag within 1 %;
    the text after `normalised_text`; keys in their order, as often; the direction of a scroll, and
    its amount within a notch; a wait as a wait, however long; the status at the end.
    """
    if step.action is None:
        return float(not answer.actions and answer.status == step.answer.status)
    if len(answer.actions) != 1 or answer.status:
        return 0.0
    given, wanted = answer.actions[0], step.action
    if not isinstance(given, AnsweredAction) or action_kind(given) != action_kind(wanted):
        return 0.0
    if _modifiers(given) != _modifiers(wanted):
        return 0.0
    return float(_same_words(given, wanted) and _right_place(given, wanted, step))


def normalised_text(text: str) -> str:
    """Unicode's composed form, line ends as line feeds, without one line end at the end."""
    plain = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n")
    return plain.removesuffix("\n")


def _modifiers(action: AnsweredAction) -> list[str]:
    match action.parameters:
        case PointParameters() | ClickParameters() | ScrollParameters() | DragParameters() as held:
            return sorted(held.modifiers or ())
    return []


def _same_words(given: AnsweredAction, wanted: AnsweredAction) -> bool:
    match given.parameters, wanted.parameters:
        case TypeParameters(text=text), TypeParameters(text=right):
            return normalised_text(text) == normalised_text(right)
        case HotkeyParameters(keys=keys, presses=presses), HotkeyParameters() as right:
            same = _lower(keys) == _lower(right.keys)
            return same and (presses or 1) == (right.presses or 1)
        case ScrollParameters(direction=direction, amount=amount), ScrollParameters() as right:
            return direction == right.direction and abs(amount - right.amount) <= _NOTCH
        case DragParameters(button=button), DragParameters(button=right):
            return (button or "left") == (right or "left")
    return True


def _lower(keys: Sequence[str]) -> list[str]:
    return [key.lower() for key in keys]


def _right_place(given: AnsweredAction, wanted: AnsweredAction, step: TrueStep) -> bool:
    points, goals = places(given), places(wanted)
    if len(goals) == 1 and step.box is not None:
        return in_box(points[0], step.box)
    return all(_near(*pair, step.size) for pair in zip(points, goals, strict=True))


def _near(point: ScreenPoint, goal: ScreenPoint, size: tuple[int, int]) -> bool:
    return all(
        abs(here - there) <= NEAR * side
        for here, there, side in zip(point, goal, size, strict=True)
    )
