"""Tests of simulated recordings: the log and its ground truth."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.keys import key_name, stroke
from demo_pipeline_tests.simulator.performer import corrected
from demo_pipeline_tests.simulator.recording import perform, write_documents
from demo_pipeline_tests.simulator.script import click, type_text

PRINTABLE = "".join(chr(code) for code in range(32, 127))


def log_of(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "input_log.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


# --- the log


@pytest.mark.parametrize("platform", ["windows", "macos", "linux"])
@settings(max_examples=40, deadline=None)
@given(text=st.text(alphabet=PRINTABLE + "\b", min_size=1, max_size=25))
def test_the_logged_keys_spell_the_text(platform, text):
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


def test_scans_show_the_screen_of_their_time_and_are_written_when_they_end(tmp_path):
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
