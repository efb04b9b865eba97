"""The forms that a model can be asked in: its question, its right answer, and reading its answer.

The decoders are in the modules of their forms. Our own prompt asks in AgentNet's form; the authors'
system prompt can be given instead.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from demo_pipeline.desktopd.models import StepAction, points
from demo_pipeline.evaluation.requests import Question, QuestionForm
from demo_pipeline.evaluation.true_steps import StepRecord
from demo_pipeline.exports.agentnet_code import (
    agentnet_code,
    decode_agentnet_answer,
    share_text,
)
from demo_pipeline.exports.answers import AnswerDecoder, AnsweredAction, InexpressibleError
from demo_pipeline.exports.cudag.records import wheel_units
from demo_pipeline.exports.cudag.tool_calls import cudag_decoder, render_tool_calls
from demo_pipeline.exports.messages import messages_decoder
from demo_pipeline.exports.prompts import (
    end_sentence,
    hidden_words,
    system_prompt,
)
from demo_pipeline.exports.whole_trajectories import sentence
from demo_pipeline.files.shown_text import escape_markers, replace_surrogates
from demo_pipeline.settings import DatasetSettings

_MOST_STEPS = 10  # of the history, the latest
_SYSTEM = (
    "You operate a computer for a person. You are shown the screen, the task and the steps so far."
    " Answer with the next step: below the heading `## Action:` what to do, in a sentence; below"
    " the heading `## Code:` the call that does it, with places as shares of the screen from 0 to"
    " 1.\n\n"
    "Calls: pyautogui.click, rightClick, middleClick, doubleClick, moveTo (x=, y=), dragTo(x=, y=,"
    " button=) after a moveTo, scroll(n) and hscroll(n) after a moveTo (positive is up and right,"
    " in notches of the wheel), write(message=), press(key), hotkey([keys]);"
    " computer.tripleClick(x=, y=), computer.wait(seconds), computer.terminate(status='success' or"
    " 'failure')."
)


def ask_opencua(record: StepRecord, _settings: DatasetSettings) -> Question:
    """The instruction, what was done last as words and code, and the screen."""
    parts = [f"# Task:\n{escape_markers(record.trajectory.task.instruction)[0]}"]
    done = list(enumerate(_done_before(record), start=1))
    parts += [f"# Step {number}:\n{said}" for number, said in done[-_MOST_STEPS:]]
    return _asked(_SYSTEM, record, "\n\n".join(parts))


def _asked(system: str, record: StepRecord, words: str) -> Question:
    """A question about the screen of a step."""
    picture = {"type": "image", "image": record.draft.screenshot}
    content = [picture, {"type": "text", "text": replace_surrogates(words)}]
    return Question(system, [{"role": "user", "content": content}])


def answer_opencua(record: StepRecord, _settings: DatasetSettings) -> str:
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
    return _code(step.action, step.size)


def _done_before(record: StepRecord) -> Iterator[str]:
    """Yield what was done before the step; hidden actions, which no screenshot shows, in words."""
    index, hidden = record.step.step_index, record.candidate.hidden
    for step in record.trajectory.steps:
        if step.index <= index:
            yield from (
                f"## Action:\n{hidden_words(action)}" for action in hidden.before(step.index)
            )
        if step.index < index:
            action, size = step.action, record.step.size
            words = f"## Action:\n{_sentence(action, size)}"
            code = _code(AnsweredAction(action.action_type, action.parameters), size)
            yield f"{words}\n## Code:\n{escape_markers(code)[0]}" if code else words


def _sentence(action: StepAction, size: tuple[int, int]) -> str:
    """What a step does; it names the places as the code does."""
    return sentence(action, [f"({share_text(x, y, size)})" for x, y in points(action)])


def _code(action: AnsweredAction, size: tuple[int, int]) -> str:
    """The calls; empty when the form has none for the action."""
    try:
        return agentnet_code(action, size)
    except InexpressibleError:
        return ""


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """A form.

    Attributes:
        question: what a step is asked with.
        right: what a model that is right answers.
        decoder: reads answers, given the settings that the prompts were made with.
    """

    question: QuestionForm
    right: Callable[[StepRecord, DatasetSettings], str]
    decoder: Callable[[DatasetSettings], AnswerDecoder]


def _question(
    record: StepRecord, settings: DatasetSettings, *, action_line: bool | None = None
) -> Question:
    line = settings.action_line if action_line is None else action_line
    return _asked(system_prompt(settings, action_line=line), record, record.draft.prompt)


def _calls(record: StepRecord, _settings: DatasetSettings) -> str:
    return render_tool_calls(record.draft.calls)[0]


ANSWER_FORMS: Mapping[str, AnswerForm] = {
    "messages": AnswerForm(_question, _calls, lambda known: messages_decoder(wheel_units(known))),
    "qwen3vl": AnswerForm(
        partial(_question, action_line=True),
        _calls,
        lambda known: messages_decoder(wheel_units(known)),
    ),
    "cudag": AnswerForm(
        partial(_question, action_line=False),
        _calls,
        lambda known: cudag_decoder(wheel_units(known)),
    ),
    "opencua": AnswerForm(ask_opencua, answer_opencua, lambda _known: decode_agentnet_answer),
}
