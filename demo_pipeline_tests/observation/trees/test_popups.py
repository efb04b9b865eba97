"""Tests of the target of a click on a menu item, for scans at different times.

The recording is simulated.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.observation.trees.ui_trees import build_ui_trees, read_tree_rows
from demo_pipeline_tests.observation.made import observe
from demo_pipeline_tests.simulator.desktop import Box, Desktop, Effect, Widget
from demo_pipeline_tests.simulator.recording import (
    GroundTruth,
    RecordingOptions,
    log_text,
    perform,
    write_recording,
)
from demo_pipeline_tests.simulator.script import Script, click, right_click, think
from demo_pipeline_tests.simulator.trees import scan
from demo_pipeline_tests.simulator.video import VideoOptions

ITEMS = ("Rename", "Copy", "Delete")
DESKTOP = Desktop(
    (
        Widget("Notes", "window", Box(200, 100, 1200, 800)),
        Widget(
            "Rows",
            "list",
            Box(240, 180, 900, 600),
            "Notes",
            rows=tuple(f"Notes of {month}" for month in ("May", "June", "July", "August")),
            on_right_click=(Effect("open", "Options"),),
        ),
        Widget("Options", "menu", Box(300, 300, 300, 210), initially_open=False),
        *(
            Widget(name, "menu_item", Box(310, 320 + 60 * line, 280, 50), "Options")
            for line, name in enumerate(ITEMS)
        ),
    )
)
STORY = Script(
    DESKTOP,
    (click("Rows/Notes of June"), right_click("Rows/Notes of May"), think(1.6), click("Rename")),
    lead_in_ms=2000,
    seed=3,
)
FILMED = RecordingOptions(
    width=1280, height=720, scan_every_s=None, video=VideoOptions(preset="ultrafast", variable=True)
)


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, GroundTruth]:
    """Returns the folder of a recording without scans, and what really happened in it."""
    folder = tmp_path_factory.mktemp("menu") / "demo"
    return folder, write_recording(folder, STORY, FILMED)


def step_on_menu(
    filmed: tuple[Path, GroundTruth], root: Path, scans: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """Returns the row of trees.parquet for the last step, on a menu item.

    Args:
        filmed: the recording without scans, and what really happened in it.
        root: folder for the recording with scans and its outputs.
        scans: (begin, duration) of each scan to add, milliseconds.
    """
    source, truth = filmed
    folder = root / "demo"
    out = root / "trees"
    for path in (folder, out):
        path.mkdir()
    for name in ("meta.json", "recording.mp4"):
        os.link(source / name, folder / name)
    log = folder / "input_log.jsonl"
    log.write_text("".join(_with_scans(source, scans)), encoding="utf-8")
    observed = observe(folder, root / "store", truth)
    events = observed.out / "events"
    actions = observed.out / "actions"
    build_ui_trees(log, FILMED.platform, events, actions, observed.evidence, out)
    return read_tree_rows(out)[-1]


def _with_scans(source: Path, scans: Sequence[tuple[int, int]]) -> list[str]:
    """Returns the lines of the log with added scans, whose lines are written when they end."""
    performance = perform(STORY, FILMED)
    written = []
    for number, (begin, duration) in enumerate(scans):
        line = scan(performance, FILMED.platform, begin, number)
        line["data"]["duration"] = duration
        written.append((begin + duration, log_text(line) + "\n"))
    log = (source / "input_log.jsonl").read_text(encoding="utf-8")
    written += [(json.loads(text)["time"], text) for text in log.splitlines(keepends=True)]
    return [text for _, text in sorted(written, key=lambda line: line[0])]


def moments(truth: GroundTruth) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Returns (begin, duration) of three scans.

    The scans run before the menu opened, while the menu was open, and during the last press.
    """
    opening = truth.actions[-2]
    aimed = truth.actions[-1]
    assert aimed.target_name == "Rename"
    assert aimed.press_ms - opening.end_ms > 1500
    return (
        (opening.press_ms - 600, 300),
        (opening.end_ms + 500, 500),
        (aimed.press_ms - 200, 600),
    )


def test_a_popup_over_the_scanned_element_has_no_name(
    filmed: tuple[Path, GroundTruth], tmp_path: Path
) -> None:
    """The scan ran before the popup opened, so its tree has a list row at the popup's place."""
    before, _, _ = moments(filmed[1])
    row = step_on_menu(filmed, tmp_path, [before])
    assert (row["scan_ms"], row["target_name"], row["target_method"]) == (before[0], None, "none")
    assert row["tree_agreement"] == "differs"


def test_a_scan_of_the_open_menu_is_the_steps_tree_and_names_the_item(
    filmed: tuple[Path, GroundTruth], tmp_path: Path
) -> None:
    before, open_menu, _ = moments(filmed[1])
    row = step_on_menu(filmed, tmp_path, [before, open_menu])
    assert (row["scan_ms"], row["freshness"]) == (open_menu[0], "fresh")
    assert (row["target_name"], row["target_role"]) == ("Rename", "menuitem")
    assert row["tree_agreement"] == "agrees"
    tree = (tmp_path / "trees" / row["file"]).read_text(encoding="utf-8")
    assert all(f'"{item}"' in tree for item in ITEMS)


def test_a_scan_that_is_running_at_the_press_is_not_used(
    filmed: tuple[Path, GroundTruth], tmp_path: Path
) -> None:
    before, _, running = moments(filmed[1])
    row = step_on_menu(filmed, tmp_path, [before, running])
    assert (row["scan_ms"], row["target_name"]) == (before[0], None)
    tree = (tmp_path / "trees" / row["file"]).read_text(encoding="utf-8")
    assert '"Rename"' not in tree
