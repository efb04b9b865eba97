"""Rules between the records of a CUDAG dataset: unique ids, complete data.jsonl, disjoint splits.

Belongs here: what a validation remembers of the records, some hundred bytes each. Not here: rules
for one record (record_rules.py).
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from demo_pipeline.common.digest_column import DigestColumn
from demo_pipeline.common.digest_table import DigestTable
from demo_pipeline.formats.cudag.fault import CudagFault, Scope, printable
from demo_pipeline.formats.cudag.record_keys import RecordKeys
from demo_pipeline.formats.cudag.record_rules import HUMAN_START

RecordPosition = tuple[str, int]
"""File name and 1-based line; for test.json the 1-based number of the entry."""

_FILES = 16  # more than a dataset has
_UNION_REMEDY = "make data.jsonl the union of train, val and held_out"


def short_digest(content: str | bytes) -> bytes:
    """A 16-byte digest; text may contain lone surrogates, which JSON can express."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=16).digest()


@dataclass(slots=True)
class CudagInventory:
    """The records read so far. Splits are `train`, `val`, `held_out` and `test`.

    Attributes:
        files: the files that were read; `place` numbers a position in them.
        names: digest of an id or test_id → its first place.
        images: digest of an image's path → the first place that uses it.
        trajectories: trajectory id → its first place.
        records: split → number of records.
        task_types: task type → number of records.
        prompts: digest of image and prompt → their first place.
        image_digests: digest of an image → its first place.
        shared_images: digest of an image in two splits → a position in each.
        ids: number of different ids in the splits but test.
        texts: digest of a record's line → its first place in a split.
        data_ids: digest of an id → its first place in data.jsonl.
        is_union: data.jsonl has the lines of the splits, so that they need not be compared.
    """

    files: list[str] = field(default_factory=list)
    names: DigestTable = field(default_factory=DigestTable)
    images: DigestTable = field(default_factory=DigestTable)
    trajectories: dict[str, int] = field(default_factory=dict)
    records: Counter[str] = field(default_factory=Counter)
    task_types: Counter[str] = field(default_factory=Counter)
    prompts: DigestTable = field(default_factory=DigestTable)
    image_digests: DigestTable = field(default_factory=DigestTable)
    shared_images: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    ids: int = 0
    texts: DigestTable = field(default_factory=DigestTable)
    data_ids: DigestTable = field(default_factory=DigestTable)
    is_union: bool = False

    def place(self, position: RecordPosition) -> int:
        """A number for a position; `position` gives it back."""
        name, line = position
        if name not in self.files:
            self.files.append(name)
        return line * _FILES + self.files.index(name)

    def position(self, place: int) -> RecordPosition:
        """The position that `place` has numbered."""
        line, file = divmod(place, _FILES)
        return self.files[file], line

    def add(
        self,
        split: str,
        position: RecordPosition,
        keys: RecordKeys,
        image: bytes | None,
        line: bytes | None = None,
    ) -> list[CudagFault]:
        """Add a record; returns what it has in common with an earlier one, and must not have.

        That is its id, its image or its trajectory, and image and prompt of another split.

        Args:
            split: of the record.
            position: of the record.
            keys: its values.
            image: digest of its image; None: nothing is compared with it.
            line: digest of its line in a split but test.
        """
        here, faults = self.place(position), list[CudagFault]()
        if isinstance(keys.name, str):
            first = self.names.setdefault(short_digest(keys.name), here)
            if first != here:
                faults.append(self._same_name(keys.name, first, here))
            elif line is not None:
                self.ids += 1
            if line is not None:
                self.texts.setdefault(line, here)
        if isinstance(keys.image, str):
            first = self.images.setdefault(short_digest(keys.image), here)
            if first != here:
                faults.append(self._same_path(keys.image, first))
        self.records[split] += 1
        if isinstance(keys.task_type, str):
            self.task_types[keys.task_type] += 1
        if isinstance(keys.trajectory, str) and keys.trajectory:
            first = self.trajectories.setdefault(keys.trajectory, here)
            if self._is_elsewhere(first, here, split):
                faults.append(self._torn_trajectory(keys.trajectory, first))
        if image is not None:
            faults += self._add_image(split, here, keys.prompt, image)
        return faults

    def add_data_line(
        self, position: RecordPosition, name: object, line: bytes
    ) -> Iterator[CudagFault]:
        """Add a line of data.jsonl, by its digest, after all splits; yield how it differs."""
        if not isinstance(name, str):
            return
        key, here = short_digest(name), self.place(position)
        first = self.data_ids.setdefault(key, here)
        split = self._place_in_split(key)
        if first != here:
            message = f"id '{printable(name)}' is not unique, first at {self._location(first)}"
            yield CudagFault("duplicate_id", message)
        elif split is None:
            message = f"record '{printable(name)}' is in no split"
            yield CudagFault("data_union", message, _UNION_REMEDY, Scope.SHARED)
        elif self.texts.get(line) != split:
            message = f"record '{printable(name)}' differs from {self._location(split)}"
            yield CudagFault("data_union", message, _UNION_REMEDY, Scope.SHARED)

    def has_lines(self, digests: DigestColumn) -> bool:
        """Whether these are the lines of all records of the splits, each once, with its own id."""
        count = sum(number for split, number in self.records.items() if split != "test")
        each_once = self.ids == len(self.texts) == count == len(digests)
        return (
            each_once
            and not digests.has_equals()
            and all(digest in self.texts for digest in digests)
        )

    def missing_from_data(self) -> list[RecordPosition]:
        """The positions of the records of splits that data.jsonl does not have, file by file."""
        if self.is_union:
            return []
        missing = [
            self.position(place)
            for key, place in self.names.items()
            if self._split(place) != "test" and key not in self.data_ids
        ]
        return sorted(missing, key=self._file_and_line)

    def _place_in_split(self, name: bytes) -> int | None:
        """The place of the record of an id, given by its digest, in a split but test."""
        place = self.names.get(name)
        return None if place is None or self._split(place) == "test" else place

    def _add_image(
        self, split: str, here: int, prompt: object, image: bytes
    ) -> Iterator[CudagFault]:
        """Add the image that a model sees, by its digest, and what it is asked about it."""
        first = self.image_digests.setdefault(image, here)
        if self._is_elsewhere(first, here, split):
            places = (self._location(first), self._location(here))
            self.shared_images.setdefault(image, places)
        if not isinstance(prompt, str):
            return
        key = short_digest(image + short_digest(prompt.removeprefix(HUMAN_START)))
        first = self.prompts.setdefault(key, here)
        if self._is_elsewhere(first, here, split):
            other = self._split(first)
            message = f"same image and prompt as {self._location(first)} in split {other}"
            remedy = "put all records of a task into one split"
            yield CudagFault("split_leak", message, remedy, Scope.SHARED)

    def shared_image_warnings(self) -> Iterator[CudagFault]:
        """Yield one warning for images in two splits: the desktop at the start may repeat."""
        if self.shared_images:
            count, (first, other) = len(self.shared_images), next(iter(self.shared_images.values()))
            subject = f"{count} images are" if count > 1 else "1 image is"
            message = f"{subject} in more than one split, first {other}, the same as {first}"
            remedy = "check that these images do not show the answers"
            yield CudagFault("shared_image", message, remedy, Scope.NOTE)

    def _same_name(self, name: str, first: int, here: int) -> CudagFault:
        tests = [self.position(place)[0] == "test.json" for place in (first, here)]
        scope = Scope.FORMAT if tests[0] == tests[1] else Scope.SHARED
        key = "test_id" if tests[1] else "id"
        message = f"{key} '{printable(name)}' is not unique, first at {self._location(first)}"
        return CudagFault("duplicate_id", message, "rename one of them", scope)

    def _same_path(self, path: str, first: int) -> CudagFault:
        message = f"image {printable(path)} is not unique, first at {self._location(first)}"
        remedy = "give every record an image of its own"
        return CudagFault("duplicate_image", message, remedy, Scope.OURS)

    def _torn_trajectory(self, name: str, first: int) -> CudagFault:
        split, where = self.first_use(first)
        message = f"trajectory '{printable(name)}' is also in split {split} ({where})"
        remedy = "put all records of a trajectory into one split"
        return CudagFault("split_overlap", message, remedy, Scope.SHARED)

    def _is_elsewhere(self, first: int, here: int, split: str) -> bool:
        """Whether an earlier place is in another split than this one."""
        same_file = first % _FILES == here % _FILES
        return not same_file and self._split(first) != split

    def first_use(self, place: int) -> tuple[str, str]:
        """The split that a place is in, and the place as text."""
        return self._split(place), self._location(place)

    def _split(self, place: int) -> str:
        """The split that a place is in: its file's name."""
        return self.position(place)[0].rpartition(".")[0]

    def _location(self, place: int) -> str:
        return _location(self.position(place))

    def _file_and_line(self, position: RecordPosition) -> tuple[int, int]:
        return self.files.index(position[0]), position[1]


def missing_record(name: str) -> CudagFault:
    """The fault of a record of a split that data.jsonl does not have."""
    message = f"record '{printable(name)}' is missing from data.jsonl"
    return CudagFault("data_union", message, _UNION_REMEDY, Scope.SHARED)


def _location(position: RecordPosition) -> str:
    return f"{position[0]}:{position[1]}"
