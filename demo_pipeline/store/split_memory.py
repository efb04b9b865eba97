"""The document in the store that remembers facts about every demonstration between builds.

A demonstration thus keeps its split when other demonstrations arrive, and a recording that is
uploaded twice is recognized. `datasets/placement.py` computes the content.
"""

from collections.abc import Iterator

import msgspec

from demo_pipeline.store.documents import DamagedDocument, sealed, unsealed
from demo_pipeline.store.store import Store

SPLIT_MEMORY = "split_memory/demonstrations.json"
_SHOWN = 10  # maximum number of ids that a sentence lists


class KnownDemonstration(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The remembered facts about a demonstration.

    Attributes:
        task: the recorded task. If the task changes, group and split are forgotten.
        group, split: the task group and the split. Empty if no dataset contains the demonstration.
        files: the SHA-256 of the video and of the log.
        content: the content fingerprint that the trajectory had when `files` was computed.
        duplicate_of: the id of an older demonstration with the same video or log, or empty.
    """

    task: str = ""
    group: str = ""
    split: str = ""
    files: tuple[str, ...] = ()
    content: str = ""
    duplicate_of: str = ""


class SplitMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the document that remembers splits and duplicates.

    Attributes:
        made_of: a fingerprint of the inputs from which the content was computed.
        placing: the settings that determine the splits.
        demonstrations: maps the id of each demonstration to the remembered facts.
        moved: the demonstrations that the last build moved to another split. Maps each id to the
            earlier and the current split.
    """

    made_of: str = ""
    placing: str = ""
    demonstrations: dict[str, KnownDemonstration] = {}
    moved: dict[str, tuple[str, str]] = {}

    def twins(self) -> Iterator[str]:
        """Yields a sentence for each demonstration with the same video or log as an older one."""
        for key, entry in sorted(self.demonstrations.items()):
            if entry.duplicate_of:
                same = f"{key} has the same video or log as {entry.duplicate_of}"
                yield f"{same}: datasets leave it out"

    def moves(self) -> Iterator[str]:
        """Yields sentences about the demonstrations that the last build moved to another split."""
        changes: dict[tuple[str, str], list[str]] = {}
        for key, change in sorted(self.moved.items()):
            changes.setdefault(change, []).append(key)
        for (before, now), ids in sorted(changes.items()):
            listed_ids = ", ".join(ids[:_SHOWN])
            if len(ids) > _SHOWN:
                listed_ids += f" and {len(ids) - _SHOWN} more"
            yield (
                f"{listed_ids} moved from {before} to {now}: a new demonstration shows that "
                "their task is the same as an older task, or their application is held out"
            )


def read_split_memory(store: Store) -> SplitMemory:
    """Returns the remembered facts of a store; empty before the first build.

    Raises:
        DamagedDocument: the document cannot be read. It must not count as empty, because
            demonstrations could then move from the training split to the test split.
    """
    data = store.get_document(SPLIT_MEMORY)
    if data is None:
        return SplitMemory()
    try:
        return msgspec.convert(unsealed(data, SPLIT_MEMORY), SplitMemory)
    except msgspec.MsgspecError:
        raise DamagedDocument(SPLIT_MEMORY) from None


def keep_split_memory(store: Store, memory: SplitMemory) -> None:
    """Writes the document, unless `memory` is empty or the stored document is the same."""
    if memory.made_of and read_split_memory(store) != memory:
        store.put_document(SPLIT_MEMORY, sealed(msgspec.to_builtins(memory)))


def forget_split(store: Store, demonstration: str) -> None:
    """Removes a demonstration from the document.

    Other demonstrations are no longer marked as duplicates of the removed demonstration.
    """
    memory = read_split_memory(store)
    if demonstration in memory.demonstrations or demonstration in memory.moved:
        entries = dict(memory.demonstrations)
        entries.pop(demonstration, None)
        for key, entry in entries.items():
            if entry.duplicate_of == demonstration:
                entries[key] = msgspec.structs.replace(entry, duplicate_of="")
        keep_split_memory(store, SplitMemory("forgotten", memory.placing, entries))
