"""What a validation remembers of the records of a CUDAG dataset, and what must not repeat."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from demo_pipeline.exports.cudag.record_rules import (
    HUMAN_START,
    CudagFault,
    Scope,
    ours,
    printable,
    shared,
)

_UNION_REMEDY = "make data.jsonl the union of train, val and held_out"


class RecordPlace(NamedTuple):
    """Where a record is: split, file name, and 1-based line, of test.json number of the entry."""

    split: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def _prompt(record: Mapping[str, Any]) -> object:
    """The text of the human."""
    turns = record.get("conversations")
    first = turns[0] if isinstance(turns, list) and turns else None
    return first.get("value") if isinstance(first, dict) else record.get("prompt")


def short_digest(content: str | bytes) -> bytes:
    """A 16-byte digest; text may contain lone surrogates, which JSON can express."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=16).digest()


@dataclass(slots=True)
class CudagInventory:
    """The records read so far. Splits are `train`, `val`, `held_out` and `test`.

    Attributes:
        names: id or test_id → its first place.
        images: path of an image → the first place that uses it.
        trajectories: trajectory id → its first place.
        records: split → number of records.
        task_types: task type → number of records.
        prompts: digest of image and prompt → their first place.
        digests: digest of an image → its first place.
        shared: digest of an image in two splits → a place in each.
        lines: digest of a record's line in a split but test → its id.
        data: id → its first line in data.jsonl.
    """

    names: dict[str, RecordPlace] = field(default_factory=dict)
    images: dict[str, RecordPlace] = field(default_factory=dict)
    trajectories: dict[str, RecordPlace] = field(default_factory=dict)
    records: Counter[str] = field(default_factory=Counter)
    task_types: Counter[str] = field(default_factory=Counter)
    prompts: dict[bytes, RecordPlace] = field(default_factory=dict)
    digests: dict[str, RecordPlace] = field(default_factory=dict)
    shared: dict[str, tuple[RecordPlace, RecordPlace]] = field(default_factory=dict)
    lines: dict[bytes, object] = field(default_factory=dict)
    data: dict[str, int] = field(default_factory=dict)

    def add(
        self, here: RecordPlace, record: Mapping[str, Any], image: str | None
    ) -> Iterator[CudagFault]:
        """Add a record; yield what it has in common with an earlier one, and must not have.

        That is its id, its image or its trajectory, and image and prompt of another split. Its
        values may have any type; `image` is the digest of its image, None: it is not compared.
        """
        id_key, image_key = ("test_id", "screenshot") if here.split == "test" else ("id", "image")
        name, path, metadata = record.get(id_key), record.get(image_key), record.get("metadata")
        known = metadata if isinstance(metadata, dict) else {}
        trajectory, kind = known.get("trajectory_id"), known.get("task_type")
        self.records[here.split] += 1
        if isinstance(kind, str):
            self.task_types[kind] += 1
        if isinstance(name, str) and (first := self.names.setdefault(name, here)) != here:
            scope = Scope.SHARED if "test" in {first.split, here.split} else Scope.FORMAT
            scope = Scope.FORMAT if first.split == here.split else scope
            message = f"{id_key} '{printable(name)}' is not unique, first at {first}"
            yield CudagFault("duplicate_id", message, "rename one of them", scope)
        if isinstance(path, str) and (first := self.images.setdefault(path, here)) != here:
            message = f"image {printable(path)} is not unique, first at {first}"
            yield ours("duplicate_image", message, "give every record an image of its own")
        if isinstance(trajectory, str) and trajectory:
            first = self.trajectories.setdefault(trajectory, here)
            if first.split != here.split:
                split = f"{first.split} ({first})"
                message = f"trajectory '{printable(trajectory)}' is also in split {split}"
                remedy = "put all records of a trajectory into one split"
                yield shared("split_overlap", message, remedy)
        if image is not None:
            yield from self._add_image(here, _prompt(record), image)

    def _add_image(self, here: RecordPlace, prompt: object, image: str) -> Iterator[CudagFault]:
        """Add the image that a model sees, by its digest, and what it is asked about it."""
        first = self.digests.setdefault(image, here)
        if first.split != here.split:
            self.shared.setdefault(image, (first, here))
        if not isinstance(prompt, str):
            return
        key = short_digest(image + prompt.removeprefix(HUMAN_START))
        first = self.prompts.setdefault(key, here)
        if first.split != here.split:
            message = f"same image and prompt as {first} in split {first.split}"
            yield shared("split_leak", message, "put all records of a task into one split")

    def add_data_line(self, line: int, name: object, *, is_same: bool) -> Iterator[CudagFault]:
        """Add a line of data.jsonl after all splits; yield how it differs from these.

        `name` is the id of its record; `is_same`: a split has the same line.
        """
        if not isinstance(name, str):
            return
        first, place = self.data.setdefault(name, line), self.names.get(name)
        if first != line:
            message = f"id '{printable(name)}' is not unique, first at data.jsonl:{first}"
            yield CudagFault("duplicate_id", message)
        elif place is None or place.split == "test":
            message = f"record '{printable(name)}' is in no split"
            yield shared("data_union", message, _UNION_REMEDY)
        elif not is_same:
            message = f"record '{printable(name)}' differs from {place}"
            yield shared("data_union", message, _UNION_REMEDY)

    def missing_from_data(self) -> Iterator[tuple[RecordPlace, CudagFault]]:
        """Yield the records of splits but test that data.jsonl does not have."""
        for name, place in self.names.items():
            if place.split != "test" and name not in self.data:
                message = f"record '{printable(name)}' is missing from data.jsonl"
                yield place, shared("data_union", message, _UNION_REMEDY)

    def shared_image_warnings(self) -> Iterator[CudagFault]:
        """Yield one warning for images in two splits: the desktop at the start may repeat."""
        if self.shared:
            count, (first, other) = len(self.shared), next(iter(self.shared.values()))
            subject = f"{count} images are" if count > 1 else "1 image is"
            message = f"{subject} in more than one split, first {other}, the same as {first}"
            remedy = "check that these images do not show the answers"
            yield CudagFault("shared_image", message, remedy, Scope.NOTE)
