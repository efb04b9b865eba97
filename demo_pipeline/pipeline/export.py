"""Plain copies of the built datasets, for people and tools that do not know the store.

Belongs here: `demo-pipeline export`. The registries of stages say which outputs are exported.
"""

import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.files.atomic_write import FileId, file_id, link_or_copy, read_digest
from demo_pipeline.pipeline.rebuild import damage_problem
from demo_pipeline.pipeline.stages import DATASET_STAGES, STAGES
from demo_pipeline.storage.errors import MissingOutput, StorageError
from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.store import Store

_EXPORTED = (
    *(stage.folder for stage in DATASET_STAGES if stage.exported),
    *(stage.folder for stage in STAGES if stage.exported),
)
_PICTURES = frozenset({".png", ".jpg", ".jpeg"})  # nobody changes them in place


def export_datasets(store: Store, dest: Path, disabled: Collection[str] = ()) -> dict[str, int]:
    """Copy every exported output to `dest`, as files without symbolic links.

    Equal pictures are stored once, as hard links where the file system has them.

    Args:
        store: holds the outputs.
        dest: a folder that does not exist or is empty; it gets all of them, or stays as it was.
        disabled: outputs, and folders of outputs, that are not copied.

    Returns:
        The names of the copied outputs, which are also their paths under `dest`, and the bytes that
        each wrote. Outputs that were never built are left out.

    Raises:
        StorageError: `dest` is not empty, a file of an output was changed, or the disk is full.
        MissingOutput: the store has nothing to export.
    """
    wanted = [prefix for prefix in _EXPORTED if prefix not in disabled]
    names = [name for prefix in wanted for name in store.outputs(prefix)]
    if not names:
        raise MissingOutput(INDEX_STAGE.folder)
    copier = _Copier()
    sizes: dict[str, int] = {}
    with folder_draft(dest) as draft:
        for name in names:
            before = copier.written
            _copy(store, name, draft / name, copier)
            sizes[name] = copier.written - before
    return sizes


@contextmanager
def folder_draft(dest: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `dest` when the body ends without an error.

    Raises:
        StorageError: `dest` is not empty, or a file could not be written.
    """
    dest = dest.resolve()
    _require_empty(dest)
    disk = Disk()
    draft = dest.with_name(f".{dest.name}.{secrets.token_hex(8)}")
    try:
        yield draft
        disk.sync_tree(draft)
        disk.replace(draft, dest)
    except (OSError, shutil.Error) as error:
        reason = os.strerror(error.errno) if error.errno else "a file could not be copied"
        raise StorageError(f"{dest}: nothing was exported: {reason}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


class _Copier:
    """Copies files; a picture that was copied before becomes a hard link to the first copy.

    Attributes:
        written: bytes copied so far.
    """

    def __init__(self) -> None:
        self.written = 0
        self._files: dict[FileId, Path] = {}
        self._pictures: dict[str, Path] = {}

    def __call__(self, source: str, target: str) -> None:
        first = self._first_copy(Path(source), Path(target))
        if first is None:
            shutil.copyfile(source, target)
        else:
            link_or_copy(first, Path(target))
        status = Path(target).stat()
        self.written += status.st_size if status.st_nlink == 1 else 0

    def _first_copy(self, source: Path, target: Path) -> Path | None:
        """Where the same picture was copied to; None for the first, and for other files."""
        if source.suffix not in _PICTURES:
            return None
        identity = file_id(source)
        if identity is None or identity not in self._files:
            first = self._pictures.setdefault(read_digest(source).sha256, target)
            if identity is not None:
                self._files[identity] = first
            return None if first == target else first
        return self._files[identity]


def require_undamaged(store: Store, name: str) -> None:
    """Compare an output with its manifest.

    Raises:
        StorageError: a file was changed.
    """
    damages = store.verify(name)
    if damages:
        first = damage_problem(damages[0])
        raise StorageError(f"nothing was exported: {first} ({len(damages)} problems in all)")


def _copy(store: Store, name: str, target: Path, copier: _Copier) -> None:
    require_undamaged(store, name)
    with store.open(name) as (content, _):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(content, target, copy_function=copier)


def _require_empty(dest: Path) -> None:
    try:
        with os.scandir(dest) as entries:
            taken = any(entries)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        taken = True
    if taken:
        raise StorageError(f"{dest}: is not empty; give a folder that does not exist or is empty")
