"""Reads what a model answers in a chat: the inverse of how the messages export writes a turn.

Belongs here: the line of words before the calls. The calls are those of the CUDAG records.
"""

from functools import partial

from demo_pipeline.formats.answers import Answer, AnswerDecoder
from demo_pipeline.formats.cudag.decoder import WheelUnits, answer_blocks, decode_calls
from demo_pipeline.formats.cudag.tool_calls import ACTION_LINE


def messages_decoder(wheel: WheelUnits) -> AnswerDecoder:
    """The decoder of a chat's answer: words, with or without `Action: `, then `<tool_call>`s."""
    return partial(_decode_messages, wheel=wheel)


def _decode_messages(text: str, size: tuple[int, int], *, wheel: WheelUnits) -> Answer:
    words, blocks = answer_blocks(text)
    return decode_calls(blocks, words.removeprefix(ACTION_LINE), size, wheel)
