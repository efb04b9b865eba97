"""The simulated recordings: the log, and the ground truth about it."""

import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline_tests.simulator.form import SMALL, frames_of, script
from demo_pipeline_tests.simulator.frame_numbers import read_frame_number
from demo_pipeline_tests.simulator.keys import Platform, key_name, stroke
from demo_pipeline_tests.simulator.performer import corrected
from demo_pipeline_tests.simulator.recording import GroundTruth, perform, write_documents
from demo_pipeline_tests.simulator.samples import SAMPLES
from demo_pipeline_tests.simulator.script import click, scroll, type_text

COMMITTED = Path(__file__).resolve().parents[2] / "data" / "samples"
PRINTABLE = "".join(chr(code) for code in range(32, 127))


def log_of(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "input_log.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


# --- the log


@pytest.mark.parametrize("platform", ["windows", "macos", "linux"])
@settings(max_examples=40, deadline=None)
@given(text=st.text(alphabet=PRINTABLE + "\b", min_size=1, max_size=25))
def test_the_logged_keys_spell_the_text(platform: Platform, text: str) -> None:
    performance = perform(script(click("Name"), type_text(text)), replace(SMALL, platform=platform))
    names = {stroke(character, platform): character for character in PRINTABLE + "\b"}
    down: set[str] = set()
    spelled = ""
    for event in performance.events:
        key = event["data"].get("key")
        if event["event"] == "keydown":
            assert key not in down
            down.add(key)
            if key != key_name("shift", platform):
                spelled += names[key, key_name("shift", platform) in down]
        elif event["event"] == "keyup":
            down.remove(key)
    assert not down
    assert corrected(spelled) == corrected(text) == performance.actions[-1].parameters["text"]
    assert performance.timeline.states[-1].texts["Name"] == corrected("old" + text)


def test_input_is_in_time_order_and_pauses_are_the_only_long_silences() -> None:
    performance = perform(script(), SMALL)
    times = [event["time"] for event in performance.events]
    assert times == sorted(times)
    silent = [(a, b) for a, b in pairwise(times) if b - a >= 2000]
    assert silent == [(pause.start_ms, pause.end_ms) for pause in performance.pauses]
    assert [pause.kind for pause in performance.pauses] == ["wait", "think"]


def test_presses_lie_where_the_truth_says() -> None:
    performance = perform(script(), SMALL)
    presses = {e["time"]: e["data"] for e in performance.events if e["event"] == "mousedown"}
    for action in performance.actions:
        x = action.parameters.get("x", action.parameters.get("start_x"))
        y = action.parameters.get("y", action.parameters.get("start_y"))
        if x is not None and y is not None:
            assert action.target is not None
            assert action.target.contains(x, y)
        if x is not None and action.action_type != "scroll":
            assert (presses[action.press_ms]["x"], presses[action.press_ms]["y"]) == (x, y)


def test_the_truth_uses_the_words_of_the_trajectory_format() -> None:
    actions = perform(script(), SMALL).actions
    kinds = [action.action_type for action in actions]
    assert kinds[:6] == ["click", "click", "type", "hotkey", "click", "wait"]
    assert kinds[6:] == ["click", "right_click", "scroll", "drag", "click"]
    assert actions[1].parameters["clicks"] == 3
    assert actions[6].parameters["button"] == "middle"
    assert actions[8].parameters["direction"] == "down"
    assert actions[10].parameters["modifiers"] == ["ctrl"]
    assert [actions[n].target_role for n in (0, 1, 4, 7)] == [
        "checkbox",
        "textfield",
        "button",
        "listitem",
    ]


def test_recorders_that_log_less_or_otherwise() -> None:
    options = replace(SMALL, xy_on_buttons=False, wheel="recorder")
    events = perform(script(scroll("Rows", 2), scroll("Rows", -1), click("Agree")), options).events
    assert [e["data"] for e in events if e["event"] == "mousedown"] == [{"button": "Left"}]
    deltas = [e["data"]["delta"] for e in events if e["event"] == "mousewheel"]
    assert deltas == [-1, -1, 1]
    documented = perform(script(scroll("Rows", 2)), SMALL).events
    assert [e["data"]["delta"] for e in documented if "delta" in e["data"]] == [120, 120]


def test_scans_show_the_screen_of_their_time_and_are_written_when_they_end(tmp_path: Path) -> None:
    options = replace(SMALL, scan_every_s=1.0, ffmpeg_start_line=True)
    truth = write_documents(tmp_path / "demo", script(), options)
    lines = log_of(tmp_path / "demo")
    written = [line["time"] + line["data"].get("duration", 0) for line in lines]
    assert written == sorted(written)
    scans = [line for line in lines if line["event"] == "axtree"]
    assert len(scans) > 10
    for scan in scans:
        moment = truth.timeline.at(scan["time"])
        nodes = list(_nodes(scan["data"]["tree"][0]))
        windows = [node["name"] for node in nodes if node["role"] == "Window"]
        assert windows == list(moment.state.windows)[::-1]
        fields = [node["value"] for node in nodes if node["role"] == "Edit"]
        assert fields == [moment.state.texts.get("Name", "")]
        position = scan["data"]["queries"]["cursor"]["position"]
        assert (position["x"], position["y"]) == moment.pointer


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node["children"]:
        yield from _nodes(child)


# --- the samples


@pytest.fixture(scope="module", params=sorted(SAMPLES))
def sample(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, GroundTruth]:
    """(committed folder, regenerated folder without video, truth)."""
    made = tmp_path_factory.mktemp("samples") / request.param
    truth = write_documents(made, *SAMPLES[request.param]())
    return COMMITTED / request.param, made, truth


def test_committed_samples_are_what_the_code_makes(sample: tuple[Path, Path, GroundTruth]) -> None:
    committed, made, truth = sample
    for name in ("input_log.jsonl", "meta.json"):
        assert (committed / name).read_bytes() == (made / name).read_bytes()
    decoded = [
        (pts, read_frame_number(luma)) for pts, luma in frames_of(committed / "recording.mp4")
    ]
    assert decoded == [(frame.pts, frame.number) for frame in truth.frames]


def test_samples_stay_small_and_readable(sample: tuple[Path, Path, GroundTruth]) -> None:
    committed, _, truth = sample
    assert 25 <= (truth.end_ms - truth.timestamp_ms) / 1000 <= 35
    assert sum(file.stat().st_size for file in committed.iterdir()) < 700_000
    assert {stat.S_IMODE(file.stat().st_mode) & 0o444 for file in committed.iterdir()} == {0o444}


def test_samples_hold_every_kind_of_action() -> None:
    truths = [perform(*make()) for make in SAMPLES.values()]
    kinds = {action.action_type for truth in truths for action in truth.actions}
    assert kinds == {
        "click",
        "double_click",
        "right_click",
        "drag",
        "scroll",
        "type",
        "hotkey",
        "wait",
    }
    assert {pause.kind for truth in truths for pause in truth.pauses} == {"wait", "think"}
    typed = [a.parameters["text"] for t in truths for a in t.actions if a.action_type == "type"]
    assert typed == ["Notebook", "Please wrap it, Anna!", "Report_March, final.txt"]
