"""Which version readers of a bucket see.

Belongs here: pointer objects, moved by conditional writes.
"""

from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.objects.object_store import ObjectChangedError, Objects, list_all
from demo_pipeline.storage.store.bucket_layout import POINTERS, is_output, pointer_key
from demo_pipeline.storage.store.gc_leases import refresh_lease
from demo_pipeline.storage.store.layout import is_version_id

_ATTEMPTS = 100  # each lost one is somebody else's success


def read_pointer(objects: Objects, output: str) -> str | None:
    """The version that readers see, whether or not it exists; None without a sound pointer."""
    found = objects.read(pointer_key(output))
    return _version(found[0]) if found else None


def published_outputs(objects: Objects, folder: str = "") -> list[str]:
    """Names of the outputs that have a pointer, at or below the folder (empty: all), sorted."""
    names = (info.key.removeprefix(POINTERS) for info in list_all(objects, pointer_key(folder)))
    inside = (name for name in names if not folder or f"{name}/".startswith(f"{folder}/"))
    return sorted(set(filter(is_output, inside)))


def move_pointer(objects: Objects, output: str, version: str) -> None:
    """Let readers see the version from now on.

    Raises:
        StorageError: too many others write the same pointer.
    """
    key, data = pointer_key(output), f"{version}\n".encode()
    for _ in range(_ATTEMPTS):
        found = objects.read(key)
        if found and found[0] == data:
            return
        old = _version(found[0]) if found else None
        if old:
            refresh_lease(objects, (output, old))
        try:
            objects.put(
                key, data, if_none_match=not found, if_match=found[1].etag if found else None
            )
        except ObjectChangedError:
            continue
        return
    raise StorageError(f"{output}: too many others commit it at the same time; run again")


def remove_pointer(objects: Objects, output: str) -> None:
    """Let readers see no version any more."""
    found = objects.read(pointer_key(output))
    if found is None:
        return
    old = _version(found[0])
    if old:
        refresh_lease(objects, (output, old))
    objects.delete(pointer_key(output))


def require_separate_output(objects: Objects, output: str) -> None:
    """Refuse an output that would lie inside another, or have another inside it.

    Raises:
        StorageError: it would; local copies of the store could not hold both.
    """
    parts = output.split("/")
    above = ["/".join(parts[:length]) for length in range(1, len(parts))]
    taken = [name for name in above if objects.head(pointer_key(name))]
    if not taken and objects.list_page(f"{pointer_key(output)}/", limit=1).objects:
        taken = [f"{output}/…"]
    if taken:
        raise StorageError(
            f"{output}: {taken[0]} is an output already, and one cannot lie inside another; "
            "remove it, or choose another name"
        )


def _version(data: bytes) -> str | None:
    text = data.decode("ascii", "replace").removesuffix("\n")
    return text if is_version_id(text) else None
