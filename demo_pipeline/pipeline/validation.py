"""What a path is, and what is wrong with it: one entrance to every validator.

Belongs here: recognising a recording, a trajectory, a dataset, a CUDAG directory, SFT samples,
messages or OSWorld tasks by its files. The rules are each format's own.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from demo_pipeline.common.recording_files import LOG_FILE, RECORDING_FILES
from demo_pipeline.formats.cudag.validator import validate_cudag
from demo_pipeline.formats.desktopd.sft_validator import validate_sft
from demo_pipeline.formats.desktopd.validator import validate_dataset, validate_trajectory
from demo_pipeline.formats.messages.models import SCHEMA_FILE
from demo_pipeline.formats.messages.validator import validate_messages
from demo_pipeline.formats.osworld.task import validate_task_file
from demo_pipeline.formats.osworld.task_folder import validate_task_folder
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.event_tables import Rejected
from demo_pipeline.recording.input_log import parse_log
from demo_pipeline.recording.log_lines import BUFFER_BYTES
from demo_pipeline.recording.manifest import examine
from demo_pipeline.settings import Settings


class PathKind(StrEnum):
    """What can be validated."""

    RECORDING = "recording"
    TRAJECTORY = "trajectory"
    DATASET = "dataset"
    CUDAG = "cudag"
    SFT = "sft"
    MESSAGES = "messages"
    OSWORLD = "osworld"


_MARKS: Mapping[PathKind, tuple[str, ...]] = {
    PathKind.DATASET: ("index.json", "trajectories"),
    PathKind.TRAJECTORY: ("task.json", "result.json", "steps"),
    PathKind.CUDAG: ("data.jsonl", "train.jsonl", "val.jsonl", "config.json", "images", "test"),
    PathKind.SFT: ("samples.jsonl",),
    PathKind.MESSAGES: (SCHEMA_FILE,),
    PathKind.OSWORLD: ("examples", "test_all.json"),
    PathKind.RECORDING: RECORDING_FILES,
}


def kind_of(path: Path) -> PathKind | None:
    """The kind whose files are most completely there; None when none is.

    A single file is SFT samples or an OSWorld task, unless its name says that it is a part of
    something else, which is validated as a whole.
    """
    if path.is_file():
        parts = {name for kind, names in _MARKS.items() if kind != PathKind.SFT for name in names}
        by_suffix = {".jsonl": PathKind.SFT, ".json": PathKind.OSWORLD}
        return None if path.name in parts else by_suffix.get(path.suffix)
    shares = {
        kind: sum((path / name).exists() for name in names) / len(names)
        for kind, names in _MARKS.items()
    }
    for kind in (PathKind.SFT, PathKind.MESSAGES):
        if shares[kind]:
            return kind
    best = max(shares, key=lambda kind: shares[kind])
    return best if shares[best] else None


def validate(path: Path, kind: PathKind, settings: Settings) -> list[Problem]:
    """What is wrong with `path` as a `kind`; empty when all is well."""
    validators: Mapping[PathKind, Callable[[], list[Problem]]] = {
        PathKind.RECORDING: lambda: validate_recording(path, settings),
        PathKind.TRAJECTORY: lambda: validate_trajectory(path),
        PathKind.DATASET: lambda: validate_dataset(path),
        PathKind.CUDAG: lambda: validate_cudag(path),
        PathKind.SFT: lambda: validate_sft(path / "samples.jsonl" if path.is_dir() else path),
        PathKind.MESSAGES: lambda: validate_messages(path if path.is_dir() else path.parent),
        PathKind.OSWORLD: lambda: (validate_task_folder if path.is_dir() else validate_task_file)(
            path
        ),
    }
    return validators[kind]()


def validate_recording(path: Path, settings: Settings) -> list[Problem]:
    """A demonstration folder against seed 000; a line that is rejected is an error here."""
    problems: list[Problem] = []
    try:
        manifest = examine(path, path.name, path.name, settings.recording)
        problems.extend(Problem.from_dict(one, demonstration="") for one in manifest.warnings)
    except DemonstrationError as error:
        problems.extend(error.problems)
    log = path / LOG_FILE
    if log.is_file():
        with log.open("rb", buffering=BUFFER_BYTES) as stream:
            problems.extend(
                Problem(item.code, LOG_FILE, item.message, line=item.line)
                for item in parse_log(stream, settings.recording)
                if isinstance(item, Rejected)
            )
    return problems
