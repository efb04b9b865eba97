"""Build functions and checks of a demonstration's stages: from the context to the pure code.

Belongs here: short functions that the entries of demonstration_stages.py name. What a stage
computes is decided in the packages below.
"""

from pathlib import Path

from demo_pipeline.actions import build_actions as actions
from demo_pipeline.actions import typed_text
from demo_pipeline.datasets import contact_sheets
from demo_pipeline.files.recording_files import LOG_FILE, RECORDING_FILES, VIDEO_FILE
from demo_pipeline.observation.frames import screenshots
from demo_pipeline.observation.trees import ui_trees
from demo_pipeline.osworld import task_matching
from demo_pipeline.pipeline.context import StageContext, Summary
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording import events, input_log, manifest
from demo_pipeline.trajectories import trajectories


def run_raw_recordings(context: StageContext, out: Path) -> Summary:
    """The manifest; for downloads also the files."""
    settings = context.settings
    summary = manifest.build_manifest(
        context.upload,
        context.demonstration,
        context.upload_name,
        out,
        settings.recording,
        limits=settings.limits,
    )
    if context.downloaded:
        manifest.keep_files(context.upload, out)
    return summary


def verify_files(context: StageContext, out: Path) -> list[Problem]:
    """The manifest against the three files. Raises `DemonstrationError` for a changed file."""
    written = manifest.read_manifest(out)
    folder = out if context.downloaded else context.upload
    for name in RECORDING_FILES:
        manifest.verified_file(folder, name, written)
    return []


def run_events(context: StageContext, out: Path) -> Summary:
    """The event tables. Raises `DemonstrationError` for a log without input or of another day."""
    settings, recorded_at = context.settings, context.recording.recorded_at
    summary = events.build_events(
        context.file(LOG_FILE),
        out,
        settings.recording,
        settings.limits.max_log_lines,
        recorded_at=recorded_at,
    )
    problems = [
        *events.require_events(summary, context.demonstration),
        *events.check_recording_time(out, recorded_at, context.demonstration),
    ]
    if problems:
        raise DemonstrationError(problems)
    return summary


def verify_event_tables(_context: StageContext, out: Path) -> list[Problem]:
    """The columns of the three tables."""
    return events.check_event_tables(out)


def verify_lines(context: StageContext, out: Path) -> list[Problem]:
    """Every line of the log is accounted for."""
    return events.check_line_accounting(out, context.upload / LOG_FILE)


def verify_no_rejected_lines(_context: StageContext, out: Path) -> list[Problem]:
    """The rejected lines."""
    return events.rejected_lines(out)


def verify_time_unit(context: StageContext, _out: Path) -> list[Problem]:
    """The unit of time of the log."""
    unit = events.log_time_unit(context.upload / LOG_FILE, context.settings.recording)
    return input_log.time_unit_problems(unit)


def run_actions(context: StageContext, out: Path) -> Summary:
    """The actions and the event accounting."""
    platform = context.recording.parsed_meta().platform
    folder = context.folders["events"]
    settings = context.settings
    return actions.build_actions(
        folder, out, platform, settings.actions, settings.limits.max_actions
    )


def verify_known_input(context: StageContext, out: Path) -> list[Problem]:
    """Keys and buttons in no table."""
    return typed_text.check_known_input(out, context.folders["events"])


def verify_keyboard_layout(context: StageContext, out: Path) -> list[Problem]:
    """The keyboard layout of the settings against the one usual for meta.locale."""
    meta = context.recording.parsed_meta()
    layout = context.settings.actions.keyboard_layout
    return typed_text.check_keyboard_layout(
        out, context.folders["events"], meta.locale, layout, meta.platform
    )


def verify_action_tables(_context: StageContext, out: Path) -> list[Problem]:
    """The columns, and the order of the actions."""
    return actions.check_action_tables(out)


def verify_ledger(context: StageContext, out: Path) -> list[Problem]:
    """Every event is accounted for."""
    return actions.check_event_accounting(out, context.folders["events"])


def run_screenshots(context: StageContext, out: Path) -> Summary:
    """The screenshots, the table of frames and the calibration."""
    return screenshots.build_screenshots(
        context.file(LOG_FILE),
        context.file(VIDEO_FILE),
        context.recording,
        context.folders["events"],
        context.folders["actions"],
        out,
        context.settings.observation,
    )


def verify_screenshots(context: StageContext, out: Path) -> list[Problem]:
    """One row and one PNG of the right size per action."""
    return screenshots.check_screenshot_files(out, context.folders["actions"])


def verify_frames_present(_context: StageContext, out: Path) -> list[Problem]:
    """Actions outside the video."""
    return screenshots.check_frames_present(out)


def verify_no_avoidable_leaks(_context: StageContext, out: Path) -> list[Problem]:
    """Leaks that an earlier frame would have avoided."""
    return screenshots.check_screenshot_leaks(out)


def run_ui_trees(context: StageContext, out: Path) -> Summary:
    """The tree of each action and the table of trees."""
    return ui_trees.build_ui_trees(
        context.file(LOG_FILE),
        context.recording.parsed_meta().platform,
        context.folders["events"],
        context.folders["actions"],
        screenshots.read_evidence(context.folders["screenshots"]),
        out,
    )


def verify_trees(context: StageContext, out: Path) -> list[Problem]:
    """Every tree against the OSWorld-Desktopd format."""
    return ui_trees.check_trees(out, context.folders["actions"])


def verify_known_roles(_context: StageContext, out: Path) -> list[Problem]:
    """The share of nodes with an unknown role."""
    return ui_trees.check_known_roles(out)


def verify_scans_usable(_context: StageContext, out: Path) -> list[Problem]:
    """Scans that are empty or malformed, by their lines."""
    return ui_trees.check_scans_usable(out)


def verify_cursor(_context: StageContext, out: Path) -> list[Problem]:
    """The hit test against the recorder's own."""
    return ui_trees.check_cursor(out)


def run_trajectories(context: StageContext, out: Path) -> Summary:
    """The trajectory with its provenance."""
    return trajectories.build_trajectory(
        context.recording,
        context.folders["events"],
        context.folders["actions"],
        context.folders["screenshots"],
        context.folders["ui_trees"],
        out,
        context.settings.trajectories,
        context.task_match,
    )


def verify_trajectory(context: StageContext, out: Path) -> list[Problem]:
    """The folder against the OSWorld-Desktopd format, and its trees against those of `ui_trees`."""
    return trajectories.check_trajectory(out, context.demonstration, context.folders["ui_trees"])


def verify_provenance(_context: StageContext, out: Path) -> list[Problem]:
    """The columns of provenance.parquet and hidden_actions.parquet."""
    return trajectories.check_provenance(out)


def verify_every_action_shown(_context: StageContext, out: Path) -> list[Problem]:
    """The actions that no screenshot shows, by reason."""
    return trajectories.check_every_action_shown(out)


def verify_compared(context: StageContext, _out: Path) -> list[Problem]:
    """Whether a catalog of OSWorld tasks existed to compare with."""
    return task_matching.require_catalog(context.task_match)


def verify_trajectory_leaks(context: StageContext, out: Path) -> list[Problem]:
    """The leak rates against their limits."""
    return trajectories.check_trajectory_leaks(out, context.settings.trajectories)


def run_contact_sheets(context: StageContext, out: Path) -> Summary:
    """The contact sheets of a trajectory."""
    trajectory = context.folders["trajectories"]
    screenshots = context.folders["screenshots"]
    return contact_sheets.build_contact_sheets(context.demonstration, trajectory, screenshots, out)


def verify_contact_sheets(context: StageContext, out: Path) -> list[Problem]:
    """Every sheet decodes, and together they have one tile per step."""
    trajectory = context.folders["trajectories"]
    return contact_sheets.check_contact_sheets(context.demonstration, trajectory, out)
