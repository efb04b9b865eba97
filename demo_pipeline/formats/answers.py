"""What a model answers for one step, whatever the form that it answers in.

Belongs here: the types that the decoder of every form returns. Not here: the decoders; each lies
beside the models of its form.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from demo_pipeline.formats.desktopd.step_actions import Parameters
from demo_pipeline.formats.desktopd.vocabulary import ActionType


@dataclass(frozen=True, slots=True)
class AnsweredAction:
    """One of our actions, without target and reasoning; points are pixels of the screenshot."""

    action_type: ActionType
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class ForeignAction:
    """An action of the form that is none of ours: the pointer moved, a key held, a screenshot.

    Attributes:
        name: as the form calls it.
        point: pixels of the screenshot, when it has a place.
    """

    name: str
    point: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answers for one step.

    Attributes:
        actions: in the order in which they are to be done.
        status: how the model says the task ended; None: it does not end it.
        thought: its words beside the actions; empty: none.
    """

    actions: tuple[AnsweredAction | ForeignAction, ...]
    status: Literal["success", "failure"] | None = None
    thought: str = ""


class AnswerFormatError(ValueError):
    """An answer that the form does not allow.

    Attributes:
        reason: one of a few fixed phrases, such as "no tool call"; never words of the answer.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


AnswerDecoder = Callable[[str, tuple[int, int]], Answer]
"""Reads a model's answer; the size is that of the step's screenshot, width and height in pixels.

Raises `AnswerFormatError` and nothing else, for any text.
"""
