"""The chain: which inputs each stage takes, which pure code makes it, which checks look at it.

Belongs here: one table. Not here: what any stage computes, and how a stage is run (stages.py).
"""

from collections.abc import Mapping
from pathlib import Path

from demo_pipeline.actions import build_actions as actions
from demo_pipeline.datasets import contact_sheets, task_matching, trajectories
from demo_pipeline.observation.frames import screenshot_checks, screenshots
from demo_pipeline.observation.trees import tree_checks, ui_trees
from demo_pipeline.pipeline.context import Check, Stage, StageContext, Summary
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording import events, manifest
from demo_pipeline.recording.event_tables import LOG_FILE
from demo_pipeline.recording.video_probe import VIDEO_FILE
from demo_pipeline.settings import Section


def _raw(work: StageContext, out: Path) -> Summary:
    settings = work.settings.recording
    summary = manifest.build_manifest(work.upload, work.demonstration, work.name, out, settings)
    if work.copies:
        manifest.keep_files(work.upload, out)
    return summary


def _check_raw(work: StageContext, out: Path) -> list[Problem]:
    written = manifest.read_manifest(out)
    folder = out if work.copies else work.upload
    for name in manifest.FILES:
        manifest.verified_file(folder, name, written)
    return []


def _events(work: StageContext, out: Path) -> Summary:
    summary = events.build_events(work.file(LOG_FILE), out, work.settings.recording)
    problems = events.require_input(summary, work.demonstration)
    if problems:
        raise DemonstrationError(problems)
    return summary


def _actions(work: StageContext, out: Path) -> Summary:
    platform = work.recording.parsed_meta().platform
    return actions.build_actions(work.folders["events"], out, platform, work.settings.actions)


def _screenshots(work: StageContext, out: Path) -> Summary:
    return screenshots.build_screenshots(
        work.file(LOG_FILE),
        work.file(VIDEO_FILE),
        work.recording,
        work.folders["events"],
        work.folders["actions"],
        out,
        work.settings.observation,
    )


def _ui_trees(work: StageContext, out: Path) -> Summary:
    return ui_trees.build_ui_trees(
        work.file(LOG_FILE),
        work.recording.parsed_meta().platform,
        work.folders["events"],
        work.folders["actions"],
        screenshots.read_evidence(work.folders["screenshots"]),
        out,
    )


def _trajectories(work: StageContext, out: Path) -> Summary:
    return trajectories.build_trajectory(
        work.recording,
        work.folders["events"],
        work.folders["actions"],
        work.folders["screenshots"],
        work.folders["ui_trees"],
        out,
        work.settings.trajectories,
        work.link,
    )


def _contact_sheets(work: StageContext, out: Path) -> Summary:
    trajectory = work.folders["trajectories"]
    return contact_sheets.build_contact_sheets(work.demonstration, trajectory, out)


STAGES: tuple[Stage, ...] = (
    Stage(
        "raw_recordings",
        "recordings",
        manifest.CODE_VERSION,
        (),
        lambda settings: settings.recording,
        _raw,
        (
            Check(
                "files_verified",
                "The written manifest fits its model and the three files still have its hashes.",
                _check_raw,
            ),
        ),
        uploads=True,
    ),
    Stage(
        "events",
        "events",
        events.CODE_VERSION,
        ("raw_recordings",),
        lambda settings: settings.recording,
        _events,
        (
            Check(
                "events_schema",
                "The three tables have exactly the declared columns, types and nulls.",
                lambda _, out: events.check_event_tables(out),
            ),
            Check(
                "every_line_accounted",
                "Every line of the log is one event or one rejected line.",
                lambda work, out: events.check_accounting(out, work.upload / LOG_FILE),
            ),
            Check(
                "no_rejected_lines",
                "No line had to be rejected; rejected lines cost nothing else.",
                lambda _, out: events.rejected_lines(out),
                blocking=False,
            ),
        ),
        uploads=True,
    ),
    Stage(
        "actions",
        "actions",
        actions.CODE_VERSION,
        ("raw_recordings", "events"),
        lambda settings: settings.actions,
        _actions,
        (
            Check(
                "actions_schema",
                "The tables have the declared columns; actions are in order and complete.",
                lambda _, out: actions.check_action_tables(out),
            ),
            Check(
                "ledger_sums",
                "Every raw event is in exactly one bucket of the ledger.",
                lambda work, out: actions.check_ledger(out, work.folders["events"]),
            ),
        ),
    ),
    Stage(
        "screenshots",
        "screenshots",
        screenshots.CODE_VERSION,
        ("raw_recordings", "events", "actions"),
        lambda settings: settings.observation,
        _screenshots,
        (
            Check(
                "pictures_schema",
                "One row an action, and every picture is a PNG of the canvas's size.",
                lambda work, out: screenshot_checks.check_screenshot_files(
                    out, work.folders["actions"]
                ),
            ),
            Check(
                "frames_present",
                "No action lies outside the video.",
                lambda _, out: screenshot_checks.check_frames_present(out),
                blocking=False,
            ),
            Check(
                "no_avoidable_leaks",
                "No picture shows the pointer at its target when an earlier one was to be had.",
                lambda _, out: screenshot_checks.check_screenshot_leaks(out),
                blocking=False,
            ),
        ),
        uploads=True,
    ),
    Stage(
        "ui_trees",
        "ui_trees",
        ui_trees.CODE_VERSION,
        ("raw_recordings", "events", "actions", "screenshots"),
        lambda settings: settings.observation,
        _ui_trees,
        (
            Check(
                "trees_schema",
                "Every tree is one that seed 001 accepts, one an action.",
                lambda work, out: tree_checks.check_trees(out, work.folders["actions"]),
            ),
            Check(
                "known_roles",
                "At most 1 % of nodes have a role in no table.",
                lambda _, out: tree_checks.check_known_roles(out),
                blocking=False,
            ),
            Check(
                "cursor_agrees",
                "Our hit test finds what the recorder's own found under the pointer.",
                lambda _, out: tree_checks.check_cursor(out),
                blocking=False,
            ),
        ),
        uploads=True,
    ),
    Stage(
        "trajectories",
        "trajectories",
        trajectories.CODE_VERSION,
        ("raw_recordings", "events", "actions", "screenshots", "ui_trees"),
        lambda settings: settings.trajectories,
        _trajectories,
        (
            Check(
                "desktopd_trajectory",
                "The folder is a seed 001 trajectory: files, sizes, bounds, ids, targets.",
                lambda work, out: trajectories.check_trajectory(
                    out, work.demonstration, work.folders["ui_trees"]
                ),
            ),
            Check(
                "provenance_schema",
                "provenance.parquet has its declared columns.",
                lambda _, out: trajectories.check_provenance(out),
            ),
            Check(
                "osworld_compared",
                "The demonstration was compared with a catalog of OSWorld tasks.",
                lambda work, _: task_matching.require_catalog(work.link),
                blocking=False,
            ),
            Check(
                "leak_rate",
                "Few pictures show the pointer at its target, hardly any of them avoidably.",
                lambda work, out: trajectories.check_trajectory_leaks(
                    out, work.settings.trajectories
                ),
                blocking=False,
            ),
        ),
        linked=True,
    ),
    Stage(
        "contact_sheets",
        "contact_sheets",
        contact_sheets.CODE_VERSION,
        ("trajectories",),
        lambda _: Section(),  # no setting changes a picture
        _contact_sheets,
        (
            Check(
                "sheets_whole",
                "Every sheet decodes and has room for exactly the trajectory's steps.",
                lambda work, out: contact_sheets.check_contact_sheets(
                    work.demonstration, work.folders["trajectories"], out
                ),
                blocking=False,
            ),
        ),
    ),
)

STAGE_BY_NAME: Mapping[str, Stage] = {stage.name: stage for stage in STAGES}
