"""Small documents of a local store, each replaced atomically.

Belongs here: the four calls behind `Store.…_document`. What a document holds is up to its owner.
"""

from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.integrity import walk_files
from demo_pipeline.storage.store.layout import StoreLayout, is_document, require_document


def put(layout: StoreLayout, disk: Disk, key: str, data: bytes) -> None:
    """Write or replace a document; readers see the old bytes or the new."""
    require_document(key)
    disk.write_atomically(layout.root / key, data, layout.draft())


def get(layout: StoreLayout, key: str) -> bytes | None:
    """A document's bytes; None when it does not exist."""
    require_document(key)
    try:
        return (layout.root / key).read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def delete(layout: StoreLayout, disk: Disk, key: str) -> bool:
    """Remove a document; returns whether it existed."""
    require_document(key)
    path = layout.root / key
    if not path.is_file():
        return False
    disk.unlink(path)
    return True


def list_keys(layout: StoreLayout, prefix: str) -> list[str]:
    """Keys of the documents at any depth below the folder `prefix`, sorted; no link is followed."""
    folder = prefix.rstrip("/")
    require_document(f"{folder}/x")
    top = layout.root / folder
    if top.is_symlink() or not top.is_dir():
        return []
    paths = ((path, top / path) for path in walk_files(top))
    names = (name for name, path in paths if path.is_file() and not path.is_symlink())
    return sorted(filter(is_document, (f"{folder}/{name}" for name in names)))
