"""One reading of CUDAG's rule for tests: the expected call, within the tolerance on each axis.

Belongs here: the rule. The sources read the tolerance in four ways that contradict each other; this
one is what docs/formats.md says of `test.json`: RU, each axis by itself, the limit included.
"""

from demo_pipeline.evaluation.true_steps import TrueStep, action_kind, places
from demo_pipeline.formats.answers import Answer, AnsweredAction, ForeignAction
from demo_pipeline.formats.cudag.models import to_ru
from demo_pipeline.formats.desktopd.step_actions import (
    HotkeyParameters,
    ScrollParameters,
    TypeParameters,
)

_LAST_CALL = {"drag": "left_click_drag"}  # of actions that are two calls


def score_step_cudag(step: TrueStep, answer: Answer) -> float:
    """1 when the last call of the answer is the expected one, else 0.

    Of a drag the end counts, of a repeated key one press. Text and keys have to be equal, a scroll
    has to have the direction; its amount and the time of a wait do not count.
    """
    if step.action is None:
        return float(answer.status == step.answer.status)
    if not answer.actions or answer.status:
        return 0.0
    given, wanted = answer.actions[-1], step.action
    if _last_call(given) != _last_call(wanted):
        return 0.0
    return float(_same_words(given, wanted) and _near(given, wanted, step))


def _last_call(action: AnsweredAction | ForeignAction) -> str:
    kind = action_kind(action)
    return _LAST_CALL.get(kind, kind)


def _same_words(given: AnsweredAction | ForeignAction, wanted: AnsweredAction) -> bool:
    parameters = getattr(given, "parameters", None)
    match wanted.parameters:
        case TypeParameters(text=text):
            return getattr(parameters, "text", None) == text
        case HotkeyParameters(keys=keys):
            return getattr(parameters, "keys", None) == keys
        case ScrollParameters(direction=direction):
            return getattr(parameters, "direction", None) == direction
    return True


def _near(given: AnsweredAction | ForeignAction, wanted: AnsweredAction, step: TrueStep) -> bool:
    goal, point = places(wanted)[-1:], places(given)[-1:]
    if not goal:
        return True
    if not point:
        return False
    there, here = to_ru(*goal[0], step.size), to_ru(*point[0], step.size)
    return all(abs(a - b) <= limit for a, b, limit in zip(there, here, step.tolerance, strict=True))
