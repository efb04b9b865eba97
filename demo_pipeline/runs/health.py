"""Examines whether the pipeline can work: versions, roots, free space, quarantine and leftovers.

The checks need no Dagster. Only unfinished files of dead processes are removed.
"""

import logging
import platform
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path

from pydantic import JsonValue

from demo_pipeline import __version__
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.files.shown_text import counted
from demo_pipeline.files.system_errors import system_trouble
from demo_pipeline.runs.failures import transient_reason
from demo_pipeline.runs.quarantine import QUARANTINE_FOLDER, list_quarantine
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.store.documents import DamagedDocument, damaged_documents
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import is_bucket, local_path
from demo_pipeline.store.split_memory import read_split_memory
from demo_pipeline.store.store import Store
from demo_pipeline.store.uploads import NAME_RULE
from demo_pipeline.store.versions import OutputDamage

LOW_BYTES = 5 * 10**9  # free space below which a check warns: some hours of recordings
VERY_LOW_BYTES = 10**9  # below which a run is likely to fail
_PACKAGES = ("dagster", "av", "opencv-python-headless", "pyarrow", "duckdb", "pandas", "botocore")
_GIGABYTE = 1e9
_BLOCK = b"\0" * 4096  # a disk without room for a block cannot hold an output
_WRITTEN = ("", ".staging", ".versions")  # folders of a store, if they exist
_LOG = logging.getLogger(__package__)


class HealthLevel(StrEnum):
    """How bad a finding is: an `error` must be corrected now, a `warning` at some time."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check.

    Attributes:
        check: its name.
        level: how bad it is.
        message: for people; says what to do if the level is not `ok`.
        values: the same for machines.
    """

    check: str
    level: HealthLevel
    message: str
    values: Mapping[str, JsonValue] = field(default_factory=dict)


def healthy(check: str, message: str, **values: JsonValue) -> Finding:
    """A finding without a problem."""
    return Finding(check, HealthLevel.OK, message, values)


def examine_workspace(workspace: Workspace) -> Iterator[Finding]:
    """Yield the findings about versions, roots, space, outputs, quarantine and leftovers."""
    yield _versions()
    yield _uploads(workspace)
    store = store_finding(workspace)
    yield store
    yield from _free_space(workspace.settings)
    if store.level is HealthLevel.OK:
        yield _outputs(workspace)
        yield _documents(workspace)
        yield _quarantine(workspace)
        yield _leftovers(workspace)
        yield from _twins(workspace)


def _documents(workspace: Workspace) -> Finding:
    """Whether the JSON documents with decisions, records and splits can be read."""
    if is_bucket(workspace.store.url):
        return healthy("documents", "not read in a bucket; `demo-pipeline revalidate` does")
    damaged = damaged_documents(workspace.store)
    if not damaged:
        return healthy("documents", "decisions, records and splits can be read", damaged=0)
    more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
    return Finding("documents", HealthLevel.ERROR, f"{damaged[0]}{more}", {"damaged": len(damaged)})


def _twins(workspace: Workspace) -> Iterator[Finding]:
    """Yield the ids with the same upload, as the last build of the datasets saw them."""
    try:
        memory = read_split_memory(workspace.store)
    except DamagedDocument as error:
        if is_bucket(workspace.store.url):  # in a folder, the check `documents` reports it
            yield Finding("documents", HealthLevel.ERROR, str(error))
        return
    for sentence in memory.twins():
        yield Finding("duplicates", HealthLevel.WARNING, sentence)


def _versions() -> Finding:
    versions: dict[str, JsonValue] = {
        "demo_pipeline": __version__,
        "python": platform.python_version(),
    }
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            message = f"{name} is not installed; run `make setup`"
            return Finding("versions", HealthLevel.ERROR, message, versions)
    message = ", ".join(f"{name} {number}" for name, number in versions.items())
    return healthy("versions", message, **versions)


def _uploads(workspace: Workspace) -> Finding:
    url = workspace.uploads.url
    if not is_bucket(url) and not local_path(url).is_dir():
        error = StorageError("no such folder; create it, or set DEMO_PIPELINE_UPLOADS")
        return _failure("uploads", url, error)
    try:
        folders = workspace.uploads.objects.folders()
        misnamed = workspace.uploads.misnamed()
    except (StorageError, OSError) as error:
        return _failure("uploads", url, error)
    if misnamed:
        message = f"refused: {counted(len(misnamed), 'folders')} of {url}: {NAME_RULE}"
        return Finding("uploads", HealthLevel.WARNING, message, {"url": url})
    message = f"{url} can be read"
    if not folders:
        message += "; no recording is there yet"
    return healthy("uploads", message, url=url)


def store_finding(workspace: Workspace) -> Finding:
    """Whether the store can be written: writes a file or an object, and removes it at once."""
    url = workspace.store.url
    try:
        if is_bucket(url):
            key = f"{QUARANTINE_FOLDER}/doctor/{secrets.token_hex(8)}"  # the policy allows this one
            workspace.store.put_document(key, b"")
            workspace.store.delete_document(key)
        else:
            for folder in {_existing(local_path(url) / name) for name in _WRITTEN}:
                with tempfile.TemporaryFile(dir=folder) as file:
                    file.write(_BLOCK)
                    file.flush()
    except (StorageError, OSError) as error:
        reason = str(error)  # of a bucket; it says what to do
        if not isinstance(error, StorageError):
            reason = f"{system_trouble(error)}; make it writable or make room in it, or name "
            reason += "another place in DEMO_PIPELINE_STORE"
        message = f"{url} cannot be written to: {reason}"
        return Finding("store", HealthLevel.ERROR, message, {"url": url})
    return healthy("store", f"{url} can be written", url=url)


def _failure(check: str, url: str, error: Exception) -> Finding:
    """The finding about a root that cannot be used, without the message of a system error."""
    reason = str(error)
    if not isinstance(error, StorageError):
        reason = f"{type(error).__name__}; name another place, or give this user access"
    return Finding(check, HealthLevel.ERROR, f"{url}: {reason}", {"url": url})


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _free_space(settings: Settings) -> Iterator[Finding]:
    """Yield the free space of every file system that is written to."""
    roots = {} if is_bucket(settings.store) else {"store": settings.store}
    seen = set()
    for name, url in (roots | {"cache": settings.cache}).items():
        try:
            folder = _existing(local_path(url))
        except OSError as error:  # a folder above it cannot be entered
            if name != "store":  # `store_finding` reports the store
                yield _failure(name, url, error)
            continue
        device = folder.stat().st_dev
        if device not in seen:
            yield space_finding(name, folder, shutil.disk_usage(folder).free)
        seen.add(device)


def space_finding(root: str, folder: Path, free: int) -> Finding:
    """The finding about `free` bytes on the file system of a root."""
    message = f"{free / _GIGABYTE:.1f} GB are free at {folder}"
    level = HealthLevel.OK
    if free < LOW_BYTES:
        level = HealthLevel.ERROR if free < VERY_LOW_BYTES else HealthLevel.WARNING
        message += "; `demo-pipeline prune` removes old versions"
    return Finding("free_space", level, message, {"root": root, "free_bytes": free})


def _outputs(workspace: Workspace) -> Finding:
    """Whether outputs are undamaged, by sizes and by what datasets found when they read records."""
    if not workspace.store.outputs():
        return healthy("outputs", "there are no outputs yet", damaged=0)
    from demo_pipeline.runs.damage import damage_problem  # noqa: PLC0415 - imports every stage
    from demo_pipeline.runs.demonstration_outputs import noted_damage  # noqa: PLC0415
    from demo_pipeline.runs.graph import Graph  # noqa: PLC0415

    problems = noted_damage(Graph(workspace))
    if not is_bucket(workspace.store.url):
        noted_files = {problem.file for problem in problems}
        for damage in _quick_damage(workspace.store):
            if damage.file not in noted_files:
                problems.append(damage_problem(damage))
    elif not problems:
        return healthy("outputs", "not compared in a bucket; `demo-pipeline revalidate` does")
    if not problems:
        message = "every file has its size; `demo-pipeline revalidate` compares every byte"
        return healthy("outputs", message, damaged=0)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Finding("outputs", HealthLevel.ERROR, f"{problems[0]}{more}", {"damaged": len(problems)})


def _quick_damage(store: Store) -> Iterator[OutputDamage]:
    """Yield the first damage of each output that lacks a file or has a file of another size."""
    for name in store.outputs():
        if store.current(name) is None:
            unknown = OutputDamage.of(name, "changed_file", ".", "is not complete")
            yield next(iter(store.verify(name)), unknown)


def _quarantine(workspace: Workspace) -> Finding:
    try:
        count = len(list_quarantine(workspace.store))
    except StorageError as error:
        return _failure("quarantine", workspace.store.url, error)
    if not count:
        return healthy("quarantine", "nothing is quarantined", quarantined=0)
    message = f"{count} quarantined; `demo-pipeline quarantine` shows the reasons"
    return Finding("quarantine", HealthLevel.WARNING, message, {"quarantined": count})


def _leftovers(workspace: Workspace) -> Finding:
    count = len(workspace.store.local.abandoned())
    if not count:
        return healthy("leftovers", "nothing unfinished is left over", leftovers=0)
    message = f"{count} directories of processes that died; `demo-pipeline prune` removes them"
    return Finding("leftovers", HealthLevel.WARNING, message, {"leftovers": count})


def clear_leftovers(workspace: Workspace) -> list[str]:
    """Remove unfinished files of dead processes; returns a line for each.

    Files that cannot be removed now are left for the next time.
    """
    lines: list[str] = []
    for root in (workspace.store, workspace.uploads):
        try:
            lines += [f"{name} of a dead process was removed" for name in root.remove_leftovers()]
        except (OSError, StorageError) as error:
            _LOG.warning("leftovers cannot be removed: %s", transient_reason(error))
    return lines


def incomplete_uploads(workspace: Workspace) -> dict[str, str]:
    """Demonstration → its missing files, as a phrase; sorted, without quarantined demonstrations.

    Raises:
        StorageError: the uploads or the store cannot be read.
    """
    quarantined = {record.demonstration for record in list_quarantine(workspace.store)}
    incomplete = {}
    for upload in sorted(workspace.uploads.list_demonstrations(), key=attrgetter("id")):
        names = [name for name in RECORDING_FILES if name not in upload.files]
        if names and upload.id not in quarantined:
            verb = "is" if len(names) == 1 else "are"
            incomplete[upload.id] = f"{', '.join(names)} {verb} missing"
    return incomplete
