"""Validating a recording: everything that the pipeline finds wrong with it before it decodes.

Belongs here: running the stages `raw_recordings`, `events` and `actions` on a folder, and their
checks, without a store. The problems and their codes are those of the stages; what only a person
who makes recordings wants to know is added as warnings.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from demo_pipeline.actions import typed_text
from demo_pipeline.actions.build_actions import build_actions
from demo_pipeline.files.base_model import limited
from demo_pipeline.files.recording_files import LOG_FILE, META_FILE
from demo_pipeline.observation.trees.scans import scan_problems
from demo_pipeline.osworld.task_text import assignment_of
from demo_pipeline.problems import DemonstrationError, Problem, Severity
from demo_pipeline.recording import events
from demo_pipeline.recording.input_log import time_unit_problems
from demo_pipeline.recording.manifest import examine
from demo_pipeline.recording.meta import Meta, read_meta
from demo_pipeline.settings import Settings

_REASONS = ("done", "fail")
_EXPECTED = ("id", "duration_seconds", "status", "title", "arch", "version", "locale")


def validate_recording(path: Path, settings: Settings) -> list[Problem]:
    """A folder against the Training Gym recording format, as strictly as the pipeline.

    What quarantines a demonstration before its video is decoded is an error, with the same code;
    a rejected line and another unit of time are errors here, although the pipeline goes on.
    """
    problems: list[Problem] = []
    try:
        manifest = examine(path, path.name, path.name, settings.recording, limits=settings.limits)
        problems += (Problem.from_dict(found, demonstration="") for found in manifest.warnings)
    except DemonstrationError as error:
        problems += error.problems
    meta = _readable_meta(path / META_FILE, settings)
    if meta is not None:
        problems += _meta_problems(meta)
    log = path / LOG_FILE
    if log.is_file() and 0 < log.stat().st_size <= settings.limits.max_log_bytes:
        with tempfile.TemporaryDirectory() as scratch:
            problems += _log_problems(log, meta, Path(scratch), settings)
    return [replace(problem, demonstration="") for problem in problems]


def _readable_meta(path: Path, settings: Settings) -> Meta | None:
    """meta.json, also when other files are bad; None when it is bad itself, as reported."""
    if not path.is_file() or path.stat().st_size > settings.limits.max_meta_bytes:
        return None
    try:
        return read_meta(path.read_bytes())[0]
    except DemonstrationError:
        return None


def _meta_problems(meta: Meta) -> Iterator[Problem]:
    """Yield what the trajectory will lack: its instruction, and documented keys."""
    try:
        assignment_of(meta)
    except DemonstrationError as error:
        yield from error.problems
    absent = [name for name in _EXPECTED if name not in meta.model_fields_set]
    if meta.primary_monitor is None:
        absent.append("primary_monitor")
    if absent:
        message = f"the documented keys {', '.join(absent)} are missing or null"
        yield _meta_warning("missing_field", message)
    if meta.reason and meta.reason not in _REASONS:
        message = f"reason: expected one of {', '.join(_REASONS)}; any other counts as a failure"
        yield _meta_warning("unknown_reason", message)
    if meta.duration_seconds < 0:
        yield _meta_warning("negative_duration", "duration_seconds: is negative")


def _meta_warning(code: str, message: str) -> Problem:
    remedy = "correct meta.json"
    return Problem(code, META_FILE, message, remedy=remedy, severity=Severity.WARNING)


def _log_problems(
    log: Path, meta: Meta | None, scratch: Path, settings: Settings
) -> Iterator[Problem]:
    """Yield the problems of the stages `events` and `actions`, and of every scan."""
    tables, actions = scratch / "events", scratch / "actions"
    tables.mkdir()
    actions.mkdir()
    try:
        summary = events.build_events(
            log,
            tables,
            settings.recording,
            settings.limits.max_log_lines,
            recorded_at=meta.timestamp if meta else None,
        )
    except DemonstrationError as error:
        yield from error.problems
        return
    rejected = events.rejected_lines(tables)
    yield from rejected
    if (more := summary["rejected_lines"] - len(rejected)) > 0:
        message = f"{more} more lines were rejected"
        yield Problem("rejected_lines", LOG_FILE, message, remedy="upload the log again")
    yield from time_unit_problems(events.log_time_unit(log, settings.recording))
    if not summary["events"]:
        yield from events.require_events(summary, "")
        return
    if meta is not None:
        yield from events.check_recording_time(tables, meta.timestamp, "")
    yield from scan_problems(log, events.read_scans(tables))
    try:
        build_actions(
            tables,
            actions,
            meta.platform if meta else "",
            settings.actions,
            settings.limits.max_actions,
        )
    except DemonstrationError as error:
        yield from error.problems
        return
    yield from limited(
        [_warning(problem) for problem in _input_problems(tables, actions, meta, settings)]
    )


def _input_problems(
    tables: Path, actions: Path, meta: Meta | None, settings: Settings
) -> list[Problem]:
    """Keys and buttons that no table has, and a keyboard layout that may be another."""
    layout = settings.actions.keyboard_layout
    locale, platform = (meta.locale, meta.platform) if meta else ("", "")
    return [
        *typed_text.check_known_input(actions, tables),
        *typed_text.check_keyboard_layout(actions, tables, locale, layout, platform),
    ]


def _warning(problem: Problem) -> Problem:
    return replace(problem, severity=Severity.WARNING)
