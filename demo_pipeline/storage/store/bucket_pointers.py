"""Pointers in a bucket: the small objects that name the version readers see.

Belongs here: reading them, and moving them by conditional writes.
"""

from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.objects.object_store import ObjectChangedError, Objects, list_all
from demo_pipeline.storage.store.bucket_layout import POINTERS, is_output, pointer_key
from demo_pipeline.storage.store.gc_leases import refresh_lease
from demo_pipeline.storage.store.layout import is_version_id

_ATTEMPTS = 100  # an attempt only fails when another commit succeeds


def read_pointer(objects: Objects, output: str) -> str | None:
    """The version that readers see, whether or not it exists; None without a valid pointer."""
    stored = objects.read(pointer_key(output))
    return _parse(stored[0]) if stored else None


def published_outputs(objects: Objects, folder: str = "") -> list[str]:
    """Names of the outputs that have a pointer, at or below the folder (empty: all), sorted."""
    names = (info.key.removeprefix(POINTERS) for info in list_all(objects, pointer_key(folder)))
    inside = (name for name in names if not folder or f"{name}/".startswith(f"{folder}/"))
    return sorted(set(filter(is_output, inside)))


def move_pointer(objects: Objects, output: str, version: str) -> None:
    """Publish the version: readers see it from now on.

    Raises:
        StorageError: too many other commits write the same pointer.
    """
    key, data = pointer_key(output), f"{version}\n".encode()
    for _ in range(_ATTEMPTS):
        stored = objects.read(key)
        if stored and stored[0] == data:
            return
        old = _parse(stored[0]) if stored else None
        if old:
            refresh_lease(objects, (output, old))
        try:
            objects.put(
                key, data, if_none_match=not stored, if_match=stored[1].etag if stored else None
            )
        except ObjectChangedError:
            continue
        return
    raise StorageError(f"{output}: too many processes commit it at the same time; run again")


def remove_pointer(objects: Objects, output: str) -> None:
    """Unpublish the output: readers see no version from now on."""
    stored = objects.read(pointer_key(output))
    if stored is None:
        return
    old = _parse(stored[0])
    if old:
        refresh_lease(objects, (output, old))
    objects.delete(pointer_key(output))


def require_separate_output(objects: Objects, output: str) -> None:
    """Refuse an output inside another output, or around another.

    Raises:
        StorageError: the output is refused; a local copy of the store could not hold both.
    """
    parts = output.split("/")
    above = ["/".join(parts[:length]) for length in range(1, len(parts))]
    taken = [name for name in above if objects.head(pointer_key(name))]
    if not taken and objects.list_page(f"{pointer_key(output)}/", limit=1).objects:
        taken = [f"{output}/…"]
    if taken:
        raise StorageError(
            f"{output}: {taken[0]} is an output already, and an output cannot be inside another; "
            "remove it, or choose another name"
        )


def _parse(data: bytes) -> str | None:
    text = data.decode("ascii", "replace").removesuffix("\n")
    return text if is_version_id(text) else None
