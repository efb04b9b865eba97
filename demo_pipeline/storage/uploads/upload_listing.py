"""An upload: a folder with three files, known by its safe id.

Belongs here: the files' names, finding a folder among objects by its id, and the problems of an
upload. Local folders are listed in local_uploads.py.
"""

from dataclasses import dataclass

from demo_pipeline.files.recording_files import OTHER_FILES, RECORDING_FILES
from demo_pipeline.problems import Problem
from demo_pipeline.storage.ids import is_derived_id, is_former_id, is_safe_id, safe_id
from demo_pipeline.storage.objects.object_store import ObjectInfo, Objects, list_all


@dataclass(frozen=True, slots=True)
class UploadedDemonstration:
    r"""One folder of the uploads.

    Attributes:
        id: safe id, which names the demonstration everywhere else.
        name: the folder's own name; bytes that are not UTF-8 are written as `\xNN`.
        files: those of `RECORDING_FILES` that it holds, sorted.
    """

    id: str
    name: str
    files: tuple[str, ...]


def is_folder_name(demonstration: str) -> bool:
    """Whether this id is the folder's name itself, so that no other folder can have the id."""
    return safe_id(demonstration) == demonstration and not is_derived_id(demonstration)


def folder_names(objects: Objects) -> set[str]:
    """Names of the folders directly under the root that are not hidden."""
    names: set[str] = set()
    token: str | None = None
    while True:
        page = objects.list_prefixes("", token)
        names.update(prefix.rstrip("/") for prefix in page.prefixes)
        token = page.token
        if token is None:
            return {name for name in names if name and not name.startswith(".")}


def folder_files(objects: Objects, demonstration: str) -> tuple[list[str], dict[str, ObjectInfo]]:
    """The folders with this id and, when there is exactly one, its files.

    Those are the ones in `RECORDING_FILES` and `OTHER_FILES`. When the id is the folder's name,
    only that folder is listed; else all folders' names are, too.

    Returns:
        Names, sorted; and file name → object, whose key is `<name>/<file>`.
    """
    if not is_safe_id(demonstration):
        return [], {}
    names = [demonstration]
    if not is_folder_name(demonstration):
        names = sorted(name for name in folder_names(objects) if safe_id(name) == demonstration)
    if len(names) != 1:
        return names, {}
    prefix = f"{names[0]}/"
    infos = {info.key.removeprefix(prefix): info for info in list_all(objects, prefix)}
    known = (*RECORDING_FILES, *OTHER_FILES)
    return names if infos else [], {file: infos[file] for file in known if file in infos}


def folder_problem(demonstration: str, names: list[str]) -> Problem:
    """The problem of an id that no folder, or several folders, have; `names` are the folders'."""
    if not names and is_former_id(demonstration):
        return Problem(
            "former_id",
            ".",
            f"is the id that an earlier version gave; the folder's id is {safe_id(demonstration)}",
            remedy="nothing: it is processed under that id, and its outputs under this one are "
            "left out of the datasets then; delete this partition",
            demonstration=demonstration,
        )
    if not names:
        return Problem(
            "missing_upload",
            ".",
            "no folder of the uploads has this id",
            remedy="upload the recording, or check the id",
            demonstration=demonstration,
        )
    return Problem(
        "id_collision",
        ".",
        f"{len(names)} folders have this id: {', '.join(map(repr, names))}",
        remedy="rename all but one of them",
        demonstration=demonstration,
    )


def changed_while_read(demonstration: str, file: str) -> Problem:
    """The problem of an upload that was replaced while it was read."""
    return Problem(
        "upload_changed",
        file,
        "changed while it was read",
        remedy="nothing to do; discovery requests another run when it is stable",
        demonstration=demonstration,
    )
