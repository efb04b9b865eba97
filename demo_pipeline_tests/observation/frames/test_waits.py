"""Waits and thinking, distinguished by when the screen changed."""

import pytest

from demo_pipeline.observation.frames.waits import is_wait, rest_start

BUSY = [1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4]


def test_the_screen_comes_to_rest_at_the_end_of_its_last_busy_stretch() -> None:
    assert rest_start(BUSY, []) == 2.4
    assert rest_start(BUSY, [5.0]) == 5.0
    assert rest_start([*BUSY, 9.0], []) == 2.4  # a single change is not a busy stretch


def test_a_blinking_text_cursor_is_no_change() -> None:
    assert rest_start([0.5 * blink for blink in range(20)], []) is None
    assert rest_start([], []) is None


@pytest.mark.parametrize(
    ("settled", "press", "expected"),
    [
        (3.0, 3.6, True),  # three seconds of loading, then a click
        (1.5, 2.5, True),
        (0.4, 2.5, False),  # the action's own effect, then two seconds of thinking
        (1.2, 9.0, False),  # loaded long ago
        (2.5, 9.0, True),  # but what loads for so long was waited for
        (3.0, 2.9, False),  # not settled before the next action
        (None, 5.0, False),
    ],
)
def test_a_wait_ends_soon_after_the_screen_settled(
    settled: float | None, press: float, expected: bool
) -> None:
    assert is_wait(settled, 0.0, press, press - 0.1) is expected
