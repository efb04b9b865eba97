"""Questions and right answers in the form that OpenCUA's models use: words, then code.

Belongs here: our own prompt for that form; `formats.agentnet` reads the answers. The authors' own
system prompt can be given instead.
"""

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.datasets.foreign_actions import InexpressibleError, agentnet_code
from demo_pipeline.datasets.split_files import replace_surrogates
from demo_pipeline.evaluation.request_lines import Question
from demo_pipeline.evaluation.true_steps import StepRecord
from demo_pipeline.formats.answers import AnsweredAction
from demo_pipeline.formats.cudag.tool_calls import escape_markers
from demo_pipeline.formats.desktopd.step_actions import StepAction

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
    """The instruction, the latest steps as words and code, and the screen."""
    index, parts = record.step.step_index, [f"# Task:\n{_task(record)}"]
    earlier = [step for step in record.trajectory.steps if step.index < index]
    size = record.step.size
    parts += [
        f"# Step {step.index + 1}:\n{_said(step.action, size)}" for step in earlier[-_MOST_STEPS:]
    ]
    text = replace_surrogates("\n\n".join(parts))
    content = [{"type": "image", "image": record.screenshot}, {"type": "text", "text": text}]
    return Question(_SYSTEM, [{"role": "user", "content": content}])


def answer_opencua(record: StepRecord, _settings: DatasetSettings) -> str:
    """What a model that is right answers; without code where the form has none for the action."""
    return f"## Action:\n{record.step.reasoning}\n\n## Code:\n{answer_code(record)}"


def answer_code(record: StepRecord) -> str:
    """The code of the right answer; empty where the form has none for the action."""
    step = record.step
    if step.action is None:
        return f"computer.terminate(status={step.answer.status!r})"
    return _code(step.action, step.size)


def _task(record: StepRecord) -> str:
    return escape_markers(record.trajectory.task.instruction)[0]


def _said(action: StepAction, size: tuple[int, int]) -> str:
    words = f"## Action:\n{escape_markers(action.reasoning)[0]}"
    code = _code(AnsweredAction(action.action_type, action.parameters), size)
    return f"{words}\n## Code:\n{escape_markers(code)[0]}" if code else words


def _code(action: AnsweredAction, size: tuple[int, int]) -> str:
    """The calls; empty when the form has none for the action."""
    try:
        return agentnet_code(action, size)
    except InexpressibleError:
        return ""
