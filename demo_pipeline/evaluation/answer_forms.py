"""The forms that a model can be asked in, each with the decoder of its answers.

Belongs here: the registry. Decoders lie beside the models of their formats.
"""

from collections.abc import Callable, Mapping

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.datasets.prompts import units_per_notch
from demo_pipeline.formats.answers import AnswerDecoder
from demo_pipeline.formats.cudag.decoder import WheelRule, cudag_decoder
from demo_pipeline.formats.messages.decoder import messages_decoder


def wheel_rule(settings: DatasetSettings) -> WheelRule:
    """What `pixels` mean in the prompts that these settings give."""
    return WheelRule(settings.cudag_scroll_sign, max(1, units_per_notch(settings)))


ANSWER_FORMS: Mapping[str, Callable[[DatasetSettings], AnswerDecoder]] = {
    "messages": lambda settings: messages_decoder(wheel_rule(settings)),
    "qwen3vl": lambda settings: messages_decoder(wheel_rule(settings)),
    "cudag": lambda settings: cudag_decoder(wheel_rule(settings)),
}
