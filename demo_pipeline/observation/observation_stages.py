"""Declares the stages `screenshots` and `ui_trees`: inputs, build function, checks and columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.recording_files import LOG_FILE, VIDEO_FILE
from demo_pipeline.observation.frames.evidence import read_evidence
from demo_pipeline.observation.frames.frames_table import FRAMES_SCHEMA, read_frames
from demo_pipeline.observation.frames.screenshot_checks import (
    check_frames_present,
    check_screenshot_digests,
    check_screenshot_files,
    check_screenshot_leaks,
)
from demo_pipeline.observation.frames.screenshots import build_screenshots
from demo_pipeline.observation.trees import ui_trees
from demo_pipeline.observation.trees.ui_trees import UI_TREES_SCHEMA
from demo_pipeline.problems import Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.stage import Check, Need, SourceInput, Stage, Summary


def _run_screenshots(inputs: RecordingInputs, out: Path) -> Summary:
    """Writes the screenshot of each action, evidence.json and the tables."""
    return build_screenshots(
        inputs.file(LOG_FILE),
        inputs.file(VIDEO_FILE),
        inputs.recording,
        inputs.folders["events"],
        inputs.folders["actions"],
        out,
        inputs.settings.observation,
        native=bool(inputs.source),
    )


def _run_ui_trees(inputs: RecordingInputs, out: Path) -> Summary:
    """Writes the UI tree of each action."""
    folder = inputs.folders["screenshots"]
    return ui_trees.build_ui_trees(
        inputs.file(LOG_FILE),
        inputs.recording.parsed_meta().platform,
        inputs.folders["events"],
        inputs.folders["actions"],
        read_evidence(folder),
        out,
        [folder / str(frame["file"]) for frame in read_frames(folder)],
    )


def _check_pictures(inputs: RecordingInputs, out: Path) -> Sequence[Problem]:
    return [
        *check_screenshot_files(out, inputs.folders["actions"]),
        *check_screenshot_digests(out),
    ]


def _check_frames(_: RecordingInputs, out: Path) -> Sequence[Problem]:
    return [*check_frames_present(out), *check_screenshot_leaks(out)]


def _check_trees(inputs: RecordingInputs, out: Path) -> Sequence[Problem]:
    """Checks the table of UI trees, and that the folder contains only the table and the trees.

    The files are checked only if the table has no problems.
    """
    problems = ui_trees.check_trees(out, inputs.folders["actions"])
    if problems:
        return problems
    names = {row["file"] for row in ui_trees.read_tree_rows(out)}
    return differing_files(out, {}, {ui_trees.UI_TREES_FILE, *names})


def _check_scans(_: RecordingInputs, out: Path) -> Sequence[Problem]:
    return [
        *ui_trees.check_scans_usable(out),
        *ui_trees.check_known_roles(out),
        *ui_trees.check_cursor(out),
    ]


def _native(workspace: Any, *_: object) -> SourceInput:
    """Returns the setting `screenshots.native` as an input of the stage.

    If the setting is on, screenshots are also written in the screen's own size. The recipe of the
    output names the setting only if it is on.
    """
    if workspace.settings.screenshots.native:
        return SourceInput(True, {"screenshots.native": "true"})
    return SourceInput(False, {})


SCREENSHOTS_STAGE: Stage[RecordingInputs] = Stage(
    name="screenshots",
    folder="screenshots",
    description="A screenshot of the screen before each action, 1920 by 1080 pixels, usually "
    "from the last still frame before the pointer started towards the target. "
    "Also the match between log times and video times, and the waits that the "
    "video shows.",
    kinds=frozenset({"opencv", "parquet"}),
    code_version="35",
    inputs=("raw_recordings", "events", "actions"),
    section=lambda settings: settings.observation,
    build=_run_screenshots,
    source=_native,
    checks=(
        Check(
            "pictures_schema",
            "There is one row for each action. Every screenshot is a PNG of 1920 by 1080 "
            "pixels with the recorded SHA-256.",
            _check_pictures,
            compared=("pictures",),
        ),
        Check(
            "frames_present",
            "Every action has a frame in the video. No screenshot shows the pointer at "
            "its target if an earlier frame does not.",
            _check_frames,
            blocking=False,
            compared=("pictures",),
        ),
    ),
    columns=FRAMES_SCHEMA,
    needs=frozenset({Need.UPLOADS}),
)


UI_TREES_STAGE: Stage[RecordingInputs] = Stage(
    name="ui_trees",
    folder="ui_trees",
    description="The accessibility tree at each action, from the newest scan that had "
    "finished by then, with roles and states of OSWorld-Desktopd and coordinates "
    "of the screenshot. Also the target element of each action.",
    kinds=frozenset({"json", "parquet"}),
    code_version="27",
    inputs=("raw_recordings", "events", "actions", "screenshots"),
    section=lambda settings: settings.observation,
    build=_run_ui_trees,
    checks=(
        Check(
            "trees_schema",
            "There is one tree for each action, and every tree is valid in "
            "OSWorld-Desktopd's format.",
            _check_trees,
            compared=("trees", "nodes"),
        ),
        Check(
            "scans_usable",
            "Every element of the scans can be read, every scan has an element with an "
            "area, and at most 1 % of the elements have an unknown role. The recorder's "
            "hit tests, at random points and at the pointer, agree with the tree.",
            _check_scans,
            blocking=False,
            compared=("trees", "nodes", "cursor_checked"),
        ),
    ),
    columns=UI_TREES_SCHEMA,
    needs=frozenset({Need.UPLOADS}),
)
