"""The document that remembers the task, split, video and log of every demonstration.

Because of it, no demonstration changes its split when another one arrives, and a recording that was
uploaded twice is recognized. `datasets/placement` decides about its content.
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
    """An entry of the document.

    Attributes:
        task: the recorded task. If the task changes, group and split are forgotten.
        group, split: where the demonstration was placed; empty if it takes no part.
        files: SHA-256 of its video and of its log.
        content: the content fingerprint of the trajectory for which the files were hashed.
        duplicate_of: the older demonstration with the same video or log.
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
        made_of: a fingerprint of everything that the document is computed from.
        placing: the settings that decide about splits.
        demonstrations: the entries by id.
        moved: id → its split before and now, for demonstrations that this build moved.
    """

    made_of: str = ""
    placing: str = ""
    demonstrations: dict[str, KnownDemonstration] = {}
    moved: dict[str, tuple[str, str]] = {}

    def twins(self) -> Iterator[str]:
        """Yield a sentence about every demonstration with the video or log of an older one."""
        for key, entry in sorted(self.demonstrations.items()):
            if entry.duplicate_of:
                same = f"{key} has the same video or log as {entry.duplicate_of}"
                yield f"{same}: datasets leave it out"

    def moves(self) -> Iterator[str]:
        """Yield sentences about the demonstrations that have another split than before."""
        changes: dict[tuple[str, str], list[str]] = {}
        for key, change in sorted(self.moved.items()):
            changes.setdefault(change, []).append(key)
        for (before, now), ids in sorted(changes.items()):
            listed_ids = ", ".join(ids[:_SHOWN])
            if len(ids) > _SHOWN:
                listed_ids += f" and {len(ids) - _SHOWN} more"
            yield (
                f"{listed_ids} moved from {before} to {now}: a demonstration "
                "showed that their task is one with an older one, or their application is held out"
            )


def read_split_memory(store: Store) -> SplitMemory:
    """The document of a store; empty before the first build.

    Raises:
        DamagedDocument: the document cannot be read. If it passed for empty, demonstrations would
            move from the training split to the test split.
    """
    data = store.get_document(SPLIT_MEMORY)
    if data is None:
        return SplitMemory()
    try:
        return msgspec.convert(unsealed(data, SPLIT_MEMORY), SplitMemory)
    except msgspec.MsgspecError:
        raise DamagedDocument(SPLIT_MEMORY) from None


def keep_split_memory(store: Store, memory: SplitMemory) -> None:
    """Write the document if it differs from the stored one."""
    if memory.made_of and read_split_memory(store) != memory:
        store.put_document(SPLIT_MEMORY, sealed(msgspec.to_builtins(memory)))


def forget_split(store: Store, demonstration: str) -> None:
    """Forget a demonstration, and that others are duplicates of it."""
    memory = read_split_memory(store)
    if demonstration in memory.demonstrations or demonstration in memory.moved:
        entries = dict(memory.demonstrations)
        entries.pop(demonstration, None)
        for key, entry in entries.items():
            if entry.duplicate_of == demonstration:
                entries[key] = msgspec.structs.replace(entry, duplicate_of="")
        keep_split_memory(store, SplitMemory("forgotten", memory.placing, entries))
