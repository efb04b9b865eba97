"""The files and directories that a CUDAG dataset has.

Belongs here: which of them must be there. What is in them is up to validator.py.
"""

from collections.abc import Iterator
from pathlib import Path

from demo_pipeline.formats.cudag.fault import CudagFault, LocatedFault
from demo_pipeline.formats.cudag.images import is_kind

_FILES = (
    ("./", "config.json"),
    ("./", "data.jsonl"),
    ("./", "train.jsonl"),
    ("./", "val.jsonl"),
    ("test/", "test.json"),
)
_FOLDERS = (("./", "images/"), ("./", "test/"), ("test/", "images/"))
_REMEDIES = {
    "test/images/": "save test images to test/images/, not to a directory of another name",
    "test/": "create test/ with test.json and images/",
}


def required_file_faults(root: Path) -> Iterator[LocatedFault]:
    """Yield what is missing, or of another kind, in a dataset's directory."""
    for folder, name in _FOLDERS:
        if not is_kind(root / folder / name, "dir"):
            yield folder, None, _missing(root, folder, name, "directory")
    for folder, name in _FILES:
        if not is_kind(root / folder / name, "file"):
            yield folder, None, _missing(root, folder, name, "file")
    if (optional := root / "held_out.jsonl").exists() and not is_kind(optional, "file"):
        yield "held_out.jsonl", None, CudagFault("not_a_file", "must be a file")
    if (optional := root / "test" / "annotated").exists() and not is_kind(optional, "dir"):
        yield "test/", None, CudagFault("not_a_directory", "annotated/ must be a directory")


def _missing(root: Path, folder: str, name: str, kind: str) -> CudagFault:
    where = f"{folder}{name}".removeprefix("./")
    is_other = (root / where).exists()
    message = f"Missing required {kind}: {name}" + (f" (not a {kind})" if is_other else "")
    return CudagFault(f"missing_{kind}", message, _REMEDIES.get(where, f"add {where}"))
