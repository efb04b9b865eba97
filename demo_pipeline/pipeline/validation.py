"""Recognising the format of any path, and validating it.

Belongs here: `demo-pipeline validate` without its console output. The formats of the datasets come
from the registry of dataset stages, the rules from each format's own package.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.pipeline.recording_validation import validate_recording
from demo_pipeline.pipeline.stages import DATASET_STAGES
from demo_pipeline.problems import Problem
from demo_pipeline.settings import Settings
from demo_pipeline.stage import ValidatedFormat

_LONGEST_FIRST_LINE = 64 * 2**20  # bytes; a sample with its picture and tree inline has a tenth
LARGEST_DOCUMENT = 256 * 2**20  # bytes; an index of 100,000 trajectories has a fifth of that
RECORDING_FORMAT = ValidatedFormat(
    name="recording", files=RECORDING_FILES, validate=validate_recording
)
OTHER_FORMATS = (
    ValidatedFormat(
        name="trajectory",
        files=("task.json", "result.json", "steps"),
        validate=lambda path, _: validate_trajectory(path),
    ),
    RECORDING_FORMAT,
)
FORMATS: Mapping[str, ValidatedFormat] = {
    known.name: known
    for known in (
        *(stage.validated_as for stage in DATASET_STAGES if stage.validated_as is not None),
        *OTHER_FORMATS,
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
        elif file.suffix == ".json" and status.st_size > LARGEST_DOCUMENT:
            size = LARGEST_DOCUMENT // 2**20
            yield f"{file}: has {status.st_size} bytes; a JSON document has {size} MiB at most"


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
    """What is wrong with a path in a format of `FORMATS`; empty when it is valid."""
    return list(FORMATS[name].validate(path, settings))
