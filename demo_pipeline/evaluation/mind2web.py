"""The rule of Multimodal-Mind2Web: the right element, and the right words of the operation.

Source: UGround, offline_evaluation/Multimodal-Mind2Web/eval.py; SeeClick,
agent_tasks/mind2web_test.py. Belongs here: the rule, and our actions as their operations.
"""

import string

from demo_pipeline.evaluation.true_steps import (
    TrueStep,
    action_kind,
    first_place,
    in_box,
    places,
)
from demo_pipeline.formats.answers import Answer, AnsweredAction, ForeignAction
from demo_pipeline.formats.desktopd.step_actions import (
    HotkeyParameters,
    ScrollParameters,
    TypeParameters,
)


def score_step_mind2web(step: TrueStep, answer: Answer) -> float | None:
    """1 when the point is in the target's box and the operation's words are the same, else 0.

    None for a step that points at no known target: every step of theirs has its element. What a
    step without a place does (typing, keys) is judged by its words alone.
    """
    pointing = step.action is not None and bool(places(step.action))
    if pointing and step.box is None:
        return None
    if _tokens(operation(step.answer)) != _tokens(operation(answer)):
        return 0.0  # F1 is 1 only for equal sets of tokens
    if not pointing or step.box is None:
        return 1.0
    point = first_place(answer)
    return float(point is not None and in_box(point, step.box))


def operation(answer: Answer) -> str:
    """The first action as `click`, `type some words`, `hotkey ctrl+c`; `terminate success`."""
    if not answer.actions:
        return f"terminate {answer.status}" if answer.status else ""
    return _words(answer.actions[0])


def _words(action: AnsweredAction | ForeignAction) -> str:
    kind = action_kind(action)
    match getattr(action, "parameters", None):
        case TypeParameters(text=text):
            return f"{kind} {text}"
        case HotkeyParameters(keys=keys):
            return f"{kind} {'+'.join(keys)}"
        case ScrollParameters(direction=direction):
            return f"{kind} {direction}"
    return kind


def _tokens(text: str) -> set[str]:
    """The words of an operation; marks that stand alone do not count, as in their script."""
    return {token for token in text.lower().split() if token not in string.punctuation}
