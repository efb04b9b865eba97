"""Defines the forms of requests to models and of answers, for example `messages` or `opencua`.

A form defines the text of the request, the correct answer, and the decoder of answers. The system
prompt of the form `opencua` is our own; users can replace it with the one by OpenCUA's authors.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from demo_pipeline.desktopd.models import StepAction
from demo_pipeline.evaluation.true_steps import StepRecord
from demo_pipeline.exports.agentnet_code import (
    code_or_nothing,
    decode_agentnet_answer,
    share_place,
)
from demo_pipeline.exports.answers import AnswerDecoder, AnsweredAction
from demo_pipeline.exports.cudag.records import wheel_units
from demo_pipeline.exports.messages import messages_decoder
from demo_pipeline.exports.prompts import (
    end_sentence,
    hidden_words,
    system_prompt,
)
from demo_pipeline.exports.token_estimates import resized
from demo_pipeline.exports.tool_calls import WheelUnits, cudag_decoder, render_tool_calls
from demo_pipeline.exports.whole_trajectories import sentence
from demo_pipeline.files.shown_text import escape_markers
from demo_pipeline.settings import DatasetSettings

_MOST_STEPS = 10  # maximum number of steps in the history of a request
_SYSTEM = (
    "You operate a computer for a person. You are shown the screen, the task and the steps so far."
    " Answer with the next step: below the heading `## Action:` what to do, in a sentence; below"
    " the heading `## Code:` the call that does it, with places as shares of the screen from 0 to"
    " 1.\n\n"
    "Calls: pyautogui.click, rightClick, middleClick, doubleClick, tripleClick, moveTo (x=, y=),"
    " dragTo(x=, y=, button=) after a moveTo, scroll(n) and hscroll(n) after a moveTo (positive is"
    " up and right, in notches of the wheel), write(message=), press(key), hotkey([keys]);"
    " computer.wait(seconds), computer.terminate(status='success' or 'failure')."
)


def ask_opencua(record: StepRecord, _settings: DatasetSettings) -> tuple[str, str]:
    """Returns the system prompt, and a text with the instruction and the last steps.

    Each step is described by a sentence and, if there is any, the code of its action.
    """
    parts = [f"# Task:\n{escape_markers(record.trajectory.task.instruction)[0]}"]
    history = list(enumerate(_history(record), start=1))
    parts += [f"# Step {number}:\n{words}" for number, words in history[-_MOST_STEPS:]]
    return _SYSTEM, "\n\n".join(parts)


def answer_opencua(record: StepRecord) -> str:
    """Returns the correct answer: a sentence about the action, and the code of the action."""
    true_step = record.step
    words = end_sentence(success=true_step.answer.status == "success")
    for step in record.trajectory.steps:
        if step.index == true_step.step_index:
            words = _sentence(step.action, true_step.size)
    return f"## Action:\n{words}\n\n## Code:\n{answer_code(record)}"


def answer_code(record: StepRecord) -> str:
    """Returns the code of the correct answer, or "" if AgentNet cannot express the action."""
    step = record.step
    if step.action is None:
        return f"computer.terminate(status={step.answer.status!r})"
    return code_or_nothing(step.action, step.size)


def _history(record: StepRecord) -> Iterator[str]:
    """Yields a text for each action before the step; hidden actions have a sentence but no code."""
    index = record.step.step_index
    size = record.step.size
    for step in record.trajectory.steps:
        if step.index > index:
            break
        for hidden_action in record.candidate.hidden.before(step.index):
            yield f"## Action:\n{hidden_words(hidden_action)}"
        if step.index == index:
            break
        action = step.action
        words = f"## Action:\n{_sentence(action, size)}"
        code = code_or_nothing(AnsweredAction(action.action_type, action.parameters), size)
        if code:
            words += f"\n## Code:\n{escape_markers(code)[0]}"
        yield words


def _sentence(action: StepAction, size: tuple[int, int]) -> str:
    """Returns the sentence about an action, with positions as shares of the screen (0 to 1)."""
    return sentence(action, partial(share_place, size=size))


@dataclass(frozen=True, slots=True)
class _AnswerForm:
    """The format of the question to a model and of its answer.

    Attributes:
        question: returns the system prompt, and the text after the screenshot.
        right: returns the correct answer.
        decoder: takes the settings, and returns the decoder of the answers.
    """

    question: Callable[[StepRecord, DatasetSettings], tuple[str, str]]
    right: Callable[[StepRecord], str]
    decoder: Callable[[DatasetSettings], AnswerDecoder]


def is_absolute(form: str, settings: DatasetSettings) -> bool:
    """Whether coordinates in answers of a form are pixels of the image that the model resized."""
    return form == "messages" and settings.coordinates == "absolute"


def is_native(form: str) -> bool:
    """Whether requests in a form prefer screenshots in the screen's own resolution.

    The training export of the same name uses the same screenshots.
    """
    return form == "messages"


def _calls_form(
    form: str,
    decoder: Callable[[WheelUnits, int | None], AnswerDecoder],
    action_line: bool | None,
) -> _AnswerForm:
    """Returns a form whose answers are tool calls.

    Args:
        decoder: takes the unit of the wheel and the maximum number of pixels of an image, and
            returns the decoder.
        action_line: whether the prompt asks for a sentence before the calls; None means that the
            settings decide.
    """

    def max_pixels(settings: DatasetSettings) -> int | None:
        if not is_absolute(form, settings):
            return None
        return settings.max_pixels

    def ask(record: StepRecord, settings: DatasetSettings) -> tuple[str, str]:
        with_line = action_line
        if with_line is None:
            with_line = settings.action_line
        seen_size = None
        if most := max_pixels(settings):
            seen_size = resized(record.draft.metadata.image_size, most)
        prompt = system_prompt(settings, action_line=with_line, seen=seen_size)
        return prompt, record.draft.prompt

    def right_answer(record: StepRecord) -> str:
        return render_tool_calls(record.draft.calls)[0]

    def decoder_for(settings: DatasetSettings) -> AnswerDecoder:
        return decoder(wheel_units(settings), max_pixels(settings))

    return _AnswerForm(ask, right_answer, decoder_for)


def _cudag_decoder(wheel: WheelUnits, _max_pixels: int | None) -> AnswerDecoder:
    return cudag_decoder(wheel)


def _opencua_decoder(_settings: DatasetSettings) -> AnswerDecoder:
    return decode_agentnet_answer


ANSWER_FORMS: Mapping[str, _AnswerForm] = {
    "messages": _calls_form("messages", messages_decoder, None),
    "qwen3vl": _calls_form("qwen3vl", messages_decoder, True),
    "cudag": _calls_form("cudag", _cudag_decoder, False),
    "opencua": _AnswerForm(ask_opencua, answer_opencua, _opencua_decoder),
}
