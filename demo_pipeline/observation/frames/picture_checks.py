"""Whether the pictures of a demonstration are those that were encoded."""

from pathlib import Path

from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.observation.frames.picture_files import (
    DIGESTS_FILE,
    PICTURES_FILE,
    digest_lines,
)
from demo_pipeline.observation.frames.screenshots import EVIDENCE_FILE, FRAMES_FILE
from demo_pipeline.problems import Problem

_OTHER_FILES = {FRAMES_FILE, PICTURES_FILE, EVIDENCE_FILE, DIGESTS_FILE}


def check_picture_digests(folder: Path) -> list[Problem]:
    """The pictures and their table have the digests that the encoder noted; nothing else is there.

    The stages after this one link these files, and read pictures by their digests.
    """
    names = {path.name for path in folder.iterdir()}
    pictures = {name for name in names if name.endswith(".png")}
    problems = [_problem(name, "is missing") for name in sorted(_OTHER_FILES - names)]
    unexpected = sorted(names - pictures - _OTHER_FILES)
    problems += [_problem(name, "does not belong here") for name in unexpected]
    if problems:
        return problems
    noted = set((folder / DIGESTS_FILE).read_text("utf-8").splitlines())
    digests = {name: read_digest(folder / name).sha256 for name in pictures}
    present = set(digest_lines(folder, digests).splitlines())
    differing = sorted({line.split()[-1] for line in noted ^ present if line.split()})
    return [_problem(name, f"differs from {DIGESTS_FILE}") for name in differing]


def _problem(file: str, message: str) -> Problem:
    return Problem("bad_picture", file, message, remedy="build the screenshots again")
