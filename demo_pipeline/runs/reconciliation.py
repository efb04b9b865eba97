"""The check that no upload is lost: listed = accepted + quarantined + pending + gone.

Belongs here: that sum, the problems that name whatever does not fit into it, and whether the store
accounts for an upload.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from demo_pipeline.problems import Problem, Severity
from demo_pipeline.runs.discovery import is_given_up
from demo_pipeline.runs.discovery_table import Upload, UploadState
from demo_pipeline.runs.quarantine import read_quarantine
from demo_pipeline.runs.results import Status
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
    over = {key for key in rest if uploads[key].run or uploads[key].due is None}
    over |= {key for key in rest if is_given_up(uploads[key])}
    accepted = {key for key in over if uploads[key].state is UploadState.ACCEPTED}
    ended = {key for key in accepted if uploads[key].run is None}
    lost = {key for key in ended if key not in built or is_given_up(uploads[key])}
    pending = rest - accepted
    waiting = sorted(key for key in pending if uploads[key].cause == Status.WAITING)
    stray = {*quarantined} - present - gone
    vanished = sorted(key for key in gone if uploads[key].state is not UploadState.GONE)
    return Reconciliation(
        listed=len(present | gone),
        accepted=len(accepted - lost),
        quarantined=len(in_quarantine),
        pending=len(pending | unknown if recent_tick else pending),
        gone=len(gone),
        problems=(
            *(_problem("unknown_upload", key, recent=recent_tick) for key in sorted(unknown)),
            *(_problem("lost_upload", key) for key in sorted(lost)),
            *(_problem("waiting_upload", key, uploads[key].reason) for key in waiting),
            *(_problem("vanished_upload", key) for key in vanished),
            *(_problem("stray_quarantine", key) for key in sorted(stray)),
        ),
    )


def is_settled(workspace: Workspace, demonstration: str, fingerprint: str) -> bool:
    """Whether the store has every output, or a quarantine record, of the upload so listed.

    By whatever code: new code is not a reason to process every upload again.
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


_WORDS = {  # code → what is wrong, and what to do
    "unknown_upload": (
        "is in the uploads, and discovery is not running",
        "switch on the sensor new_uploads, and check its ticks",
    ),
    "lost_upload": (
        "has no trajectory from its last run, which was cancelled, died or was deleted",
        "check its runs in the UI, then process the demonstration again",
    ),
    "waiting_upload": (
        "is waiting: {}",
        "nothing, if that passes: it is tried again with growing pauses, up to half an hour",
    ),
    "vanished_upload": (
        "is no longer in the uploads; discovery records that after two sweeps",
        "nothing, if it was deleted on purpose; what was built from it stays",
    ),
    "stray_quarantine": (
        "has a quarantine record and was never seen in the uploads",
        "upload it, or delete its records, quarantine/<id>/ in the store",
    ),
}
_ARRIVED = "arrived after the last tick of discovery", "nothing, unless this stays so"


def _problem(code: str, demonstration: str, reason: str = "", *, recent: bool = False) -> Problem:
    message, remedy = _ARRIVED if recent else _WORDS[code]
    is_error = code in {"unknown_upload", "lost_upload"} and not recent
    severity = Severity.ERROR if is_error else Severity.WARNING
    message = message.format(reason)
    return Problem(
        code, ".", message, remedy=remedy, severity=severity, demonstration=demonstration
    )
