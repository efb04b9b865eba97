"""Quarantine for what no stage can find: runs that died, and uploads that nobody can tell apart.

Belongs here: those records. What a stage finds, it writes down itself (stages.py).
"""

from collections.abc import Mapping, Sequence

from demo_pipeline import __version__
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.pipeline.quarantine import (
    QuarantineRecord,
    quarantine,
    read_quarantine,
    release,
    without_fingerprint,
)
from demo_pipeline.problems import Problem

COLLISION, CRASH = "id_collision", "run_crashed"


def record_crash(
    pipeline: Workspace, demonstration: str, stage: str, cause: str
) -> QuarantineRecord:
    """Quarantine a demonstration whose run ended without a verdict.

    Args:
        pipeline: roots and settings.
        demonstration: its id.
        stage: in which the run ended.
        cause: what ended it, e.g. an exception's name; never its words, which may quote the upload.
    """
    problem = Problem(
        CRASH,
        ".",
        f"the run ended in {stage}: {cause}",
        remedy="look at its newest run in the UI; when the cause is gone, run retry_quarantined",
        demonstration=demonstration,
    )
    uploaded = pipeline.uploads.identity(demonstration)
    return quarantine(
        pipeline.store, demonstration, stage, uploaded, __version__, problems=[problem]
    )


def hold_collisions(pipeline: Workspace, collisions: Mapping[str, Sequence[str]]) -> list[str]:
    """Quarantine the ids that several folders meet on; returns those that no longer do.

    Args:
        pipeline: roots and settings.
        collisions: id → names of the folders that meet on it, all there are.
    """
    for key, names in collisions.items():
        problem = collision_problem(key, names)
        standing = read_quarantine(pipeline.store, key)
        if standing is None or problem.as_dict() not in standing.problems:
            first = STAGES[0].name
            quarantine(pipeline.store, key, first, None, __version__, problems=[problem])
    parted = [
        key
        for key in without_fingerprint(pipeline.store)
        if key not in collisions and _collided(pipeline, key)
    ]
    for key in parted:
        release(pipeline.store, key)
    return parted


def collision_problem(demonstration: str, names: Sequence[str]) -> Problem:
    """Why neither of several folders is taken."""
    return Problem(
        COLLISION,
        " and ".join(_printable(name) for name in sorted(names)),
        f"these folders meet on the id {demonstration}",
        remedy="rename all but one of them",
        demonstration=demonstration,
    )


def _printable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _collided(pipeline: Workspace, demonstration: str) -> bool:
    record = read_quarantine(pipeline.store, demonstration)
    return (
        record is not None
        and record.problems[:1] != []
        and (record.problems[0].get("code") == COLLISION)
    )
