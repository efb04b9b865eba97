"""Quarantine for problems that no stage can report: crashed runs and colliding ids.

Belongs here: those records. A stage records its own failures (runner.py).
"""

from collections.abc import Mapping, Sequence

from demo_pipeline import __version__
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.quarantine import (
    QuarantineRecord,
    quarantine_demonstration,
    read_quarantine,
    release,
    without_fingerprint,
)
from demo_pipeline.problems import Problem
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.storage.errors import StorageError

COLLISION, CRASH = "id_collision", "run_crashed"


def record_crash(
    workspace: Workspace, demonstration: str, stage: str, cause: str
) -> QuarantineRecord:
    """Quarantine a demonstration whose run ended without a result.

    Args:
        workspace: roots and settings.
        demonstration: its id.
        stage: in which the run ended.
        cause: what ended it, e.g. the name of an exception; never its message, which may quote the
            upload.
    """
    problem = Problem(
        CRASH,
        ".",
        f"the run ended in {stage}: {cause}",
        remedy="open its newest run in the UI; when the cause is removed, run retry_quarantined",
        demonstration=demonstration,
    )
    uploaded = workspace.uploads.identity(demonstration)
    return quarantine_demonstration(
        workspace.store, demonstration, stage, uploaded, __version__, problems=[problem]
    )


def quarantine_collisions(
    workspace: Workspace, collisions: Mapping[str, Sequence[str]]
) -> tuple[list[str], list[str]]:
    """Quarantine the ids that several folders share, release the ids that no longer collide.

    A record that cannot be read or written keeps no other from it; a later call tries again.

    Args:
        workspace: roots and settings.
        collisions: id → names of the folders that share it, for every collision.

    Returns:
        The released ids; and the messages of errors.
    """
    released: list[str] = []
    errors: list[str] = []
    for key in sorted({*collisions, *without_fingerprint(workspace.store)}):
        try:
            if key in collisions:
                _quarantine_collision(workspace, key, collisions[key])
            elif _has_collided(workspace, key):
                release(workspace.store, key)
                released.append(key)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this one's alone
            message = str(error) if isinstance(error, StorageError) else type(error).__name__
            errors.append(f"{key}: {message}")
    return released, errors


def _quarantine_collision(workspace: Workspace, key: str, names: Sequence[str]) -> None:
    problem = collision_problem(key, names)
    current = read_quarantine(workspace.store, key)
    if current is None or problem.as_dict() not in current.problems:
        first = RAW_RECORDINGS_STAGE.name
        quarantine_demonstration(workspace.store, key, first, None, __version__, problems=[problem])


def collision_problem(demonstration: str, names: Sequence[str]) -> Problem:
    """Why none of several folders is processed."""
    return Problem(
        COLLISION,
        " and ".join(_printable(name) for name in sorted(names)),
        f"these folders have the same id {demonstration}",
        remedy="rename all but one of them",
        demonstration=demonstration,
    )


def _printable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _has_collided(workspace: Workspace, demonstration: str) -> bool:
    record = read_quarantine(workspace.store, demonstration)
    return record is not None and any(
        problem.get("code") == COLLISION for problem in record.problems[:1]
    )
