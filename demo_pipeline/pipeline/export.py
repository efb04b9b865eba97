"""Plain copies of the finished datasets, for people and tools that know nothing of the store.

Belongs here: `export_datasets`. What a dataset looks like is the formats' subject.
"""

import os
import secrets
import shutil
from pathlib import Path

from demo_pipeline.pipeline.rebuild import damage_problem
from demo_pipeline.storage.errors import MissingOutput, StorageError
from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.store import Store

_EXPORTED = (
    *("dataset", "sft", "messages", "statistics", "datasets"),
    *("osworld/quests", "contact_sheets"),
)


def export_datasets(store: Store, dest: Path) -> list[str]:
    """Copy every finished dataset, statistics and contact sheets to `dest`, files, no links.

    Args:
        store: where they are.
        dest: a folder that does not exist or is empty; it gets all of them, or stays as it was.

    Returns:
        The names of what was copied, which are also their paths under `dest`. Outputs that were
        never made are left out.

    Raises:
        StorageError: `dest` is taken, a file of an output was changed, or the disk is full.
        MissingOutput: nothing is there to export.
    """
    names = [name for prefix in _EXPORTED for name in store.outputs(prefix)]
    if not names:
        raise MissingOutput("dataset")
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
        raise StorageError(f"nothing was exported: {first}; {len(damages)} such in all")
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
