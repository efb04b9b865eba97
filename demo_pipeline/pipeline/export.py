"""Plain copies of the built datasets, for people and tools that do not know the store.

Belongs here: `demo-pipeline export`. The registries of stages say which outputs are exported.
"""

import os
import secrets
import shutil
from pathlib import Path

from demo_pipeline.pipeline.dataset_stages import DATASET_STAGES, INDEX_STAGE
from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.pipeline.rebuild import damage_problem
from demo_pipeline.storage.errors import MissingOutput, StorageError
from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.store import Store

_EXPORTED = (
    *(stage.output for stage in DATASET_STAGES if stage.exported),
    *(stage.folder for stage in STAGES if stage.exported),
)


def export_datasets(store: Store, dest: Path) -> list[str]:
    """Copy every exported output to `dest`, as files without links.

    Args:
        store: holds the outputs.
        dest: a folder that does not exist or is empty; it gets all of them, or stays as it was.

    Returns:
        The names of the copied outputs, which are also their paths under `dest`. Outputs that were
        never built are left out.

    Raises:
        StorageError: `dest` is not empty, a file of an output was changed, or the disk is full.
        MissingOutput: the store has nothing to export.
    """
    names = [name for prefix in _EXPORTED for name in store.outputs(prefix)]
    if not names:
        raise MissingOutput(INDEX_STAGE.output)
    dest = dest.resolve()
    _require_empty(dest)
    disk = Disk()
    draft = dest.with_name(f".{dest.name}.{secrets.token_hex(8)}")
    try:
        for name in names:
            _copy(store, name, draft / name)
        disk.sync_tree(draft)
        disk.replace(draft, dest)
    except (OSError, shutil.Error) as error:
        reason = os.strerror(error.errno) if error.errno else "a file could not be copied"
        raise StorageError(f"{dest}: nothing was exported: {reason}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return names


def _copy(store: Store, name: str, target: Path) -> None:
    damages = store.verify(name)
    if damages:
        first = damage_problem(damages[0])
        raise StorageError(f"nothing was exported: {first} ({len(damages)} problems in all)")
    with store.open(name) as (content, _):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(content, target, copy_function=shutil.copyfile)


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
