"""What the last build knew of each demonstration: its task, its split, and its film and log.

Belongs here: the document that keeps it, so that no demonstration changes its split because another
comes, and that two ids of one upload are told. What is in it is decided in `datasets/placement`.
"""

from collections.abc import Iterator

import msgspec

from demo_pipeline.store.documents import DamagedDocument, sealed, unsealed
from demo_pipeline.store.store import Store

SPLIT_MEMORY = "split_memory/demonstrations.json"
_SHOWN = 10  # ids in a sentence


class KnownDemonstration(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Of a demonstration.

    Attributes:
        task: as recorded; when it is another one, its group and split are forgotten.
        group, split: where it was placed; empty while it takes no part.
        files: SHA-256 of its film and of its log; those of another film and log replace them.
        content: of the trajectory that they were read for.
        duplicate_of: the older demonstration with the same film or log.
    """

    task: str = ""
    group: str = ""
    split: str = ""
    files: tuple[str, ...] = ()
    content: str = ""
    duplicate_of: str = ""


class SplitMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document.

    Attributes:
        made_of: fingerprint of all that it follows from; when it is the same, so is the document.
        placing: the settings that decide about splits.
        demonstrations: by id.
        moved: id → its split before and now, of those that this build moved.
    """

    made_of: str = ""
    placing: str = ""
    demonstrations: dict[str, KnownDemonstration] = {}
    moved: dict[str, tuple[str, str]] = {}

    def twins(self) -> Iterator[str]:
        """Yield a sentence on every id whose film or log an older one has."""
        for key, one in sorted(self.demonstrations.items()):
            if one.duplicate_of:
                yield (
                    f"{key} has the same film or log as {one.duplicate_of}: datasets leave it out "
                    "unless datasets.include_duplicates is set"
                )

    def moves(self) -> Iterator[str]:
        """Yield a sentence on the demonstrations that have another split than before."""
        changes: dict[tuple[str, str], list[str]] = {}
        for key, change in sorted(self.moved.items()):
            changes.setdefault(change, []).append(key)
        for (before, now), ids in sorted(changes.items()):
            more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
            yield (
                f"{', '.join(ids[:_SHOWN])}{more} moved from {before} to {now}: a demonstration "
                "showed that their task is one with an older one, or their application is held out"
            )


def read_split_memory(store: Store) -> SplitMemory:
    """The document of a store; an empty one before the first build.

    Raises:
        DamagedDocument: it cannot be read. Read as empty, it would move demonstrations from
            training into tests.
    """
    data = store.get_document(SPLIT_MEMORY)
    if data is None:
        return SplitMemory()
    try:
        return msgspec.convert(unsealed(data, SPLIT_MEMORY), SplitMemory)
    except msgspec.MsgspecError:
        raise DamagedDocument(SPLIT_MEMORY) from None


def keep_split_memory(store: Store, memory: SplitMemory) -> None:
    """Write the document, when it is another than that of the store."""
    if memory.made_of and read_split_memory(store) != memory:
        store.put_document(SPLIT_MEMORY, sealed(msgspec.to_builtins(memory)))


def forget_split(store: Store, demonstration: str) -> None:
    """Forget a demonstration, and that others are its twins."""
    memory = read_split_memory(store)
    if demonstration in memory.demonstrations or demonstration in memory.moved:
        rest = {key: one for key, one in memory.demonstrations.items() if key != demonstration}
        for key, one in rest.items():
            if one.duplicate_of == demonstration:
                rest[key] = msgspec.structs.replace(one, duplicate_of="")
        keep_split_memory(store, SplitMemory("forgotten", memory.placing, rest))
