"""Health checks of the roots (uploads, store, cache), outputs, quarantine and leftovers.

`demo-pipeline doctor` also checks Dagster's instance, with `defs/instance_health.py`. The checks
change nothing. `clear_leftovers` removes unfinished files of dead processes.
"""

import logging
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from pathlib import Path

from pydantic import JsonValue

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

LOW_BYTES = 5 * 10**9  # less free space causes a warning; 5 GB hold a few hours of recordings
VERY_LOW_BYTES = 10**9  # less free space causes an error, because a run is likely to fail
_GIGABYTE = 1e9
_BLOCK = b"\0" * 4096  # written to test for free space; an empty file may fit on a full disk
_WRITTEN = ("", ".staging", ".versions")  # folders of a local store in which files are created
_LOG = logging.getLogger(__package__)


class HealthLevel(StrEnum):
    """The severity of a finding. An `error` must be corrected now, but a `warning` can wait."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a health check, or of a part of a check.

    Attributes:
        message: text for people, with the remedy if the level is not `ok`.
        values: the facts of the message in machine-readable form.
    """

    check: str
    level: HealthLevel
    message: str
    values: Mapping[str, JsonValue] = field(default_factory=dict)


def healthy(check: str, message: str, **values: JsonValue) -> Finding:
    """Returns a finding without a problem."""
    return Finding(check, HealthLevel.OK, message, values)


def combined(check: str, parts: Sequence[Finding]) -> Finding:
    """Joins the findings about the parts of a check into one finding with the worst level.

    The message lists the errors and then the warnings. If no part has a problem, it lists all
    messages. The values map each part to its values and level.
    """
    errors = [part for part in parts if part.level is HealthLevel.ERROR]
    warnings = [part for part in parts if part.level is HealthLevel.WARNING]
    bad_parts = errors + warnings
    level = bad_parts[0].level if bad_parts else HealthLevel.OK
    message = "; ".join(part.message for part in bad_parts or parts)
    values = {part.check: {"level": part.level.value, **part.values} for part in parts}
    return Finding(check, level, message, values)


def examine_workspace(workspace: Workspace) -> Iterator[Finding]:
    """Yields the findings about roots (uploads, store, cache), outputs, quarantine and leftovers.

    Outputs, quarantine and leftovers are examined only if the store can be written.
    """
    store = store_finding(workspace)
    yield combined("roots", [_uploads(workspace), store, *_free_space(workspace.settings)])
    if store.level is HealthLevel.OK:
        yield combined("outputs", [_output_files(workspace), _documents(workspace)])
        yield _quarantine(workspace)
        yield _leftovers(workspace)


def _documents(workspace: Workspace) -> Finding:
    """Examines whether the store's JSON documents, such as reviewers' decisions, can be read.

    In a bucket, only the document with the splits is read.
    """
    if is_bucket(workspace.store.url):
        try:
            read_split_memory(workspace.store)
        except DamagedDocument as error:
            return Finding("documents", HealthLevel.ERROR, str(error), {"damaged": 1})
        message = (
            "the document with the splits can be read; other documents are not read in a bucket"
        )
        return healthy("documents", message, damaged=0)
    damaged = damaged_documents(workspace.store)
    if not damaged:
        return healthy("documents", "decisions, records and splits can be read", damaged=0)
    more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
    return Finding("documents", HealthLevel.ERROR, f"{damaged[0]}{more}", {"damaged": len(damaged)})


def _uploads(workspace: Workspace) -> Finding:
    """Examines whether the uploads can be read, and whether all folder names are valid ids."""
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
    """Writes and removes a file or an object to examine whether the store can be written."""
    url = workspace.store.url
    try:
        if is_bucket(url):
            # The minimal access rights in docs/guides/operations.md allow writing this key.
            key = f"{QUARANTINE_FOLDER}/doctor/{secrets.token_hex(8)}"
            workspace.store.put_document(key, b"")
            workspace.store.delete_document(key)
        else:
            for folder in {_existing(local_path(url) / name) for name in _WRITTEN}:
                with tempfile.TemporaryFile(dir=folder) as file:
                    file.write(_BLOCK)
                    file.flush()
    except (StorageError, OSError) as error:
        reason = str(error)  # a StorageError already says how to correct the problem
        if not isinstance(error, StorageError):
            reason = f"{system_trouble(error)}; make it writable or make room in it, or name "
            reason += "another place in DEMO_PIPELINE_STORE"
        message = f"{url} cannot be written to: {reason}"
        return Finding("store", HealthLevel.ERROR, message, {"url": url})
    return healthy("store", f"{url} can be written", url=url)


def _failure(check: str, url: str, error: Exception) -> Finding:
    """Returns the finding about a root folder or bucket that cannot be used.

    An operating system error is named without its message, which repeats the path.
    """
    reason = str(error)
    if not isinstance(error, StorageError):
        reason = f"{type(error).__name__}; name another place, or give this user access"
    return Finding(check, HealthLevel.ERROR, f"{url}: {reason}", {"url": url})


def _existing(path: Path) -> Path:
    """Returns the path if it exists, otherwise the nearest existing folder above it."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _free_space(settings: Settings) -> Iterator[Finding]:
    """Yields a finding about the free space of each file system with the cache or a local store."""
    roots = {} if is_bucket(settings.store) else {"store": settings.store}
    examined_devices = set()
    for name, url in (roots | {"cache": settings.cache}).items():
        try:
            folder = _existing(local_path(url))
        except OSError as error:  # the root or a folder above it cannot be accessed
            if name != "store":  # `store_finding` reports problems of the store
                yield _failure(name, url, error)
            continue
        device = folder.stat().st_dev
        if device not in examined_devices:
            yield space_finding(name, folder, shutil.disk_usage(folder).free)
        examined_devices.add(device)


def space_finding(root: str, folder: Path, free: int) -> Finding:
    """Returns a finding on whether `free` bytes are enough for the root `store` or `cache`."""
    message = f"{free / _GIGABYTE:.1f} GB are free at {folder}"
    level = HealthLevel.OK
    if free < LOW_BYTES:
        level = HealthLevel.ERROR if free < VERY_LOW_BYTES else HealthLevel.WARNING
        message += "; `demo-pipeline prune` removes old versions"
    return Finding(f"{root}_space", level, message, {"free_bytes": free})


def _output_files(workspace: Workspace) -> Finding:
    """Examines whether committed outputs are undamaged.

    Compares the sizes of all files with the manifests, unless the store is a bucket. In any store,
    compares every byte of the outputs of demonstrations that a published dataset left out because
    of damage.
    """
    if not workspace.store.outputs():
        return healthy("files", "there are no outputs yet", damaged=0)
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
        message = "files are not compared in a bucket; `demo-pipeline revalidate` compares them"
        return healthy("files", message)
    if not problems:
        message = "every file has its size; `demo-pipeline revalidate` compares every byte"
        return healthy("files", message, damaged=0)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Finding("files", HealthLevel.ERROR, f"{problems[0]}{more}", {"damaged": len(problems)})


def _quick_damage(store: Store) -> Iterator[OutputDamage]:
    """Yields the first damage of each output with a missing or damaged file or link.

    Only the sizes of files are compared.
    """
    for name in store.outputs():
        if store.current(name) is None:
            incomplete = OutputDamage.for_path(name, "changed_file", ".", "is not complete")
            yield next(iter(store.verify(name)), incomplete)


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
    """Removes unfinished files of dead processes, and returns a line of text for each.

    If files cannot be removed, a warning is logged.
    """
    lines: list[str] = []
    for root in (workspace.store, workspace.uploads):
        try:
            lines += [f"{name} of a dead process was removed" for name in root.remove_leftovers()]
        except (OSError, StorageError) as error:
            _LOG.warning("leftovers cannot be removed: %s", transient_reason(error))
    return lines


def incomplete_uploads(workspace: Workspace) -> dict[str, str]:
    """Returns the incomplete uploads, without quarantined demonstrations.

    Returns:
        A dictionary from demonstration ids, sorted, to phrases such as `meta.json is missing`.

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
