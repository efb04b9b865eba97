"""Tests that actions become steps or hidden actions, with positions on the canvas."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.scrolls import WheelVote
from demo_pipeline.desktopd.models import ScrollParameters
from demo_pipeline.observation.clock.canvas import fit_canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.evidence import Evidence, Hover, HoverPlace, Wait
from demo_pipeline.observation.frames.video_reader import Span
from demo_pipeline.trajectories.steps import Steps, build_steps

WIDE = fit_canvas((3440, 1440), 1.0)  # with bars of 138 pixels above and below
CLOCK = Clock(0, "pixels", 30, score=0.9, moves=40)
TARGET = {"target_id": "node_7", "target_role": "button", "target_name": "Place\n order"}
NO_TARGET = {**dict.fromkeys(TARGET), "target_method": "none"}
FILMED = Span(0.0, 5.0)
NO_VOTE = WheelVote()
AT = {"x": 960, "y": 540}
SAID = "at (960, 540)"
DRAGGED = {"start_x": 960, "start_y": 540}


def act(kind: str, **fields: Any) -> Action:
    place = {} if kind in {"type", "hotkey", "pause"} else {"x": 1720.0, "y": 720.0}
    return Action(kind, 1000, 1100, [1], **{**place, **fields})


def stepped(
    *actions: Action,
    target: dict[str, Any] = NO_TARGET,
    missing: tuple[int, ...] = (),
    waits: tuple[Wait, ...] = (),
    trees: Sequence[dict[str, Any]] = (),
    wheel: WheelVote = NO_VOTE,
    hovers: tuple[Hover, ...] = (),
) -> Steps:
    for index, action in enumerate(actions):
        action.action_index = index
    evidence = Evidence(
        clock=CLOCK, canvas=WIDE, waits=waits, screen_changes_s=(), wheel=wheel, hovers=hovers
    )
    frames: list[dict[str, Any]] = []
    for number in range(len(actions)):
        file = None if number in missing else f"{number:03d}.png"
        frames.append({"file": file})
    rows = trees or [target] * len(actions)
    return build_steps(actions, frames, rows, evidence, FILMED)


@pytest.mark.parametrize(
    ("action", "parameters", "sentence"),
    [
        (act("click", button="left", clicks=1), {**AT, "button": "left"}, ""),
        (act("click", button="middle", clicks=1), {**AT, "button": "middle"}, ""),
        (act("click", button="left", clicks=3), {**AT, "button": "left", "clicks": 3}, ""),
        (
            act("click", button="left", clicks=1, modifiers=["ctrl", "shift"]),
            {**AT, "button": "left", "modifiers": ["ctrl", "shift"]},
            "",
        ),
        (act("double_click", clicks=2, button="left"), AT, ""),
        (act("right_click", clicks=1, button="right"), AT, ""),
        (
            act("drag", end_x=0.0, end_y=0.0, button="left"),
            {**DRAGGED, "end_x": 0, "end_y": 138},
            "Drag from (960, 540) to (0, 138).",
        ),
        (
            act("drag", end_x=3439.0, end_y=1439.0, button="right"),
            {**DRAGGED, "end_x": 1919, "end_y": 941, "button": "right"},
            "Drag from (960, 540) to (1919, 941) with the right button.",
        ),
        (
            act("scroll", direction="down", amount=3),
            {**AT, "direction": "down", "amount": 3},
            "Scroll down 3 notches.",
        ),
        (act("type", text="secret words"), {"text": "secret words"}, ""),
        (act("hotkey", keys=["ctrl", "a"]), {"keys": ["ctrl", "a"]}, "Press Ctrl+A."),
        (act("hotkey", keys=["enter"], presses=1), {"keys": ["enter"]}, "Press Enter."),
        (
            act("hotkey", keys=["down"], presses=7),
            {"keys": ["down"], "presses": 7},
            "Press Down 7 times.",
        ),
    ],
)
def test_each_kind_of_action(action, parameters, sentence):
    (step,) = stepped(action).steps
    written = step.written.model_dump(mode="json")
    assert written["action_type"] == action.action_type
    assert written["parameters"] == parameters
    assert written["reasoning"] == sentence
    assert written["target_element"] is None
    assert "secret" not in written["reasoning"]


def test_a_press_that_was_never_released_is_not_a_step():
    built = stepped(act("click", button="left", clicks=1, flags=["never_released"]))
    assert not built.steps
    assert built.left_out["never_released"] == 1


def test_a_drag_that_selects_words_has_its_number_of_clicks():
    (step,) = stepped(act("drag", end_x=900.0, end_y=500.0, button="left", clicks=2)).steps
    assert step.written.parameters.model_dump()["clicks"] == 2


@pytest.mark.parametrize(("role", "kind"), [("button", "hotkey"), ("textfield", "type")])
def test_a_space_presses_a_button_and_is_text_in_a_field(role, kind):
    (step,) = stepped(act("type", text=" "), target={**TARGET, "target_role": role}).steps
    assert step.written.action_type == kind
    if kind == "hotkey":
        assert step.written.parameters.model_dump()["keys"] == ["space"]


def test_the_sentence_of_a_wait_names_the_target_of_the_next_step():
    click = {"button": "left", "clicks": 1}
    actions = act("click", **click), act("pause", seconds=3.0), act("click", **click)
    for acted_on, sentence in ((True, 'Wait for the "Place order" button.'), (False, "")):
        wait = Wait(action_index=1, seconds=3.0, settled_s=9.0, acted_on=acted_on)
        built = stepped(*actions, trees=[NO_TARGET, NO_TARGET, TARGET], waits=(wait,))
        assert built.steps[1].written.reasoning == sentence


def test_a_pause_is_a_step_only_when_it_was_a_wait():
    evidence = Wait(action_index=1, seconds=3.25, settled_s=9.0)
    click = {"button": "left", "clicks": 1}
    built = stepped(
        act("click", **click),
        act("pause", seconds=3.25),
        act("pause", seconds=2.5),
        act("click", **click),
        waits=(evidence,),
    )
    kinds = [str(step.written.action_type) for step in built.steps]
    assert kinds == ["click", "wait", "click"]
    assert built.steps[1].written.parameters.model_dump() == {"seconds": 3.25}
    assert [step.written.step_index for step in built.steps] == [0, 1, 2]
    assert built.left_out["thinking_pause"] == 1


def test_the_target_is_named_in_one_line():
    (step,) = stepped(act("click", button="left", clicks=1), target=TARGET).steps
    assert step.written.target_element is not None
    assert step.written.target_element.id == "node_7"
    assert step.written.reasoning == 'Click the "Place order" button.'


@pytest.mark.parametrize(
    ("positive", "direction", "method", "expected"),
    [
        ("up", "up", "unit_signature", ("up", False)),
        ("down", "up", "unit_signature", ("down", True)),
        ("down", "up", "override", ("up", True)),
        (None, "up", "unit_signature", ("up", None)),
    ],
)
def test_a_step_records_whether_video_and_rule_disagree_on_the_wheel(
    positive, direction, method, expected
):
    scroll = act("scroll", direction=direction, amount=2, wheel_sum=2.0, wheel_method=method)
    click = act("click", button="left", clicks=1)
    built = stepped(scroll, click, wheel=WheelVote(positive, 4, 4)).steps
    assert isinstance(built[0].written.parameters, ScrollParameters)
    assert (built[0].written.parameters.direction, built[0].wheel_disagrees) == expected
    assert built[1].wheel_disagrees is None


@pytest.mark.parametrize(
    ("votes", "method", "is_hidden"),
    [(1, "unit_signature", True), (2, "unit_signature", False), (1, "override", False)],
)
def test_a_single_scroll_against_the_rule_is_left_out(votes, method, is_hidden):
    scroll = act("scroll", direction="up", amount=2, wheel_sum=2.0, wheel_method=method)
    built = stepped(scroll, wheel=WheelVote("down", votes, votes))
    if is_hidden:
        assert built.hidden.by_reason() == {"unclear_scroll": 1}
        assert len(built.steps) == 0
    else:
        assert built.hidden.by_reason() == {}
        assert len(built.steps) == 1
    assert built.doubtful_scrolls == is_hidden


def test_a_sideways_scroll_is_a_step_whatever_a_single_vertical_one_shows():
    scroll = act("scroll", direction="up", amount=2, wheel_sum=2.0, wheel_method="unit_signature")
    index = scroll.action_index
    [step] = stepped(scroll, wheel=WheelVote("down", 1, 1, {index: "left"})).steps
    assert isinstance(step.written.parameters, ScrollParameters)
    assert step.written.parameters.direction == "left"


def test_a_setting_gives_the_direction_of_a_scroll_whose_unit_the_video_shows():
    unclear = {"direction": "up", "wheel_sum": 3.0, "flags": ["unclear_wheel_unit"]}
    [step] = stepped(
        act("scroll", amount=3, wheel_method="override", **unclear),
        wheel=WheelVote(unclear={0: ("down", "notch")}),
    ).steps
    assert isinstance(step.written.parameters, ScrollParameters)
    assert (step.written.parameters.direction, step.written.parameters.amount) == ("up", 3)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (act("click", x=-5.0, button="left"), "off_screen"),
        (act("click", y=1440.0, button="left"), "off_screen"),
        (act("drag", end_x=4000.0, end_y=5.0, button="left"), "off_screen"),
        (act("click", x=None, button="left"), "no_position"),
        (act("drag", end_x=None, end_y=None, button="left"), "no_position"),
    ],
)
def test_actions_off_screen_or_without_position_are_left_out_and_counted(action, reason):
    built = stepped(act("hotkey", keys=["enter"]), action)
    assert len(built.steps) == 1
    assert {name for name, count in built.left_out.items() if count} == {reason}


@pytest.mark.parametrize(
    ("press_ms", "reason"),
    [
        (-400, "before_video"),
        (0, "before_video"),
        (1, "undecodable"),
        (5000, "undecodable"),
        (5001, "after_video"),
    ],
)
def test_an_action_without_a_frame_is_hidden_with_the_reason(press_ms, reason):
    late = replace(act("type", text="x"), press_ms=press_ms)
    built = stepped(act("hotkey", keys=["enter"]), late, missing=(1,))
    assert [step.action.action_index for step in built.steps] == [0]
    assert built.hidden.by_reason() == {reason: 1}
    assert built.left_out[reason] == 1


CLICK = {"button": "left", "clicks": 1}
ELSEWHERE = {"x": -900.0, **CLICK}
FOCUS = {
    **TARGET,
    "target_method": "focused",
    "target_x": 100,
    "target_y": 200,
    "target_width": 300,
    "target_height": 40,
}


def kinds(steps: Steps) -> list[str]:
    return [str(step.written.action_type) for step in steps.steps]


def test_hidden_actions_have_the_index_of_the_step_after_them():
    built = stepped(
        act("click", **ELSEWHERE),
        act("click", **CLICK),
        act("pause", seconds=3.0),
        act("scroll", x=-1.0, direction="up", amount=1),
        act("drag", **ELSEWHERE, end_x=-2.0, end_y=3.0),
        act("click", **CLICK),
        act("click", x=None, button="left"),
    )
    places = [
        (action.before_step, action.action_index, action.action_type)
        for action in built.hidden.actions
    ]
    assert places == [(0, 0, "click"), (1, 3, "scroll"), (1, 4, "drag"), (2, 6, "click")]
    assert built.neither == {"thinking_pause": 1}


def test_keys_after_a_click_on_another_display_are_hidden_until_a_click_on_this_one():
    built = stepped(
        act("type", text="here"),
        act("click", **ELSEWHERE),
        act("type", text="secret words"),
        act("hotkey", keys=["enter"]),
        act("click", **CLICK),
        act("type", text="here again"),
    )
    assert kinds(built) == ["type", "click", "type"]
    assert [action.action_type for action in built.hidden.actions] == ["click", "type", "hotkey"]
    assert built.hidden.by_reason() == {"off_screen": 3}


def test_a_scroll_on_another_display_does_not_take_the_keyboard_there():
    scroll = act("scroll", x=-9.0, direction="down", amount=2)
    built = stepped(act("click", **CLICK), scroll, act("type", text="x"))
    assert kinds(built) == ["click", "type"]


def test_a_click_at_an_unknown_place_does_not_hide_the_keys_after_it():
    built = stepped(act("click", x=None, button="left"), act("type", text="x"))
    assert kinds(built) == ["type"]


@pytest.mark.parametrize(
    ("focus", "steps"),
    [
        (FOCUS, ["type", "hotkey"]),
        ({**FOCUS, "target_method": "last_click"}, []),
        ({**FOCUS, "target_x": -900}, []),
        ({**FOCUS, "target_y": 1080}, []),
        ({**FOCUS, "target_y": 942}, []),  # in the lower bar: below the recorded screen
        ({**FOCUS, "target_id": None}, []),
    ],
)
def test_keys_are_shown_again_when_a_scan_has_the_focus_on_the_recorded_screen(focus, steps):
    actions = act("click", **ELSEWHERE), act("type", text="x"), act("hotkey", keys=["enter"])
    built = stepped(*actions, trees=[NO_TARGET, focus, NO_TARGET])
    assert kinds(built) == steps


def test_typing_over_one_screen_is_one_step_and_over_two_screens_two():
    texts = [act("type", text=text) for text in ("q", "ls")]
    for index, action in enumerate(texts):
        action.action_index = index
    canvas = WIDE
    evidence = Evidence(clock=CLOCK, canvas=canvas, waits=(), screen_changes_s=())
    for code, expected in (("continued", ["qls"]), ("settled", ["q", "ls"])):
        file = None if code == "continued" else "001.png"
        frames: list[dict[str, Any]] = [{"file": "000.png"}, {"file": file, "reason_code": code}]
        built = build_steps(texts, frames, [NO_TARGET] * 2, evidence, FILMED)
        assert [step.action.text for step in built.steps] == expected
        assert len(built.hidden) == 0


def test_a_step_has_the_position_and_the_element_over_which_the_pointer_rested() -> None:
    hover = Hover(action_index=0, places=(HoverPlace(0.0, 0.0, 700.0),))
    menu = {"hover_id": "node_3", "hover_role": "menu", "hover_name": "Orders"}
    (step,) = stepped(act("click", button="left"), hovers=(hover,), target=TARGET | menu).steps
    assert [(place.x, place.y, place.since_ms) for place in step.hovered] == [(0, 138, 700)]
    expected = 'Hover over the "Orders" menu and click the "Place order" button.'
    assert step.written.reasoning == expected


def test_a_hover_outside_the_recorded_screen_is_left_out() -> None:
    hover = Hover(action_index=0, places=(HoverPlace(5000.0, 0.0, 700.0),))
    (step,) = stepped(act("click", button="left"), hovers=(hover,), target=TARGET).steps
    assert step.hovered == ()
    assert step.written.reasoning == 'Click the "Place order" button.'
