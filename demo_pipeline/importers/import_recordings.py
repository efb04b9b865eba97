"""Finds recordings of other tools below given paths, and imports them as uploads.

To support another tool, add its importer to `IMPORTERS`.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from demo_pipeline.files.system_errors import system_trouble
from demo_pipeline.importers.agentnet_tool import AGENTNET
from demo_pipeline.importers.crowd_cast import CROWD_CAST
from demo_pipeline.importers.cua_driver import CUA_DRIVER
from demo_pipeline.importers.desktopd_trajectories import DESKTOPD
from demo_pipeline.importers.openadapt import OPENADAPT
from demo_pipeline.importers.osworld_runs import OSWORLD
from demo_pipeline.importers.owamcap import OWAMCAP
from demo_pipeline.importers.pc_tracker import PC_TRACKER
from demo_pipeline.importers.showui_aloha import SHOWUI_ALOHA
from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_recording import Importer
from demo_pipeline.importers.source_values import UnreadableSourceError
from demo_pipeline.importers.upload_folder import (
    Given,
    given_for,
    import_id,
    is_imported,
    write_upload,
)
from demo_pipeline.importers.video_cua import VIDEO_CUA

_NO_TASK = "the task is not known: without --task, the demonstration will be quarantined"
NO_STATUS = "the outcome is not known: without --status, the demonstration is no success"
IMPORTERS: tuple[Importer, ...] = (
    *(OWAMCAP, AGENTNET, OPENADAPT, CROWD_CAST, SHOWUI_ALOHA, VIDEO_CUA),
    *(DESKTOPD, OSWORLD, PC_TRACKER, CUA_DRIVER),
)


class ImportState(StrEnum):
    """How the import of a recording ended."""

    IMPORTED = "imported"
    KNOWN = "already there"
    DAMAGED = "imported in part"
    REFUSED = "not imported"


@dataclass(frozen=True)
class ImportOutcome:
    """The result of the import of a recording.

    Attributes:
        place: the file or folder of the recording, for messages.
        id: the demonstration's id; empty if the recording was not imported.
        sentences: why the recording was not imported; or, after an import, which parts could not be
            read and which facts are missing.
    """

    place: Path
    state: ImportState
    id: str = ""
    sentences: tuple[str, ...] = ()


def find_recordings(paths: Iterable[Path]) -> Iterator[tuple[Importer, SourceFiles]]:
    """Yields the recordings below given folders, and the recordings to which given files belong.

    A recording that is found twice is yielded once.

    Raises:
        UnreadableSourceError: a path does not exist, or no recording is found for this path.
    """
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise UnreadableSourceError(f"{path}: no such file or folder")
        any_found = False
        if path.is_dir():
            recordings = _in_folder(path)
        else:
            recordings = _with_file(path)
        for importer, source in recordings:
            any_found = True
            if (place := source.logs[0].resolve()) not in seen:
                seen.add(place)
                yield importer, source
        if not any_found:
            tools = "; ".join(f"{importer.tool}: {importer.files}" for importer in IMPORTERS)
            raise UnreadableSourceError(f"{path}: no recording of a known tool found ({tools})")


def _in_folder(top: Path) -> Iterator[tuple[Importer, SourceFiles]]:
    """Yields the recordings in a folder and in all folders below it.

    Hidden folders, and folders named `steps`, are skipped.
    """
    for folder, below, names in os.walk(top):
        below[:] = sorted(name for name in below if name[0] != "." and name != "steps")
        for importer in IMPORTERS:
            for source in importer.find(Path(folder), names):
                yield importer, source


def _with_file(path: Path) -> Iterator[tuple[Importer, SourceFiles]]:
    """Yields the recordings that a file belongs to."""
    names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    for importer in IMPORTERS:
        for source in importer.find(path.parent, names):
            if path in source.files:
                yield importer, source


def import_recording(
    importer: Importer, source: SourceFiles, uploads: Path, options: Given
) -> ImportOutcome:
    """Writes a recording as an upload folder.

    Nothing is written if the same source files were already imported with the same stated facts, in
    the current version of the written files.
    If the recording cannot be read, nothing is written, and the outcome contains the reason.

    Raises:
        OSError: the upload folder cannot be written.
    """
    place = source.place
    if importer.read is None:
        raise ValueError(f"{importer.tool}: published as trajectories, not written as uploads")
    try:
        given = given_for(source, options)
        name = import_id(source)
        folder = uploads / name
        if is_imported(folder, source, given):
            return ImportOutcome(place, ImportState.KNOWN, name)
        recording = importer.read(source)
        write_upload(folder, source, recording, importer, given)
    except UnreadableSourceError as error:
        return ImportOutcome(place, ImportState.REFUSED, sentences=(str(error),))
    except OSError as error:
        return ImportOutcome(place, ImportState.REFUSED, sentences=(read_failure(error, source),))
    state = ImportState.IMPORTED
    if recording.damaged:
        state = ImportState.DAMAGED
    missing = list[str]()
    if not (given.task or recording.task):
        missing.append(_NO_TASK)
    if not (given.status or recording.status):
        missing.append(NO_STATUS)
    return ImportOutcome(place, state, name, (*recording.damaged, *missing))


def read_failure(error: OSError, source: SourceFiles) -> str:
    """Returns a sentence about an error in a file of the recording; re-raises other errors."""
    if error.filename is None or Path(str(error.filename)) not in source.files:
        raise error
    return f"{error.filename}: {system_trouble(error) or 'it cannot be read'}"
