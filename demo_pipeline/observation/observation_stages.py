"""The stages `screenshots` and `ui_trees`: their declarations."""

from pathlib import Path
from typing import Any

from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.recording_files import LOG_FILE, VIDEO_FILE
from demo_pipeline.observation.frames import screenshots
from demo_pipeline.observation.frames.picture_checks import check_picture_digests
from demo_pipeline.observation.frames.screenshots import FRAMES_SCHEMA
from demo_pipeline.observation.trees import ui_trees
from demo_pipeline.observation.trees.ui_trees import UI_TREES_SCHEMA
from demo_pipeline.problems import Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.stage import (
    Check,
    Need,
    SourceInput,
    Stage,
    Summary,
    joined,
)


def _run_screenshots(inputs: RecordingInputs, out: Path) -> Summary:
    """The picture of each action, whose digest is known since it was written."""
    return screenshots.build_screenshots(
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
    """A tree per action."""
    folder = inputs.folders["screenshots"]
    return ui_trees.build_ui_trees(
        inputs.file(LOG_FILE),
        inputs.recording.parsed_meta().platform,
        inputs.folders["events"],
        inputs.folders["actions"],
        screenshots.read_evidence(folder),
        out,
        [folder / str(frame["file"]) for frame in screenshots.read_frames(folder)],
    )


def _check_trees(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """What is wrong with the trees; other files are looked for once their table can be read."""
    problems = ui_trees.check_trees(out, inputs.folders["actions"])
    if problems:
        return problems
    names = {row["file"] for row in ui_trees.read_tree_rows(out)}
    return differing_files(out, {}, {ui_trees.UI_TREES_FILE, *names})


def _native(workspace: Any, *_: object) -> SourceInput:
    """Whether the screen's own pictures are kept; only then the recipe says so."""
    native = workspace.settings.screenshots.native
    return SourceInput(native, {"screenshots.native": "true"} if native else {})


SCREENSHOTS_STAGE: Stage[RecordingInputs] = Stage(
    name="screenshots",
    folder="screenshots",
    description="The screen before each action, 1920 by 1080, from the last frame before the "
    "pointer started towards the target; the calibration, and the waits that the video shows.",
    kinds=frozenset({"opencv", "parquet"}),
    code_version="31",
    inputs=("raw_recordings", "events", "actions"),
    section=lambda settings: settings.observation,
    build=_run_screenshots,
    source=_native,
    checks=(
        Check(
            "pictures_schema",
            "There is one row per action, and every screenshot is a PNG of the canvas's size with "
            "the digest that was noted.",
            joined(
                lambda inputs, out: screenshots.check_screenshot_files(
                    out, inputs.folders["actions"]
                ),
                lambda _, out: check_picture_digests(out),
            ),
            compared=("pictures",),
        ),
        Check(
            "frames_present",
            "No action is outside the video, and no screenshot shows the pointer at its target "
            "where an earlier frame does not.",
            joined(
                lambda _, out: screenshots.check_frames_present(out),
                lambda _, out: screenshots.check_screenshot_leaks(out),
            ),
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
    description="The current accessibility scan at each action, with the roles and states of "
    "OSWorld-Desktopd and in canvas coordinates, and the target element of the action.",
    kinds=frozenset({"json", "parquet"}),
    code_version="24",
    inputs=("raw_recordings", "events", "actions", "screenshots"),
    section=lambda settings: settings.observation,
    build=_run_ui_trees,
    checks=(
        Check(
            "trees_schema",
            "There is one tree per action; each fits OSWorld-Desktopd.",
            _check_trees,
            compared=("trees", "nodes"),
        ),
        Check(
            "scans_usable",
            "Every scan of a step can be read and has an area, at most 1 % of its nodes have an "
            "unknown role, and the hit test finds the same element as the recorder's own.",
            joined(
                lambda _, out: ui_trees.check_scans_usable(out),
                lambda _, out: ui_trees.check_known_roles(out),
                lambda _, out: ui_trees.check_cursor(out),
            ),
            blocking=False,
            compared=("trees", "nodes", "cursor_checked"),
        ),
    ),
    columns=UI_TREES_SCHEMA,
    needs=frozenset({Need.UPLOADS}),
)
