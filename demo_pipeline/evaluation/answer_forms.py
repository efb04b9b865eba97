"""The forms that a model can be asked in: its question, its right answer, and reading its answer.

The decoders are in the modules of their forms. Our own prompt asks in AgentNet's form; the authors'
system prompt can be given instead.
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

_MOST_STEPS = 10  # of the history, the latest
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
    """The instruction, and what was done last as words and code."""
    parts = [f"# Task:\n{escape_markers(record.trajectory.task.instruction)[0]}"]
    done = list(enumerate(_done_before(record), start=1))
    parts += [f"# Step {number}:\n{said}" for number, said in done[-_MOST_STEPS:]]
    return _SYSTEM, "\n\n".join(parts)


def answer_opencua(record: StepRecord) -> str:
    """What a model that is right answers; without code where the form has none for the action."""
    known = record.step
    words = end_sentence(success=known.answer.status == "success")
    for step in record.trajectory.steps:
        if step.index == known.step_index:
            words = _sentence(step.action, known.size)
    return f"## Action:\n{words}\n\n## Code:\n{answer_code(record)}"


def answer_code(record: StepRecord) -> str:
    """The code of the right answer; empty where the form has none for the action."""
    step = record.step
    if step.action is None:
        return f"computer.terminate(status={step.answer.status!r})"
    return code_or_nothing(step.action, step.size)


def _done_before(record: StepRecord) -> Iterator[str]:
    """Yield what was done before the step; hidden actions, which no screenshot shows, in words."""
    index = record.step.step_index
    hidden = record.candidate.hidden
    for step in record.trajectory.steps:
        if step.index <= index:
            yield from (
                f"## Action:\n{hidden_words(action)}" for action in hidden.before(step.index)
            )
        if step.index < index:
            action = step.action
            size = record.step.size
            words = f"## Action:\n{_sentence(action, size)}"
            code = code_or_nothing(AnsweredAction(action.action_type, action.parameters), size)
            yield f"{words}\n## Code:\n{escape_markers(code)[0]}" if code else words


def _sentence(action: StepAction, size: tuple[int, int]) -> str:
    """What a step does; it names the places as the code does."""
    return sentence(action, partial(share_place, size=size))


@dataclass(frozen=True, slots=True)
class _AnswerForm:
    """A form.

    Attributes:
        question: what a step is asked with beside its screen: the system prompt, and the words.
        right: what a model that is right answers.
        decoder: reads answers, given the settings that the prompts were made with.
    """

    question: Callable[[StepRecord, DatasetSettings], tuple[str, str]]
    right: Callable[[StepRecord], str]
    decoder: Callable[[DatasetSettings], AnswerDecoder]


def is_absolute(form: str, settings: DatasetSettings) -> bool:
    """Whether questions and answers of a form have pixels of the picture as the model sees it."""
    return form == "messages" and settings.coordinates == "absolute"


def is_native(form: str) -> bool:
    """Whether a form is asked with the screen's own pictures, where there are any, as trained."""
    return form == "messages"


def _calls_form(
    form: str,
    decoder: Callable[[WheelUnits, int | None], AnswerDecoder],
    line: bool | None,
) -> _AnswerForm:
    """A form of tool calls; `line`: words before them are asked for, None: the settings say it."""

    def pixels(settings: DatasetSettings) -> int | None:
        return settings.max_pixels if is_absolute(form, settings) else None

    def ask(record: StepRecord, settings: DatasetSettings) -> tuple[str, str]:
        wanted = settings.action_line if line is None else line
        most = pixels(settings)
        seen = resized(record.draft.metadata.image_size, most) if most else None
        return system_prompt(settings, action_line=wanted, seen=seen), record.draft.prompt

    return _AnswerForm(
        ask,
        lambda record: render_tool_calls(record.draft.calls)[0],
        lambda settings: decoder(wheel_units(settings), pixels(settings)),
    )


ANSWER_FORMS: Mapping[str, _AnswerForm] = {
    "messages": _calls_form("messages", messages_decoder, None),
    "qwen3vl": _calls_form("qwen3vl", messages_decoder, True),
    "cudag": _calls_form("cudag", lambda wheel, _: cudag_decoder(wheel), False),
    "opencua": _AnswerForm(ask_opencua, answer_opencua, lambda _known: decode_agentnet_answer),
}
