"""Tests of finding clock steps, and of logs that only look as if the clock had been set."""

import io
from typing import Any

import pytest

from demo_pipeline.actions.grouping import segment
from demo_pipeline.actions.inputs import as_input, in_order
from demo_pipeline.actions.keyboard_stretches import Keyboards
from demo_pipeline.actions.repair import repair
from demo_pipeline.recording.clock_steps import clock_step_problems, find_clock_steps, moved_events
from demo_pipeline.recording.input_log import Event, parse_log
from demo_pipeline.recording.key_names import Keyboard
from demo_pipeline.settings import ActionSettings
from demo_pipeline_tests.actions.streams import lift, move, press, tap, text_of

START_MS = 10_000_000
FILMED = (START_MS - 1000.0, START_MS + 5000.0)
WORK: list[dict[str, Any]] = [
    *(press(0, 10, 10), lift(100, 10, 10)),
    *(move(300 + 20 * n, 10 + 4 * n, 10) for n in range(10)),
    *(press(600, 100, 100), *(move(620 + 20 * n, 100 + 10 * n, 100) for n in range(20))),
    *(lift(1050, 300, 100), *tap(2000, "KeyA"), *tap(2200, "KeyB")),
]
REST = next(n for n, line in enumerate(WORK) if line["time"] == 2000)


def read(lines: list[dict[str, Any]]) -> tuple[list[Any], list[str]]:
    """Returns the clock steps of a log, and the types of its actions in order.

    Typing that continues after a pause counts as one action.
    """
    timed = [{**line, "time": START_MS + line["time"]} for line in lines]
    events = list(parse_log(io.BytesIO(text_of(timed))))
    steps = find_clock_steps(events, FILMED)
    moved = [row for row in moved_events(events, steps) if isinstance(row, Event)]
    settings = ActionSettings()
    inputs, _ = repair(in_order([as_input(event) for event in moved]), "windows", settings)
    segmented = segment(
        inputs,
        "windows",
        settings,
        Keyboards.of(Keyboard("us")),
        clock_steps=[step.line for step in steps],
    )
    kept = [action for action in segmented.actions if "continued" not in action.flags]
    return steps, [action.action_type for action in kept]


def stepped(at: int, step_ms: int) -> list[dict[str, Any]]:
    return [{**line, "time": line["time"] + step_ms * (n >= at)} for n, line in enumerate(WORK)]


@pytest.mark.parametrize("step_ms", [-3_600_000, -800, 2_400_000])
def test_a_step_before_any_line_changes_no_action(step_ms):
    """A small step back during a longer pause of the person is not found, but harmless."""
    for at in range(1, len(WORK)):
        steps, actions = read(stepped(at, step_ms))
        assert [step.line for step in steps] == [at + 1] * (at != REST or step_ms != -800)
        assert actions == ["click", "drag", "type"], at
        assert all(abs(step.moved_ms + step_ms) <= 1500 for step in steps)


@pytest.mark.parametrize("step_ms", [-3_600_000, -800, 2_400_000])
def test_a_step_between_the_lines_of_two_hooks_makes_no_second_action(step_ms):
    """Two hooks log each event of the pointer, but a single hook logs each event of the keys."""
    lines = []
    for line in WORK:
        is_key = "key" in line["data"]
        lines += [line] if is_key else [line, line]
    for at in range(1, 2 * REST, 2):
        moved = [
            {**line, "time": line["time"] + step_ms * (n >= at)} for n, line in enumerate(lines)
        ]
        steps, actions = read(moved)
        assert [step.line for step in steps] == [at + 1]
        assert actions == ["click", "drag", "type"], at


def test_the_problem_of_a_clock_step_names_its_line():
    steps, _ = read(stepped(20, -3_600_000))
    [problem] = clock_step_problems(steps)
    assert problem.line == 21
    assert "set back by about 3600.0 s" in problem.message


def test_a_clock_that_is_set_back_again_has_its_earlier_offset():
    lines = [
        {**line, "time": line["time"] + 2_400_000 * (14 <= n < 24)} for n, line in enumerate(WORK)
    ]
    steps, actions = read(lines)
    assert [(step.line, step.moved_ms) for step in steps] == [(15, -2_400_000), (25, 0)]
    assert actions == ["click", "drag", "type"]


LATE: dict[str, list[dict[str, Any]]] = {
    "in order": WORK,
    "a hook of its own that is late": [*WORK[:REST], *tap(700, "KeyZ"), *WORK[REST:]],
    "a buffer written backwards": [*tap(400, "KeyC"), *tap(200, "KeyB"), *tap(0, "KeyA")],
    "overtaken in a queue": [move(500, 5, 5), move(400, 4, 4), move(600, 6, 6)],
    "a film that ended early": [*WORK, *(move(40_000 + 500 * n, n, n) for n in range(60))],
}


@pytest.mark.parametrize("kind", LATE)
def test_logs_without_a_clock_step(kind):
    assert read(LATE[kind])[0] == []
