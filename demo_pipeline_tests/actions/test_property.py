"""Property tests: the actions are those that a simulated person intended, for any recorder."""

import os
import string
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from demo_pipeline.actions.action_tables import Action, read_actions
from demo_pipeline.actions.build_actions import (
    build_actions,
    check_action_tables,
    check_event_accounting,
)
from demo_pipeline.actions.repair import BORDER_RUN
from demo_pipeline.actions.text_evidence import TypingLanguage
from demo_pipeline.recording.events import build_events, check_line_accounting
from demo_pipeline.recording.key_names import Keyboard
from demo_pipeline.settings import ActionSettings
from demo_pipeline_tests.actions.person import Intent, Person, Recorder, log_of
from demo_pipeline_tests.actions.streams import whole
from demo_pipeline_tests.simulator.keys import Platform

PRINTABLE = "".join(chr(code) for code in range(32, 127))
ALONE = ("enter", "tab", "esc", "up", "down", "left", "right", "home", "end", "f5", "f11",
         "delete", "pageup", "pagedown")  # fmt: skip
CHORDS = (("ctrl",), ("alt",), ("ctrl", "shift"), ("alt", "shift"))

US = TypingLanguage(Keyboard("us"))


# Number of examples for each platform. `make property` sets thousands.
EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "40"))


def _clicks() -> st.SearchStrategy[Intent]:
    held = st.sampled_from([(), (), ("ctrl",), ("shift",), ("ctrl", "shift")])
    left = st.builds(Intent, st.just("click"), count=st.integers(1, 3), held=held)
    other = st.builds(Intent, st.just("click"), button=st.sampled_from(["Right", "Middle"]))
    return left | other


def _typing() -> st.SearchStrategy[Intent]:
    slips = st.lists(st.integers(0, 12), max_size=2).map(tuple)
    style = st.sampled_from(["rolling", "careful"])
    text = st.text(PRINTABLE, min_size=1, max_size=16)
    plain = st.builds(Intent, st.just("type"), text=text, slips=slips, style=style)
    letters = st.text(string.ascii_letters + " 1", min_size=1, max_size=10)
    caps = st.builds(Intent, st.just("type"), text=letters, style=st.just("caps_lock"))
    held = st.builds(Intent, st.just("repeat"), count=st.integers(2, 6),
                     keys=st.sampled_from([("a",), ("7",)]))  # fmt: skip
    return plain | plain | caps | held


def _keys(platform: Platform) -> st.SearchStrategy[Intent]:
    letters = st.lists(st.sampled_from("acvxz"), min_size=1, max_size=3).map(tuple)
    system = {"windows": (), "macos": (("command",), ("command", "shift")), "linux": (("win",),)}
    held = st.sampled_from([*CHORDS, *system[platform]])
    chords = st.builds(Intent, st.just("keys"), held=held, keys=letters)
    moves = st.sampled_from([("home",), ("end",), ("left", "left"), ("tab",)])
    selecting = st.builds(Intent, st.just("keys"), held=st.just(("shift",)), keys=moves)
    alone = st.builds(Intent, st.just("keys"), keys=st.lists(
        st.sampled_from(ALONE), min_size=1, max_size=3).map(tuple))  # fmt: skip
    arrows = st.builds(Intent, st.just("repeat"), count=st.integers(2, 5),
                       keys=st.sampled_from([("down",), ("right",), ("delete",)]))  # fmt: skip
    taps = {"windows": ("alt",), "macos": ("command",), "linux": ("win",)}
    tap = st.builds(Intent, st.just("tap"), keys=st.just(taps[platform]))
    return chords | selecting | alone | arrows | tap


def intents(platform: Platform) -> st.SearchStrategy[list[Intent]]:
    scroll = st.builds(Intent, st.just("scroll"), button=st.sampled_from(["up", "down"]),
                       count=st.integers(1, 8))  # fmt: skip
    held = st.sampled_from([(), (), ("shift",)])
    drag = st.builds(Intent, st.just("drag"), held=held)
    wait = st.builds(Intent, st.just("wait"), seconds=st.floats(0.1, 6))
    intent = _clicks() | _typing() | _keys(platform) | scroll | drag | wait
    return st.lists(intent, min_size=1, max_size=8).filter(_typing_stands_apart)


def _typing_stands_apart(chosen: list[Intent]) -> bool:
    """Returns whether no text directly follows another text. Both would become one action."""
    kinds = [_is_typing(intent) for intent in chosen if intent.verb != "wait"]
    return not any(a and b for a, b in pairwise(kinds))


def _is_typing(intent: Intent) -> bool:
    return intent.verb == "type" or (intent.verb == "repeat" and len(intent.keys[0]) == 1)


def recorders(platform: Platform) -> st.SearchStrategy[Recorder]:
    """Returns a strategy for the recorders of a platform.

    On macOS, recorders that log no moves while a button is held are included.
    """
    blind = st.just(Recorder("macos", 1, moves_while_held=False))
    watching = st.builds(
        Recorder,
        platform=st.just(platform),
        copies=st.integers(1, 3),
        lag_ms=st.integers(0, 2),
        xy_on_buttons=st.booleans(),
        wheel=st.sampled_from(["documented", "native"]),
        noise=st.booleans(),
    )
    return watching | blind if platform == "macos" else watching


def summary_of(action: Action) -> tuple[Any, ...]:
    held = tuple(action.modifiers)
    press = action.press_ms
    match action.action_type:
        case "click" | "double_click" | "right_click":
            what = (action.button, action.clicks, held)
            return ("click", *what, action.x, action.y, press)
        case "drag":
            ends = (action.x, action.y, action.end_x, action.end_y)
            return ("drag", action.button, held, *ends, press)
        case "scroll":
            return ("scroll", action.direction, action.amount, action.x, action.y, press)
        case "type":
            return ("type", action.text, press)
        case _:
            return (action.action_type, tuple(action.keys), action.presses, press)


def found_in(log: bytes, platform: str) -> tuple[list[Action], list[str]]:
    """Runs the stages `events` and `actions`, and returns the actions and the problems found."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "input_log.jsonl").write_bytes(log)
        build_events(folder / "input_log.jsonl", folder)
        build_actions(folder, folder, platform, ActionSettings(), language=US)
        problems = [
            *check_line_accounting(folder, folder / "input_log.jsonl"),
            *check_action_tables(folder),
            *check_event_accounting(folder, folder),
        ]
        return whole(read_actions(folder)), [str(problem) for problem in problems]


@pytest.mark.parametrize("platform", ["windows", "macos", "linux"])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_the_actions_are_the_intended_ones(platform, data, seed):
    person = Person(data.draw(recorders(platform)), seed)
    person.act(data.draw(intents(platform)))
    grouped, problems = found_in(log_of(person), platform)
    assert [summary_of(a) for a in grouped if a.action_type != "pause"] == person.truth
    assert problems == []


@settings(max_examples=20, deadline=None)
@given(drags=st.integers(1, 4), seed=st.integers(0, 2**32), copies=st.integers(1, 2))
def test_drags_without_moves_on_macos_end_at_the_next_pointer_position(drags, seed, copies):
    blind = Recorder("macos", copies, xy_on_buttons=False, moves_while_held=False)
    person = Person(blind, seed)
    person.act([Intent("drag"), Intent("click")] * drags)
    grouped, problems = found_in(log_of(person), "macos")
    assert [a.action_type for a in grouped if a.action_type != "pause"] == [
        "drag",
        "click",
    ] * drags
    meant = [truth for truth in person.truth if truth[0] == "drag"]
    for action, truth in zip((a for a in grouped if a.action_type == "drag"), meant, strict=True):
        assert (action.x, action.y) == truth[3:5]
        # In such a short log, the start may by chance have the largest x or y of all positions.
        assert [flag for flag in action.flags if flag != BORDER_RUN] == ["end_points_only"]
        assert (action.end_x, action.end_y) == pytest.approx(truth[5:7], abs=20)
    assert problems == []
