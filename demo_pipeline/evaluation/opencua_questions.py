"""Questions and right answers in the form that OpenCUA's models use: words, then code.

Belongs here: our own prompt for that form; `formats.agentnet` reads the answers. The authors' own
system prompt can be given instead.
"""

from collections.abc import Iterator

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.datasets.foreign_actions import InexpressibleError, agentnet_code, share_text
from demo_pipeline.datasets.prompts import hidden_words
from demo_pipeline.datasets.split_files import replace_surrogates
from demo_pipeline.datasets.whole_trajectories import end_sentence, sentence
from demo_pipeline.evaluation.request_lines import Question
from demo_pipeline.evaluation.true_steps import StepRecord
from demo_pipeline.formats.answers import AnsweredAction
from demo_pipeline.formats.cudag.tool_calls import escape_markers
from demo_pipeline.formats.desktopd.step_actions import StepAction, points

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
    parts = [f"# Task:\n{_task(record)}"]
    done = list(enumerate(_done_before(record), start=1))
    parts += [f"# Step {number}:\n{said}" for number, said in done[-_MOST_STEPS:]]
    text = replace_surrogates("\n\n".join(parts))
    content = [{"type": "image", "image": record.screenshot}, {"type": "text", "text": text}]
    return Question(_SYSTEM, [{"role": "user", "content": content}])


def answer_opencua(record: StepRecord, _settings: DatasetSettings) -> str:
    """What a model that is right answers; without code where the form has none for the action."""
    return f"## Action:\n{_words(record)}\n\n## Code:\n{answer_code(record)}"


def answer_code(record: StepRecord) -> str:
    """The code of the right answer; empty where the form has none for the action."""
    step = record.step
    if step.action is None:
        return f"computer.terminate(status={step.answer.status!r})"
    return _code(step.action, step.size)


def _words(record: StepRecord) -> str:
    """What the right answer does, in a sentence."""
    known = record.step
    for step in record.trajectory.steps:
        if step.index == known.step_index:
            return _sentence(step.action, known.size)
    return end_sentence(success=known.answer.status == "success")


def _task(record: StepRecord) -> str:
    return escape_markers(record.trajectory.task.instruction)[0]


def _done_before(record: StepRecord) -> Iterator[str]:
    """Yield what was done before the step; hidden actions, which no screenshot shows, in words."""
    index, hidden = record.step.step_index, record.candidate.hidden
    for step in record.trajectory.steps:
        if step.index <= index:
            yield from (
                f"## Action:\n{hidden_words(action)}" for action in hidden.before(step.index)
            )
        if step.index < index:
            yield _said(step.action, record.step.size)


def _said(action: StepAction, size: tuple[int, int]) -> str:
    words = f"## Action:\n{_sentence(action, size)}"
    code = _code(AnsweredAction(action.action_type, action.parameters), size)
    return f"{words}\n## Code:\n{escape_markers(code)[0]}" if code else words


def _sentence(action: StepAction, size: tuple[int, int]) -> str:
    """What a step does; its places are those of the code."""
    return sentence(action, [f"({share_text(x, y, size)})" for x, y in points(action)])


def _code(action: AnsweredAction, size: tuple[int, int]) -> str:
    """The calls; empty when the form has none for the action."""
    try:
        return agentnet_code(action, size)
    except InexpressibleError:
        return ""
