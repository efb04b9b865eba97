"""Recognising the format of any path, and validating it.

Belongs here: `demo-pipeline validate` without its console output, and the format of a recording:
everything that the pipeline finds wrong with it before it decodes.
"""

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from demo_pipeline.actions import typed_text
from demo_pipeline.actions.build_actions import build_actions
from demo_pipeline.actions.text_evidence import typing_language
from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.exports.dataset_stages import INDEX_FORMAT, QUESTS_FORMAT
from demo_pipeline.files.base_model import limited
from demo_pipeline.files.image_files import decoding_images
from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.recording_files import LOG_FILE, MAX_BYTES, META_FILE, RECORDING_FILES
from demo_pipeline.observation.trees.scans import scan_problems
from demo_pipeline.osworld.task_text import assignment_of
from demo_pipeline.problems import DemonstrationError, Problem, Severity, warning
from demo_pipeline.recording import events
from demo_pipeline.recording.manifest import examine
from demo_pipeline.recording.meta import Meta, read_meta
from demo_pipeline.recording.video_probe import VideoProbe
from demo_pipeline.runs.stages import training_exports
from demo_pipeline.settings import Settings
from demo_pipeline.stage import ValidatedFormat

_REASONS = ("done", "fail")
_SAME_SHAPE = 1.02  # 1366 x 768 and films of even sides differ by 0.2 %, 16:9 and 16:10 by 11 %
_LENGTH_SLACK_S, _LENGTH_SLACK = 5, 0.1  # recorders count from a key's press, or to the upload
_EXPECTED = ("id", "duration_seconds", "status", "title", "arch", "version", "locale")


def validate_recording(path: Path, settings: Settings) -> list[Problem]:
    """A folder against the Training Gym recording format, as strictly as the pipeline.

    What quarantines a demonstration before its video is decoded is an error, with the same code;
    a rejected line and another unit of time are errors here, although the pipeline goes on.
    """
    problems: list[Problem] = []
    try:
        manifest = examine(path, path.name)
        problems += (Problem.from_dict(found, demonstration="") for found in manifest.warnings)
        problems += _film_warnings(manifest.parsed_meta(), manifest.video)
    except DemonstrationError as error:
        problems += error.problems
    meta, file = None, path / META_FILE  # that of a recording whose other files are bad is read
    if file.is_file() and file.stat().st_size <= MAX_BYTES[META_FILE]:
        with suppress(DemonstrationError):  # reported above
            meta = read_meta(file.read_bytes())[0]
    if meta is not None:
        problems += _meta_problems(meta)
    log = path / LOG_FILE
    if log.is_file() and 0 < log.stat().st_size <= MAX_BYTES[LOG_FILE]:
        with tempfile.TemporaryDirectory() as scratch:
            problems += _log_problems(log, meta, Path(scratch), settings)
    return [replace(problem, demonstration="") for problem in problems]


def _meta_problems(meta: Meta) -> Iterator[Problem]:
    """Yield what the trajectory will lack: its instruction, and documented keys."""
    try:
        assignment_of(meta)
    except DemonstrationError as error:
        yield from error.problems
    absent = [name for name in _EXPECTED if name not in meta.model_fields_set]
    if meta.primary_monitor is None:
        absent.append("primary_monitor")
    if meta.quest is None:
        absent.append("quest")
    if absent:
        message = f"the documented keys {', '.join(absent)} are missing or null"
        yield _meta_warning("missing_field", message)
    if not meta.reason:
        message = "reason: is missing or null, so that the demonstration does not count as done"
        remedy = (
            'write "reason": "done" into meta.json if the task was done; else training datasets '
            "leave the demonstration out"
        )
        yield warning("missing_field", META_FILE, message, remedy)
    if meta.reason and meta.reason not in _REASONS:
        message = f"reason: expected one of {', '.join(_REASONS)}; any other counts as a failure"
        yield _meta_warning("unknown_reason", message)
    if meta.duration_seconds < 0:
        yield _meta_warning("negative_duration", "duration_seconds: is negative")


def _film_warnings(meta: Meta, film: VideoProbe) -> Iterator[Problem]:
    """Yield what meta.json says of the screen and the length otherwise than the film."""
    screen = meta.primary_monitor
    length = film.last_pts_s - film.first_pts_s
    if screen is not None:
        shapes = screen.width / screen.height, film.width / film.height
        if max(shapes) > _SAME_SHAPE * min(shapes):
            yield _meta_warning(
                "other_shape",
                f"primary_monitor: {screen.width} x {screen.height} has another shape than the "
                f"film, {film.width} x {film.height}",
            )
    said = meta.duration_seconds
    is_said = said >= 0 and "duration_seconds" in meta.model_fields_set
    if is_said and abs(said - length) > max(_LENGTH_SLACK_S, _LENGTH_SLACK * length):
        message = f"duration_seconds: is {said:g}, but the film has {length:.1f} s"
        yield _meta_warning("other_duration", message)


def _meta_warning(code: str, message: str) -> Problem:
    remedy = "correct meta.json"
    return Problem(code, META_FILE, message, remedy=remedy, severity=Severity.WARNING)


def _log_problems(
    log: Path, meta: Meta | None, scratch: Path, settings: Settings
) -> Iterator[Problem]:
    """Yield the problems of the stages `events` and `actions`, and of every scan."""
    tables = scratch / "events"
    actions = scratch / "actions"
    tables.mkdir()
    actions.mkdir()
    try:
        recorded_at = meta.timestamp if meta else None
        summary = events.build_events(log, tables, recorded_at=recorded_at)
    except DemonstrationError as error:
        yield from error.problems
        return
    rejected = events.rejected_lines(tables)
    yield from rejected
    if (more := summary["rejected_lines"] - len(rejected)) > 0:
        message = f"{more} more lines were rejected"
        yield Problem("rejected_lines", LOG_FILE, message, remedy="upload the log again")
    yield from events.check_time_unit(log)
    yield from events.check_clock_steps(tables)
    if not summary["events"]:
        yield from events.require_events(summary)
        return
    if meta is not None:
        yield from events.check_recording_time(tables, meta.timestamp)
    yield from scan_problems(log, events.read_scans(tables))
    try:
        build_actions(
            tables,
            actions,
            meta.platform if meta else "",
            settings.actions,
            language=typing_language(
                settings.actions.keyboard_layout,
                meta.usual_layout if meta else None,
                meta.locale if meta else "",
                named=meta is not None and meta.names_keyboard,
            ),
            log=log,
        )
    except DemonstrationError as error:
        yield from error.problems
        return
    found = [
        *typed_text.check_known_input(actions, tables),
        *typed_text.check_keyboard_layout(actions),
    ]
    yield from limited([replace(problem, severity=Severity.WARNING) for problem in found])


_LONGEST_FIRST_LINE = 64 * 2**20  # bytes; a sample with its picture and tree inline has a tenth
_READ_WHOLE = {
    ".json": "a JSON document",
    ".txt": "a text",
    **dict.fromkeys((".png", ".jpg", ".jpeg"), "a picture"),
}
LARGEST_DOCUMENT = 256 * 2**20  # bytes; an index of 100,000 trajectories has a fifth of that
FORMATS: Mapping[str, ValidatedFormat] = {
    known.name: known
    for known in (
        *(export.validated_as for export in training_exports().values()),
        QUESTS_FORMAT,
        INDEX_FORMAT,
        ValidatedFormat(
            name="trajectory",
            files=("task.json", "result.json", "steps"),
            validate=lambda path, _: validate_trajectory(path),
        ),
        ValidatedFormat(name="recording", files=RECORDING_FILES, validate=validate_recording),
    )
}


def recognise(path: Path) -> str | None:
    """Name of the format of a path; None when no format fits.

    A folder is in the format of whose files it has the largest share. A single file is in a format
    by the keys of its first line if it has lines, else by its suffix, unless its name is that of a
    part of a folder, which is validated as a whole.
    """
    if path.is_file():
        return _recognise_file(path)
    shares = {known.name: _share(path, known) for known in FORMATS.values()}
    for known in FORMATS.values():
        if known.decisive and shares[known.name]:
            return known.name
    best = max(shares, key=lambda name: shares[name])
    if shares[best]:
        return best
    others = (known for known in FORMATS.values() if known.recognises and known.recognises(path))
    return next((known.name for known in others), None)


def _recognise_file(path: Path) -> str | None:
    if path.suffix == ".jsonl" and (name := _recognise_lines(path)):
        return name
    parts = {name for known in FORMATS.values() for name in known.files}
    for known in FORMATS.values():
        if known.file_suffix and known.file_suffix == path.suffix:
            is_part = path.name in parts and known.files != (path.name,)
            return None if is_part else known.name
    return None


def _recognise_lines(path: Path) -> str | None:
    """The format of a file of lines, by its first line; of an empty file, that of its folder."""
    with path.open("rb") as lines:
        first = lines.readline(_LONGEST_FIRST_LINE)
    if not first.strip():
        folder = FORMATS.get(recognise(path.parent) or "")
        is_sure = folder and (folder.decisive or _share(path.parent, folder) > 1 / 2)
        return folder.name if folder and is_sure and folder.line_key else None
    try:
        line = parse_json(first, path.name)
    except JsonFileError:
        return None
    keys = line.keys() if isinstance(line, dict) else ()
    return next((known.name for known in FORMATS.values() if known.line_key in keys), None)


def _share(folder: Path, known: ValidatedFormat) -> float:
    return sum((folder / name).exists() for name in known.files) / len(known.files)


def unreadable_files(path: Path) -> Iterator[str]:
    """Why a path cannot be validated: a sentence for each file that no program can read to its end.

    Devices, pipes and sockets never end, and a JSON document is read as a whole.
    """
    for file in [path] if path.is_file() else _entries_below(path):
        try:
            status = file.stat()
        except OSError:  # a link that leads nowhere is the validators' to report
            continue
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            yield f"{file}: is not a regular file, but a device, a pipe or a socket; remove it"
        elif status.st_size <= LARGEST_DOCUMENT:
            continue
        elif kind := _READ_WHOLE.get(file.suffix):
            size = LARGEST_DOCUMENT // 2**20
            yield f"{file}: has {status.st_size} bytes; {kind} has {size} MiB at most"
        elif file.suffix == ".jsonl" and _has_hole(file, status.st_size):
            yield f"{file}: has holes, which read as endless bytes of zero; copy it again"


def _has_hole(file: Path, size: int) -> bool:
    """Whether a part of a file was never written; text has none."""
    try:
        with file.open("rb") as stream:
            return os.lseek(stream.fileno(), 0, os.SEEK_HOLE) < size
    except (OSError, AttributeError):  # unreadable, or a system that does not tell
        return False


def _entries_below(folder: Path) -> Iterator[Path]:
    """Everything below a folder, through links too; a folder that is reached twice counts once."""
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        status = Path(place).stat()
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            folders.clear()
            continue
        seen.add(identity)
        yield from (Path(place, name) for name in files)


def validate(path: Path, name: str, settings: Settings) -> list[Problem]:
    """What is wrong with a path in a format of `FORMATS`; empty when it is valid.

    Its pictures are decoded.
    """
    with decoding_images(_decodes):
        return list(FORMATS[name].validate(path, settings))


def _decodes(data: bytes) -> bool:
    import cv2  # noqa: PLC0415 - costs 0.2 s
    import numpy as np  # noqa: PLC0415

    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) is not None
