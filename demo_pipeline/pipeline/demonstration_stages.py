"""The registry of the stages of a demonstration, in the order in which they run.

Belongs here: one entry per stage. What a stage computes is in demonstration_builds.py and the
packages below; how it is run is in runner.py.
"""

from collections.abc import Mapping

from demo_pipeline.actions.action_tables import ACTIONS_SCHEMA
from demo_pipeline.observation.frames.screenshots import FRAMES_SCHEMA
from demo_pipeline.observation.trees.ui_trees import UI_TREES_SCHEMA
from demo_pipeline.pipeline import demonstration_builds as builds
from demo_pipeline.pipeline.stage_types import Check, Stage
from demo_pipeline.recording.input_log import EVENTS_SCHEMA
from demo_pipeline.settings import Section
from demo_pipeline.trajectories.provenance import PROVENANCE_SCHEMA

RAW_RECORDINGS_STAGE = Stage(
    name="raw_recordings",
    folder="recordings",
    description="The three uploaded files, verified: all present, meta.json valid, the video "
    "probed by decoding, each with its SHA-256. Writes `recordings/<id>/manifest.json`.",
    group="recording",
    kinds=frozenset({"json", "video"}),
    code_version="3",
    inputs=(),
    section=lambda settings: settings.recording,
    build=builds.run_raw_recordings,
    checks=(
        Check(
            "files_verified",
            "The written manifest is valid, and the three files still have the SHA-256 in it.",
            builds.verify_files,
            compared=("bytes",),
        ),
    ),
    reads_uploads=True,
)

EVENTS_STAGE = Stage(
    name="events",
    folder="events",
    description="Every line of input_log.jsonl as a typed row, or as a rejected line with the "
    "reason; offset, length and time of every accessibility scan in the log.",
    group="recording",
    kinds=frozenset({"parquet"}),
    code_version="4",
    inputs=("raw_recordings",),
    section=lambda settings: settings.recording,
    build=builds.run_events,
    checks=(
        Check(
            "events_schema",
            "The three tables have exactly the declared columns, types and nulls.",
            builds.verify_event_tables,
            compared=("events", "rejected_lines"),
        ),
        Check(
            "every_line_accounted",
            "Every line of the log is one event or one rejected line.",
            builds.verify_lines,
            compared=("lines",),
        ),
        Check(
            "no_rejected_lines",
            "No line was rejected. A rejected line affects no other line.",
            builds.verify_no_rejected_lines,
            blocking=False,
            compared=("lines",),
        ),
        Check(
            "time_in_milliseconds",
            "The log counts time in epoch milliseconds. Other units are converted.",
            builds.verify_time_unit,
            blocking=False,
            compared=("events",),
        ),
    ),
    columns=EVENTS_SCHEMA,
    reads_uploads=True,
)

ACTIONS_STAGE = Stage(
    name="actions",
    folder="actions",
    description="What the person did: clicks, drags, scrolls, typed text, hotkeys and pauses, "
    "each with the input events it was built from; the accounting of every input event.",
    group="actions",
    kinds=frozenset({"parquet"}),
    code_version="6",
    inputs=("raw_recordings", "events"),
    section=lambda settings: settings.actions,
    build=builds.run_actions,
    checks=(
        Check(
            "actions_schema",
            "The tables have the declared columns; actions are in order and complete.",
            builds.verify_action_tables,
            compared=("actions", "pauses"),
        ),
        Check(
            "ledger_sums",
            "Every input event is in exactly one bucket of the event accounting.",
            builds.verify_ledger,
            compared=("ledger",),
        ),
        Check(
            "known_input",
            "Every key and button is known. Typing that contains an unknown one is split there.",
            builds.verify_known_input,
            blocking=False,
            compared=("actions",),
        ),
        Check(
            "keyboard_layout",
            "What was typed reads the same with the keyboard layout usual for the locale.",
            builds.verify_keyboard_layout,
            blocking=False,
            compared=("actions",),
        ),
    ),
    columns=ACTIONS_SCHEMA,
)

SCREENSHOTS_STAGE = Stage(
    name="screenshots",
    folder="screenshots",
    description="The screen before each action, 1920 by 1080, from the last frame before the "
    "pointer started towards the target; the calibration, and the waits that the video shows.",
    group="observation",
    kinds=frozenset({"opencv", "parquet"}),
    code_version="13",
    inputs=("raw_recordings", "events", "actions"),
    section=lambda settings: settings.observation,
    build=builds.run_screenshots,
    checks=(
        Check(
            "pictures_schema",
            "There is one row per action, and every screenshot is a PNG of the canvas's size.",
            builds.verify_screenshots,
            compared=("pictures",),
        ),
        Check(
            "frames_present",
            "No action is outside the video.",
            builds.verify_frames_present,
            blocking=False,
            compared=("pictures",),
        ),
        Check(
            "no_avoidable_leaks",
            "No screenshot shows the pointer at its target where an earlier frame does not.",
            builds.verify_no_avoidable_leaks,
            blocking=False,
            compared=("pictures",),
        ),
    ),
    columns=FRAMES_SCHEMA,
    reads_uploads=True,
)

UI_TREES_STAGE = Stage(
    name="ui_trees",
    folder="ui_trees",
    description="The current accessibility scan at each action, with the roles and states of "
    "OSWorld-Desktopd and in canvas coordinates, and the target element of the action.",
    group="observation",
    kinds=frozenset({"json", "parquet"}),
    code_version="10",
    inputs=("raw_recordings", "events", "actions", "screenshots"),
    section=lambda settings: settings.observation,
    build=builds.run_ui_trees,
    checks=(
        Check(
            "trees_schema",
            "There is one tree per action, and every tree fits the OSWorld-Desktopd format.",
            builds.verify_trees,
            compared=("trees", "nodes"),
        ),
        Check(
            "scans_usable",
            "Every scan of a step can be read, and something in it has an area.",
            builds.verify_scans_usable,
            blocking=False,
            compared=("trees",),
        ),
        Check(
            "known_roles",
            "At most 1 % of the nodes have an unknown role.",
            builds.verify_known_roles,
            blocking=False,
            compared=("nodes",),
        ),
        Check(
            "cursor_agrees",
            "The hit test finds the same element under the pointer as the recorder's own.",
            builds.verify_cursor,
            blocking=False,
            compared=("cursor_checked",),
        ),
    ),
    columns=UI_TREES_SCHEMA,
    reads_uploads=True,
)

TRAJECTORIES_STAGE = Stage(
    name="trajectories",
    folder="trajectories",
    description="One OSWorld-Desktopd trajectory: task, numbered steps with screenshot, tree and "
    "action, and result. provenance.parquet records the source of each step, "
    "hidden_actions.parquet the actions that no screenshot shows.",
    group="trajectories",
    kinds=frozenset({"json", "parquet"}),
    code_version="7",
    inputs=("raw_recordings", "events", "actions", "screenshots", "ui_trees"),
    section=lambda settings: settings.trajectories,
    build=builds.run_trajectories,
    checks=(
        Check(
            "desktopd_trajectory",
            "The folder fits the OSWorld-Desktopd format: files, sizes, bounds, ids, targets.",
            builds.verify_trajectory,
            compared=("steps", "targets"),
        ),
        Check(
            "provenance_schema",
            "provenance.parquet and hidden_actions.parquet have their declared columns.",
            builds.verify_provenance,
            compared=("steps",),
        ),
        Check(
            "every_action_shown",
            "Every action is a step: none is off the screen, outside the video or undecodable.",
            builds.verify_every_action_shown,
            blocking=False,
            compared=("steps",),
        ),
        Check(
            "osworld_compared",
            "The demonstration was compared with a catalog of OSWorld tasks.",
            builds.verify_compared,
            blocking=False,
        ),
        Check(
            "leak_rate",
            "The shares of screenshots that already show the pointer at its target, all and "
            "avoidable ones, are within the limits.",
            builds.verify_trajectory_leaks,
            blocking=False,
            compared=("pointer_actions",),
        ),
    ),
    columns=PROVENANCE_SCHEMA,
    matches_task=True,
)

CONTACT_SHEETS_STAGE = Stage(
    name="contact_sheets",
    folder="contact_sheets",
    description="Every step as a tile on JPEG sheets, for people: its screenshot with action and "
    "target drawn on it, reason code, lead, freshness of the tree, and LEAK or UNAVOIDABLE.",
    group="trajectories",
    kinds=frozenset({"jpeg", "opencv"}),
    code_version="5",
    inputs=("screenshots", "trajectories"),
    section=lambda _: Section(),  # no setting changes a contact sheet
    build=builds.run_contact_sheets,
    checks=(
        Check(
            "sheets_whole",
            "Every sheet decodes, and the sheets have exactly one tile per step.",
            builds.verify_contact_sheets,
            blocking=False,
            compared=("sheets", "tiles"),
        ),
    ),
    exported=True,
)

STAGES: tuple[Stage, ...] = (
    RAW_RECORDINGS_STAGE,
    EVENTS_STAGE,
    ACTIONS_STAGE,
    SCREENSHOTS_STAGE,
    UI_TREES_STAGE,
    TRAJECTORIES_STAGE,
    CONTACT_SHEETS_STAGE,
)

STAGE_BY_NAME: Mapping[str, Stage] = {stage.name: stage for stage in STAGES}
