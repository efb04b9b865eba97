"""Validating a step labels export: its rows, and what a model of a row cannot express."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from demo_pipeline.common.image_header import ImageInfo
from demo_pipeline.formats.answers import AnswerFormatError
from demo_pipeline.formats.desktopd.action_text import decode_action_text
from demo_pipeline.formats.split_tables import Fault, RowFormat, validate_split_tables
from demo_pipeline.formats.step_labels.models import OUTCOME_FOLDER, StepLabelsRow
from demo_pipeline.problems import Problem

_REBUILD = "build the export again"


def validate_step_labels(root: Path) -> list[Problem]:
    """The problems of a step labels export."""
    return validate_split_tables(
        root,
        [
            RowFormat(StepLabelsRow, _pictures, _step_faults),
            RowFormat(StepLabelsRow, _pictures, _outcome_faults, OUTCOME_FOLDER),
        ],
    )


def _pictures(row: StepLabelsRow) -> Sequence[str]:
    return row.images


def _step_faults(row: StepLabelsRow, sizes: Sequence[ImageInfo]) -> Iterator[Fault]:
    if not len(row.completions) == len(row.labels) == len(row.images) == row.steps:
        message = "completions, labels and images must have one item per step"
        yield "lengths", message, _REBUILD
    if row.outcome != "success" or not all(row.labels):
        message = "labels: only a demonstration that did its task shows what its steps led to"
        yield "unknown_label", message, _REBUILD
    for number, completion in enumerate(row.completions):
        yield from _action_fault(completion, f"completions[{number}]", sizes)


def _outcome_faults(row: StepLabelsRow, sizes: Sequence[ImageInfo]) -> Iterator[Fault]:
    if len(row.completions) != 1 or len(row.labels) != 1 or len(row.images) != row.steps + 1:
        message = "there must be one completion with one label, and a picture more than steps"
        yield "lengths", message, _REBUILD
    if row.labels != [row.outcome == "success"]:
        yield "wrong_label", "labels: differs from the outcome", _REBUILD
    lines = row.completions[0].split("\n")
    if sum(line.startswith("{") for line in lines) != row.steps:
        yield "lengths", "completions[0]: must have a line of JSON per step", _REBUILD
    for line in lines:
        if line.startswith("{"):
            yield from _action_fault(line, "completions[0]", sizes)


def _action_fault(text: str, name: str, sizes: Sequence[ImageInfo]) -> Iterator[Fault]:
    """Yield why the last line of a completion is no action; hidden actions are words before it."""
    size = (sizes[0].width, sizes[0].height) if sizes else (0, 0)
    try:
        decode_action_text(text.rsplit("\n", maxsplit=1)[-1], size)
    except AnswerFormatError as error:
        yield "action", f"{name}: {error.reason}", _REBUILD
