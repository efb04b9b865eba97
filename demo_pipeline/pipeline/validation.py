"""Recognising the format of any path, and validating it.

Belongs here: `demo-pipeline validate` without its console output. The formats of the datasets come
from the registry of dataset stages, the rules from each format's own package.
"""

from collections.abc import Mapping
from pathlib import Path

from demo_pipeline.pipeline.dataset_stages import DATASET_STAGES
from demo_pipeline.pipeline.stage_types import ValidatedFormat
from demo_pipeline.pipeline.validated_formats import OTHER_FORMATS
from demo_pipeline.problems import Problem
from demo_pipeline.settings import Settings

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
    by its suffix, unless its name is that of a part of a folder, which is validated as a whole.
    """
    if path.is_file():
        return _recognise_file(path)
    shares = {known.name: _share(path, known) for known in FORMATS.values()}
    for known in FORMATS.values():
        if known.decisive and shares[known.name]:
            return known.name
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] else None


def _recognise_file(path: Path) -> str | None:
    parts = {name for known in FORMATS.values() for name in known.files}
    for known in FORMATS.values():
        if known.file_suffix and known.file_suffix == path.suffix:
            is_part = path.name in parts and known.files != (path.name,)
            return None if is_part else known.name
    return None


def _share(folder: Path, known: ValidatedFormat) -> float:
    return sum((folder / name).exists() for name in known.files) / len(known.files)


def validate(path: Path, name: str, settings: Settings) -> list[Problem]:
    """What is wrong with a path in a format of `FORMATS`; empty when it is valid."""
    return list(FORMATS[name].validate(path, settings))
