"""Validating a transitions export: its rows, and what a model of a row cannot express."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from demo_pipeline.common.image_header import ImageInfo
from demo_pipeline.formats.answers import AnsweredAction, AnswerFormatError
from demo_pipeline.formats.desktopd.action_text import decode_action_text
from demo_pipeline.formats.split_tables import Fault, RowFormat, validate_split_tables
from demo_pipeline.formats.transitions.models import TransitionRow
from demo_pipeline.problems import Problem

_REBUILD = "build the export again"


def validate_transitions(root: Path) -> list[Problem]:
    """The problems of a transitions export."""
    return validate_split_tables(root, [RowFormat(TransitionRow, _pictures, _faults)])


def _pictures(row: TransitionRow) -> Sequence[str]:
    return row.before, row.after


def _faults(row: TransitionRow, sizes: Sequence[ImageInfo]) -> Iterator[Fault]:
    try:
        answer = decode_action_text(row.action, (sizes[0].width, sizes[0].height))
    except AnswerFormatError as error:
        yield "action", f"action: {error.reason}", _REBUILD
        return
    (action,) = answer.actions
    if isinstance(action, AnsweredAction) and action.action_type != row.action_type:
        yield "action", "action_type differs from that of the action", _REBUILD
    if row.before == row.after:
        yield "no_transition", "after: is the same file as before", _REBUILD
    if sizes[0] != sizes[1]:
        yield "image_size", "after: has another size than before", _REBUILD
    folder = f"trajectories/{row.trajectory_id}/"
    if not (row.before.startswith(folder) and row.after.startswith(folder)):
        yield "wrong_step", "a picture is of another trajectory", _REBUILD
