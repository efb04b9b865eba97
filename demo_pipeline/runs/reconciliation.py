"""The check that no upload is lost: listed = accepted + quarantined + pending + gone.

Belongs here: that sum, the problems that name whatever does not fit into it, and whether the store
accounts for an upload.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from demo_pipeline.problems import Problem, Severity
from demo_pipeline.runs.discovery import RunOutcome, is_given_up
from demo_pipeline.runs.discovery_table import Upload, UploadState
from demo_pipeline.runs.quarantine import read_quarantine
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Counts in which every id counts once. An id with a requested run is pending.

    Attributes:
        listed: ids in the uploads, and those that were there once.
        accepted: a run for the present files has built the outputs, or is queued or running.
        quarantined: with a quarantine record, or several folders have the id.
        pending: not seen yet, incomplete, not yet stable, returned after it was gone, or to be run
            again because a run was lost or had to wait.
        gone: no longer in the uploads.
        problems: what does not fit. Only an error makes the sum wrong.
    """

    listed: int
    accepted: int
    quarantined: int
    pending: int
    gone: int
    problems: tuple[Problem, ...]

    @property
    def balanced(self) -> bool:
        """Whether the sum is right."""
        return self.listed == self.accepted + self.quarantined + self.pending + self.gone


def reconcile(
    uploads: Mapping[str, Upload],
    colliding: Collection[str],
    quarantined: Collection[str],
    built: Collection[str],
    listed: Collection[str],
    *,
    recent_tick: bool = False,
) -> Reconciliation:
    """Count every demonstration once.

    Args:
        uploads: what discovery knows of each id.
        colliding: ids that several folders have.
        quarantined: ids with a quarantine record.
        built: ids with an output of the last stage.
        listed: ids in the uploads by a new listing.
        recent_tick: discovery ticked a short time ago, so what it does not know has just arrived.
    """
    present = {*listed, *colliding}
    unknown = present - uploads.keys()
    gone = uploads.keys() - present
    in_quarantine = {*quarantined, *colliding} & (present - unknown)
    rest = present - unknown - in_quarantine
    accepted = {key for key in rest if _is_accepted(uploads[key])}
    ended = {key for key in accepted if uploads[key].run is None}
    lost = {key for key in ended if key not in built or is_given_up(uploads[key])}
    pending = rest - accepted
    waiting = sorted(key for key in pending if uploads[key].cause == RunOutcome.WAITING)
    vanished = sorted(key for key in gone if uploads[key].state is not UploadState.GONE)
    return Reconciliation(
        listed=len(present | gone),
        accepted=len(accepted - lost),
        quarantined=len(in_quarantine),
        pending=len(pending | unknown if recent_tick else pending),
        gone=len(gone),
        problems=(
            *(_unknown(key, recent_tick=recent_tick) for key in sorted(unknown)),
            *map(_lost, sorted(lost)),
            *(_waiting(key, uploads[key].reason) for key in waiting),
            *map(_vanished, vanished),
            *map(_stray, sorted({*quarantined} - present - gone)),
        ),
    )


def is_settled(workspace: Workspace, demonstration: str, fingerprint: str) -> bool:
    """Whether the store has every output, or a quarantine record, of this upload.

    By whatever code: new code is not a reason to process every upload again.

    Args:
        workspace: roots and settings.
        demonstration: its id.
        fingerprint: of the upload's listing, which is its identity in a bucket.

    Raises:
        StorageError: the store or the upload cannot be read.
    """
    record = read_quarantine(workspace.store, demonstration)
    built = _built_from(workspace, demonstration)
    if record is None and built is None:
        return False
    copies = workspace.uploads.copies
    identity = fingerprint if copies else workspace.uploads.identity(demonstration)
    if built is not None and built == identity:
        return True
    return record is not None and record.fingerprint == identity


def _built_from(workspace: Workspace, demonstration: str) -> str | None:
    """Identity of the upload that every output was built from; None without one."""
    contents: dict[str, str] = {}
    upload = None
    for stage in STAGES:
        current = workspace.store.current(stage.output(demonstration))
        if current is None:
            return None
        inputs = current.manifest.recipe.inputs
        if any(inputs.get(name) != contents[name] for name in stage.inputs):
            return None
        upload = inputs.get("upload", upload)
        contents[stage.name] = current.content
    return upload


def _is_accepted(upload: Upload) -> bool:
    """Whether no run has to follow."""
    over = upload.run is not None or upload.due is None or is_given_up(upload)
    return upload.state is UploadState.ACCEPTED and over


def _unknown(demonstration: str, *, recent_tick: bool) -> Problem:
    if recent_tick:
        message = "arrived after the last tick of discovery"
        remedy = "nothing, unless this stays so"
    else:
        message = "is in the uploads, and discovery is not running"
        remedy = "switch on the sensor new_uploads, and check its ticks"
    severity = Severity.WARNING if recent_tick else Severity.ERROR
    return _problem("unknown_upload", demonstration, message, remedy, severity)


def _lost(demonstration: str) -> Problem:
    message = "has no trajectory from its last run, which was cancelled, died or was deleted"
    remedy = "check its runs in the UI, then process the demonstration again"
    return _problem("lost_upload", demonstration, message, remedy, Severity.ERROR)


def _waiting(demonstration: str, reason: str) -> Problem:
    remedy = "nothing, if that passes: it is tried again with growing pauses, up to half an hour"
    return _problem("waiting_upload", demonstration, f"is waiting: {reason}", remedy)


def _vanished(demonstration: str) -> Problem:
    message = "is no longer in the uploads; discovery records that after two sweeps"
    remedy = "nothing, if it was deleted on purpose; what was built from it stays"
    return _problem("vanished_upload", demonstration, message, remedy)


def _stray(demonstration: str) -> Problem:
    message = "has a quarantine record and was never seen in the uploads"
    remedy = "upload it, or delete its records, quarantine/<id>/ in the store"
    return _problem("stray_quarantine", demonstration, message, remedy)


def _problem(
    code: str,
    demonstration: str,
    message: str,
    remedy: str,
    severity: Severity = Severity.WARNING,
) -> Problem:
    return Problem(
        code, ".", message, remedy=remedy, severity=severity, demonstration=demonstration
    )
