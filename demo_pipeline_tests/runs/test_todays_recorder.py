"""Tests that logs of today's recorder give the same outputs as logs in the documented format."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from demo_pipeline.actions.build_actions import build_actions
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.recording.events import build_events
from demo_pipeline.recording.meta import read_meta
from demo_pipeline.runs.stages import STAGE_BY_NAME
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.trajectories.provenance import read_hidden_actions
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.golden.outputs import RECORDINGS
from demo_pipeline_tests.named_stages import CUDAG_STAGE, MESSAGES_STAGE, SFT_STAGE
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace, run_all_stages
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import RecordingOptions, log_text, write_recording
from demo_pipeline_tests.simulator.script import (
    click,
    double_click,
    drag,
    hotkey,
    right_click,
    scroll,
    think,
    type_text,
)
from demo_pipeline_tests.simulator.todays_recorder import rewrite

Line = dict[str, Any]
TYPING = (click("Name"), type_text("Ab, c!"), hotkey("enter"))
POINTING = (click("Agree"), right_click("Rows/c"), scroll("Rows", 2), double_click("Rows/h"))
DRAGGING = (drag("Form/title bar", 60, 40), click("Agree"), scroll("Rows", -1))
VARIANTS: dict[str, RecordingOptions] = {
    "macos": replace(SMALL, platform="macos", wheel="recorder"),
    "variable": replace(
        SMALL, video=replace(SMALL.video, variable=True, video_start_s=1.1), ffmpeg_start_line=True
    ),
}
DATASETS = (INDEX_STAGE, SFT_STAGE, MESSAGES_STAGE, CUDAG_STAGE)


def write_both(uploads: Path) -> None:
    """Writes recordings of the same acts in the formats of two recorders, with different tasks."""
    for variant, options in VARIANTS.items():
        acts = script(*TYPING, *POINTING, *DRAGGING)
        variant_of_acts = replace(acts, title=variant, content=f"Please do {variant}.")
        write_recording(uploads / variant, variant_of_acts, options)


def built(workspace: Workspace, ids: Sequence[str]) -> dict[str, bytes]:
    """Builds trajectories and datasets; returns the content of each of their files."""
    for demonstration in ids:
        assert set(run_all_stages(workspace, demonstration).values()) == {"made"}
    outputs = [STAGE_BY_NAME["trajectories"].output(demonstration) for demonstration in ids]
    for stage in DATASETS:
        result = run_dataset_stage(workspace, stage)
        assert result.status == "made"
        outputs.append(result.output)
    files: dict[str, bytes] = {}
    for output in outputs:
        folder = (Path(workspace.settings.store) / output).resolve()
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files |= {f"{output}/{path.relative_to(folder)}": path.read_bytes() for path in paths}
    return files


def test_two_recorders_give_the_same_bytes_in_both_forms(tmp_path):
    old = tmp_path / "old"
    new = tmp_path / "new"
    write_both(old / "uploads")
    copy_of(old / "uploads", new / "uploads")
    ids = sorted(path.name for path in (old / "uploads").iterdir())
    for demonstration in ids:
        rewrite(new / "uploads" / demonstration, ffmpeg_lines=True)
    before, after = (built(open_workspace(root), ids) for root in (old, new))
    assert sum(name.endswith("action.json") for name in before) >= 18
    assert [name for name in before if before[name] != after.get(name)] == []
    assert before.keys() == after.keys()


@pytest.mark.parametrize("folder", sorted(RECORDINGS.glob("2*")), ids=lambda path: path.name)
def test_the_samples_have_the_same_actions_in_both_forms(folder, tmp_path):
    """All later outputs are made from the compared tables, the lines of scans, and meta.json."""
    new = copy_of(folder, tmp_path / folder.name)
    rewrite(new, ffmpeg_lines=True)
    for form, source in (("old", folder), ("new", new)):
        out = tmp_path / form
        settings = Settings()
        out.mkdir()
        meta, _ = read_meta((source / "meta.json").read_bytes())
        log = source / "input_log.jsonl"
        build_events(log, out, recorded_at=meta.timestamp)
        build_actions(out, out, meta.platform, settings.actions)
    for table in ("actions.parquet", "ledger.parquet"):
        assert pq.read_table(tmp_path / "old" / table) == pq.read_table(tmp_path / "new" / table)
    scans = [pq.read_table(tmp_path / form / "trees.parquet") for form in ("old", "new")]
    assert scans[0].drop(["byte_offset", "byte_length"]) == scans[1].drop(
        ["byte_offset", "byte_length"]
    )


def pointer(kind: str, time: int, at: tuple[float, float], **more: Any) -> Line:
    data = {"x": round(at[0]), "y": round(at[1]), **more}
    return {"event": kind, "data": data, "time": time}


def visit(time: int, begin: tuple[float, float], place: tuple[float, float]) -> Iterator[Line]:
    """Yields log lines: the pointer moves to a place, clicks, scrolls, and returns.

    Each movement takes 0.4 seconds.
    """
    ways = ((time, begin, place), (time + 900, place, begin))
    for start, first, last in ways:
        for part in range(1, 41):
            at = [a + (b - a) * part / 40 for a, b in zip(first, last, strict=True)]
            yield pointer("mousemove", start + 10 * part, (at[0], at[1]))
    for kind, after in (("mousedown", 550), ("mouseup", 620)):
        yield pointer(kind, time + after, place, button="Left")
    yield {"event": "mousewheel", "data": {"delta": 120}, "time": time + 750}


# Positions outside a screen of 640 x 360: left of it, above it, almost straight above the pointer,
# and right of it.
ELSEWHERE = ((-300, 140), (200, -250), (322, -90), (900, 200))
HERE = (320.0, 180.0)
WORK = (click("Agree"), think(9.0), click("Name"), think(2.2), click("Agree"))


def write_visits(folder: Path, places: Sequence[tuple[float, float]]) -> int:
    """Writes a recording in whose long pause the pointer visits these places.

    Returns the number of actions of the visits.
    """
    options = replace(SMALL, scan_every_s=None, ffmpeg_start_line=True)
    truth = write_recording(folder, script(*WORK), options)
    pause = next(pause for pause in truth.pauses if pause.end_ms - pause.start_ms > 8000)
    log = folder / "input_log.jsonl"
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    for number, place in enumerate(places):
        lines += visit(pause.start_ms + 600 + 1900 * number, HERE, place)
    lines.sort(key=lambda line: line["time"])
    log.write_text("".join(log_text(line) + "\n" for line in lines), "utf-8", newline="\n")
    return 2 * len(places)


def trajectory(root: Path) -> Path:
    assert set(run_all_stages(open_workspace(root), "demo").values()) == {"made"}
    return (root / "store" / "trajectories" / "demo").resolve()


@pytest.mark.parametrize("raw", [True, False])
def test_what_was_done_on_another_display_is_hidden(raw, tmp_path):
    folder = tmp_path / "uploads" / "demo"
    visits = write_visits(folder, ELSEWHERE)
    rewrite(folder, raw=raw, ffmpeg_lines=True)
    recorded = trajectory(tmp_path)
    hidden = read_hidden_actions(recorded).by_reason()
    assert sum(hidden.values()) == visits
    assert hidden.keys() <= ({"off_screen"} if raw else {"off_screen", "no_position"})
    kinds = [json.loads(path.read_bytes()) for path in sorted(recorded.glob("steps/*/action.json"))]
    assert [kind["action_type"] for kind in kinds] == ["click"] * 3


def test_a_click_on_the_border_that_was_aimed_at_is_a_step(tmp_path):
    """Such a target is the close button of a maximised window, or a corner that opens a menu."""
    folder = tmp_path / "uploads" / "demo"
    write_visits(folder, [(639, 0), (0, 100), (400, 359)])
    rewrite(folder, raw=False, ffmpeg_lines=True)
    recorded = trajectory(tmp_path)
    assert len(read_hidden_actions(recorded)) == 0
    kinds = [json.loads(path.read_bytes()) for path in sorted(recorded.glob("steps/*/action.json"))]
    places = [
        (kind["parameters"]["x"], kind["parameters"]["y"])
        for kind in kinds
        if kind["action_type"] == "click"
    ]
    assert {(1917, 0), (0, 300), (1200, 1077)} <= set(places)


def test_a_log_that_begins_with_a_press_is_processed(tmp_path):
    """The log also lacks `ffmpeg_stderr`, and its scans have an unknown format."""
    folder = tmp_path / "uploads" / "demo"
    write_recording(folder, script(*TYPING, click("Agree")), replace(SMALL, xy_on_buttons=False))
    rewrite(folder)
    log = folder / "input_log.jsonl"
    lines = log.read_text("utf-8").splitlines()
    press = {"event": "mousedown", "data": {"button": "Left"}, "time": 194}
    scan = {"event": "axtree_interaction", "data": {"app_status": "ok", "tree": []}, "time": 420}
    begin = [press, {**press, "event": "mouseup", "time": 262}, scan]
    lines = [log_text(line) for line in begin] + [
        line for line in lines if json.loads(line)["event"] != "axtree"
    ]
    log.write_text("\n".join(lines) + "\n", "utf-8", newline="\n")
    recorded = trajectory(tmp_path)
    assert len(list(recorded.glob("steps/*"))) == 5
