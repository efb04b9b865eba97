"""Checks the outputs of the `screenshots` stage: files, tables, missing frames and leaks.

A screenshot is a *leak* if it reveals the action, because the pointer is already at its target.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from demo_pipeline.actions.action_tables import read_actions
from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.files.image_files import png_size
from demo_pipeline.files.parquet import (
    schema_problems,
)
from demo_pipeline.files.recording_files import VIDEO_FILE
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.observation.clock.canvas import CANVAS_SIZE
from demo_pipeline.observation.frames.evidence import EVIDENCE_FILE, read_evidence
from demo_pipeline.observation.frames.final_frame import FINAL_FILE
from demo_pipeline.observation.frames.frames_table import FRAMES_FILE, FRAMES_SCHEMA, read_frames
from demo_pipeline.observation.frames.screenshot_files import (
    DIGESTS_FILE,
    PICTURES_FILE,
    PICTURES_SCHEMA,
    digest_lines,
)
from demo_pipeline.problems import Problem

_OTHER_FILES = {FRAMES_FILE, PICTURES_FILE, EVIDENCE_FILE, DIGESTS_FILE}


def check_screenshot_digests(folder: Path) -> list[Problem]:
    """Returns a problem for each file that is missing, unexpected, or differs from its digest."""
    names = {path.name for path in folder.iterdir()}
    screenshots = {name for name in names if name.endswith(".png")}
    problems = [_problem(name, "is missing") for name in sorted(_OTHER_FILES - names)]
    unexpected = sorted(names - screenshots - _OTHER_FILES)
    problems += [_problem(name, "does not belong here") for name in unexpected]
    if problems:
        return problems
    noted_lines = set((folder / DIGESTS_FILE).read_text("utf-8").splitlines())
    digests = {name: read_digest(folder / name).sha256 for name in screenshots}
    present_lines = set(digest_lines(folder, digests).splitlines())
    differing = sorted({line.split()[-1] for line in noted_lines ^ present_lines if line.split()})
    return [_problem(name, f"differs from {DIGESTS_FILE}") for name in differing]


def _problem(file: str, message: str) -> Problem:
    return Problem("bad_picture", file, message, remedy="build the screenshots again")


def check_screenshot_files(folder: Path, actions_folder: Path) -> list[Problem]:
    """Returns the problems of the tables, of evidence.json and of the PNG files.

    A PNG is wrong if it cannot be read or does not have the size of the canvas.
    """
    problems = schema_problems(folder / FRAMES_FILE, FRAMES_SCHEMA)
    problems += schema_problems(folder / PICTURES_FILE, PICTURES_SCHEMA)
    try:
        read_evidence(folder)
    except (OSError, ValidationError) as error:
        raise_system_trouble(error)
        problems.append(Problem("wrong_schema", EVIDENCE_FILE, type(error).__name__))
    if problems:
        return problems
    rows = read_frames(folder)
    expected = [action.action_index for action in read_actions(actions_folder)]
    if [row["action_index"] for row in rows] != expected:
        message = f"{len(rows)} rows for {len(expected)} actions, or not in their order"
        problems.append(Problem("frames_rows", FRAMES_FILE, message))
    problems += _wrong_frames(rows)
    names = [row["file"] for row in rows if row["file"]] + [FINAL_FILE]
    for name in names:
        try:
            size = png_size(folder / name)
        except (OSError, ValueError) as error:
            raise_system_trouble(error)
            # `strerror` has no path in it, unlike the text of the error.
            reason = str(getattr(error, "strerror", None) or error)
            problems.append(Problem("bad_picture", name, f"cannot be read: {reason}"))
            continue
        if size != CANVAS_SIZE:
            message = f"its size is {size}, expected {CANVAS_SIZE}"
            problems.append(Problem("bad_picture", name, message))
    return problems


def _wrong_frames(rows: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yields a problem for each row whose file name is wrong or whose time is out of order."""
    for row in rows:
        expected = f"{row['action_index']:03d}.png"
        if row["file"] not in {None, expected}:
            message = f"action {row['action_index']} names {row['file']}, not {expected}"
            yield Problem("frames_rows", FRAMES_FILE, message)
    frames = sorted((row["frame"], row["pts"]) for row in rows if row["frame"] is not None)
    for (frame, pts), (later_frame, later_pts) in pairwise(frames):
        if (frame == later_frame) != (pts == later_pts) or pts > later_pts:
            message = f"frame {later_frame} is at {later_pts} s, frame {frame} at {pts} s"
            yield Problem("frames_rows", FRAMES_FILE, message)


def check_frames_present(folder: Path) -> list[Problem]:
    """Returns a problem if an action has no frame, for example because the video ends too early."""
    rows = [row for row in read_frames(folder) if row["reason_code"] == "missing"]
    if not rows:
        return []
    indexes = ", ".join(str(row["action_index"]) for row in rows[:10])
    message = (
        f"{len(rows)} actions have no frame (actions {indexes}): the video does not show the "
        "screen before them"
    )
    if not all(shift.is_known for shift in read_evidence(folder).clock.shifts):
        message += ", or their time is unknown since the recorder's clock was set"
    remedy = "upload the whole video; steps without a screenshot are left out and counted"
    return [Problem("missing_frames", VIDEO_FILE, message, remedy=remedy)]


def check_screenshot_leaks(folder: Path) -> list[Problem]:
    """Returns a problem for each leak that an earlier frame would have avoided."""
    problems = []
    for row in read_frames(folder):
        if row["leak"] and not row["unavoidable"]:
            message = (
                f"action {row['action_index']}: the pointer is already at its target "
                f"({row['reason_code']}, {row['lead_ms']:.0f} ms before the press)"
            )
            remedy = "look at the contact sheet; provenance.parquet tells which steps to filter out"
            file = row["file"] or FRAMES_FILE
            problems.append(Problem("avoidable_leak", file, message, remedy=remedy))
    return problems
