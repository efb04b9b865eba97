"""Tests of drags that select whole words, in export formats that only have plain drags."""

from typing import Any

import pytest

from demo_pipeline.desktopd.models import DragParameters
from demo_pipeline.exports.agentnet_code import agentnet_code
from demo_pipeline.exports.answers import CLICKS_OF_BUTTON, InexpressibleError, answered
from demo_pipeline.exports.cua_lite_actions import lite_actions

ENDS: dict[str, Any] = {"start_x": 10, "start_y": 20, "end_x": 90, "end_y": 25}
SIZE = (1920, 1080)


@pytest.mark.parametrize("encode", [agentnet_code, lite_actions])
def test_a_word_by_word_drag_is_left_out_and_counted(encode):
    assert encode(answered(DragParameters(**ENDS)), SIZE)
    with pytest.raises(InexpressibleError) as error:
        encode(answered(DragParameters(**ENDS, clicks=2)), SIZE)
    assert error.value.reason == CLICKS_OF_BUTTON
