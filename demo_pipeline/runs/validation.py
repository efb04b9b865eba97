"""Recognises the format of a path and validates it, for `demo-pipeline validate`."""

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

_REASONS = ("done", "fail")  # documented values of `reason` in meta.json
# Largest accepted ratio between the aspect ratios of the screen and the video. The sides of a video
# are even numbers: halving 1366 x 768 to 682 x 384, for example, changes the ratio by 0.15 %. The
# ratios 16:9 and 16:10 differ by 11 %.
_SAME_SHAPE = 1.02
# Largest accepted difference between `duration_seconds` and the length of the video, in seconds and
# as a share of the video's length. The larger limit applies. Some recorders start counting at the
# first key press, or stop at the upload.
_LENGTH_SLACK_S = 5
_LENGTH_SLACK = 0.1
_EXPECTED = ("id", "duration_seconds", "status", "title", "arch", "version", "locale")


def validate_recording(path: Path, settings: Settings) -> list[Problem]:
    """Returns the problems of a recording in the Training Gym format.

    A problem is an error if the pipeline would quarantine the recording because of it before
    decoding the video. Such an error has the pipeline's error code. Rejected lines of the log, and
    timestamps that are not in milliseconds, are errors, too.
    """
    problems: list[Problem] = []
    try:
        manifest = examine(path, path.name)
        problems += (Problem.from_dict(values, demonstration="") for values in manifest.warnings)
        problems += _video_warnings(manifest.parsed_meta(), manifest.video)
    except DemonstrationError as error:
        problems += error.problems
    meta = None
    file = path / META_FILE  # read even if the other files are bad
    if file.is_file() and file.stat().st_size <= MAX_BYTES[META_FILE]:
        with suppress(DemonstrationError):  # `examine` has already reported the problem
            meta = read_meta(file.read_bytes())[0]
    if meta is not None:
        problems += _meta_problems(meta)
    log = path / LOG_FILE
    if log.is_file() and 0 < log.stat().st_size <= MAX_BYTES[LOG_FILE]:
        with tempfile.TemporaryDirectory() as scratch:
            problems += _log_problems(log, meta, Path(scratch), settings)
    return [replace(problem, demonstration="") for problem in problems]


def _meta_problems(meta: Meta) -> Iterator[Problem]:
    """Yields the problems of meta.json: a missing instruction, missing keys, unknown values."""
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


def _video_warnings(meta: Meta, video: VideoProbe) -> Iterator[Problem]:
    """Yields warnings if meta.json contradicts the video's aspect ratio or duration."""
    screen = meta.primary_monitor
    length = video.last_pts_s - video.first_pts_s
    if screen is not None:
        shapes = (screen.width / screen.height, video.width / video.height)
        if max(shapes) > _SAME_SHAPE * min(shapes):
            yield _meta_warning(
                "other_shape",
                f"primary_monitor: {screen.width} x {screen.height} has another shape than the "
                f"video, {video.width} x {video.height}",
            )
    duration = meta.duration_seconds
    has_duration = duration >= 0 and "duration_seconds" in meta.model_fields_set
    if has_duration and abs(duration - length) > max(_LENGTH_SLACK_S, _LENGTH_SLACK * length):
        message = f"duration_seconds: is {duration:g}, but the video has {length:.1f} s"
        yield _meta_warning("other_duration", message)


def _meta_warning(code: str, message: str) -> Problem:
    remedy = "correct meta.json"
    return Problem(code, META_FILE, message, remedy=remedy, severity=Severity.WARNING)


def _log_problems(
    log: Path, meta: Meta | None, scratch: Path, settings: Settings
) -> Iterator[Problem]:
    """Yields the problems of the input log."""
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
    more = summary["rejected_lines"] - len(rejected)
    if more > 0:
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
    problems = [
        *typed_text.check_known_input(actions, tables),
        *typed_text.check_keyboard_layout(actions),
    ]
    yield from limited([replace(problem, severity=Severity.WARNING) for problem in problems])


# Maximum size of the first line of a JSON Lines file, in bytes. It is ten times the size of a
# training sample with screenshot and UI tree.
_LONGEST_FIRST_LINE = 64 * 2**20
# Files that are read into memory as a whole. Maps their suffixes to nouns for messages.
_READ_WHOLE = {
    ".json": "a JSON document",
    ".txt": "a text",
    **dict.fromkeys((".png", ".jpg", ".jpeg"), "a picture"),
}
# Maximum size in bytes of a file that is read as a whole. An index of 100,000 trajectories has a
# fifth of this size.
LARGEST_DOCUMENT = 256 * 2**20
FORMATS: Mapping[str, ValidatedFormat] = {
    known_format.name: known_format
    for known_format in (
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
    """Returns the name of the format of a path; None if no format fits.

    A folder is compared with each format. The format's score is the share of its files that exist
    in the folder, and the highest score wins. A single file of a `decisive` format outweighs any
    score. If all scores are 0, the function `recognises` of each format is called.

    A JSON Lines file is recognised by the keys of its first line, and any other file by its suffix.
    A file that is only one of several files of a format is not recognised by its suffix, because
    the whole folder must be validated.
    """
    if path.is_file():
        return _recognise_file(path)
    shares = {name: _share(path, known_format) for name, known_format in FORMATS.items()}
    for name, known_format in FORMATS.items():
        if known_format.decisive and shares[name]:
            return name
    best = max(shares, key=lambda name: shares[name])
    if shares[best]:
        return best
    for name, known_format in FORMATS.items():
        if known_format.recognises and known_format.recognises(path):
            return name
    return None


def _recognise_file(path: Path) -> str | None:
    if path.suffix == ".jsonl":
        by_lines = _recognise_lines(path)
        if by_lines:
            return by_lines
    parts = set[str]()
    for known_format in FORMATS.values():
        parts.update(known_format.files)
    for name, known_format in FORMATS.items():
        if known_format.file_suffix and known_format.file_suffix == path.suffix:
            is_part = path.name in parts and known_format.files != (path.name,)
            return None if is_part else name
    return None


def _recognise_lines(path: Path) -> str | None:
    """Returns the format of a JSON Lines file by the keys of its first line.

    An empty file gets the format of its folder.
    """
    with path.open("rb") as lines:
        first = lines.readline(_LONGEST_FIRST_LINE)
    if not first.strip():
        folder_format = FORMATS.get(recognise(path.parent) or "")
        if folder_format is None or not folder_format.line_key:
            return None
        is_sure = folder_format.decisive or _share(path.parent, folder_format) > 1 / 2
        return folder_format.name if is_sure else None
    try:
        line = parse_json(first, path.name)
    except JsonFileError:
        return None
    if isinstance(line, dict):
        for name, known_format in FORMATS.items():
            if known_format.line_key in line:
                return name
    return None


def _share(folder: Path, known_format: ValidatedFormat) -> float:
    names = known_format.files
    return sum((folder / name).exists() for name in names) / len(names)


def unreadable_files(path: Path) -> Iterator[str]:
    """Yields a sentence for each file below a path that must not be read.

    These are devices, pipes and sockets, and files that are too large for memory.
    """
    for file in [path] if path.is_file() else _entries_below(path):
        try:
            status = file.stat()
        except OSError:  # a broken link, which validators report
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
    """Returns whether a file is sparse; real text files are not."""
    try:
        with file.open("rb") as stream:
            return os.lseek(stream.fileno(), 0, os.SEEK_HOLE) < size
    except (OSError, AttributeError):  # unreadable, or the system does not support SEEK_HOLE
        return False


def _entries_below(folder: Path) -> Iterator[Path]:
    """Yields every file below a folder. Follows links, but visits each folder only once."""
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
    """Validates a file or folder against a format and returns the problems.

    Images are decoded to find damage.

    Args:
        name: the name of the format, a key of `FORMATS`.
    """
    with decoding_images(_decodes):
        return list(FORMATS[name].validate(path, settings))


def _decodes(data: bytes) -> bool:
    import cv2  # noqa: PLC0415 - takes 0.2 s
    import numpy as np  # noqa: PLC0415

    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) is not None
