"""The forms that a model can be asked in: its question, its right answer, and reading its answers.

Belongs here: the registry. Decoders lie beside the models of their formats.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.datasets.prompts import system_prompt, units_per_notch
from demo_pipeline.datasets.split_files import replace_surrogates
from demo_pipeline.evaluation.opencua_questions import answer_opencua, ask_opencua
from demo_pipeline.evaluation.request_lines import Question, QuestionForm
from demo_pipeline.evaluation.true_steps import StepRecord
from demo_pipeline.formats.agentnet.decoder import decode_agentnet_answer
from demo_pipeline.formats.answers import AnswerDecoder
from demo_pipeline.formats.cudag.decoder import WheelUnits, cudag_decoder
from demo_pipeline.formats.cudag.tool_calls import render_tool_calls
from demo_pipeline.formats.messages.decoder import messages_decoder


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


def wheel_units(settings: DatasetSettings) -> WheelUnits:
    """What `pixels` mean in the prompts that these settings give."""
    return WheelUnits(settings.cudag_scroll_sign, max(1, units_per_notch(settings)))


def _question(
    record: StepRecord, settings: DatasetSettings, *, action_line: bool | None = None
) -> Question:
    words = replace_surrogates(record.draft.prompt)
    parts = [{"type": "image", "image": record.screenshot}, {"type": "text", "text": words}]
    line = settings.action_line if action_line is None else action_line
    system = system_prompt(settings, action_line=line)
    return Question(system, [{"role": "user", "content": parts}])


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
