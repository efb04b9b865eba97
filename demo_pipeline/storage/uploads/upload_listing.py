"""What an upload is: a folder with three files, known by its safe id, wherever it lies.

Belongs here: the names, finding a folder among objects by its id, and what can be wrong with it.
Local folders are walked in local_uploads.py.
"""

from dataclasses import dataclass

from demo_pipeline.problems import Problem
from demo_pipeline.storage.ids import is_derived_id, is_safe_id, safe_id
from demo_pipeline.storage.objects.object_store import ObjectInfo, Objects, list_all

UPLOAD_FILES = ("input_log.jsonl", "meta.json", "recording.mp4")


@dataclass(frozen=True, slots=True)
class UploadedDemonstration:
    r"""One folder of the uploads.

    Attributes:
        id: safe id, the demonstration's name everywhere else.
        name: the folder's own name; bytes that are no UTF-8 are written `\xNN`.
        files: which of `UPLOAD_FILES` are there, sorted.
    """

    id: str
    name: str
    files: tuple[str, ...]


def is_folder_name(demonstration: str) -> bool:
    """Whether a folder with this id can only be the one that bears it as its name."""
    return is_safe_id(demonstration) and not is_derived_id(demonstration)


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
    """The folders with this id and, when it is one, its files among `UPLOAD_FILES`.

    Only the folder itself is listed when its id is its name, else the names of all folders too.

    Returns:
        Names, sorted; and file name → object, whose key is `<name>/<file>`.
    """
    if not is_safe_id(demonstration):
        return [], {}
    names = [demonstration]
    if not is_folder_name(demonstration):
        names = sorted(one for one in folder_names(objects) if safe_id(one) == demonstration)
    if len(names) != 1:
        return names, {}
    prefix = f"{names[0]}/"
    found = {one.key.removeprefix(prefix): one for one in list_all(objects, prefix)}
    return names if found else [], {file: found[file] for file in UPLOAD_FILES if file in found}


def folder_problem(demonstration: str, names: list[str]) -> Problem:
    """Why an id cannot be opened: `names` are none or several."""
    if not names:
        return Problem(
            "missing_upload",
            ".",
            "no folder of the uploads has this id",
            remedy="upload it, or check the id",
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
    """What is the matter with an upload that was replaced under a reader."""
    return Problem(
        "upload_changed",
        file,
        "changed while it was read",
        remedy="nothing to do; the next look at the uploads takes it up again",
        demonstration=demonstration,
    )
