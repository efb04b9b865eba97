"""What holds between the records of a CUDAG dataset: unique names, whole data, disjoint splits.

Belongs here: the memory of a validation, some hundred bytes a record. What one record must look
like lies in `cudag_rules`.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from demo_pipeline.formats.cudag.fault import CudagFault, Scope, shown
from demo_pipeline.formats.cudag.record_rules import HUMAN_START


def file_digest_of(text: str | bytes) -> bytes:
    """A short fingerprint; lone surrogates, which JSON can spell, are no obstacle."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return hashlib.blake2b(data, digest_size=16).digest()


@dataclass(slots=True)
class CudagInventory:
    """Everything seen so far. Splits are `train`, `val`, `held_out` and `test`."""

    ids: dict[str, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    trajectories: dict[str, tuple[str, str]] = field(default_factory=dict)
    records: Counter[str] = field(default_factory=Counter)
    sights: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    pictures: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    shared: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    lines: dict[str, tuple[str, int, bytes]] = field(default_factory=dict)
    data_ids: dict[str, str] = field(default_factory=dict)
    task_types: Counter[str] = field(default_factory=Counter)

    def record(
        self, split: str, place: tuple[str, int], record: Mapping[str, Any], raw: bytes
    ) -> Iterator[CudagFault]:
        """Take in a line of a split: its name, its picture's name and its trajectory."""
        name = record.get("id")
        if isinstance(name, str):
            yield from self._named(name, place, "id")
            self.lines.setdefault(name, (*place, file_digest_of(raw.strip())))
        yield from self._pictured(record.get("image"), place)
        yield from self._followed(split, place, record)

    def test(self, place: tuple[str, int], record: Mapping[str, Any]) -> Iterator[CudagFault]:
        """Take in an entry of `test.json`."""
        name = record.get("test_id")
        if isinstance(name, str):
            yield from self._named(name, place, "test_id")
        yield from self._pictured(record.get("screenshot"), place)
        yield from self._followed("test", place, record)

    def data(self, place: tuple[str, int], name: object, raw: bytes) -> Iterator[CudagFault]:
        """Take in a line of `data.jsonl`, after all splits."""
        if not isinstance(name, str):
            return
        here = _spell(place)
        first = self.data_ids.setdefault(name, here)
        if first != here:
            yield CudagFault("duplicate_id", f"id '{shown(name)}' is not unique, first at {first}")
            return
        if name not in self.lines:
            message = f"record '{shown(name)}' is in no split"
            yield CudagFault("data_union", message, "data is train + val + held_out", Scope.SHARED)
        elif self.lines[name][2] != file_digest_of(raw.strip()):
            there = _spell(self.lines[name][:2])
            message = f"record '{shown(name)}' differs from {there}"
            yield CudagFault("data_union", message, "data is train + val + held_out", Scope.SHARED)

    def left_over(self) -> Iterator[tuple[tuple[str, int], CudagFault]]:
        """Records of splits that `data.jsonl` does not have, each with its place."""
        for name, (file, line, _) in self.lines.items():
            if name not in self.data_ids:
                message = f"record '{shown(name)}' is missing from data.jsonl"
                remedy = "data is train + val + held_out"
                yield (file, line), CudagFault("data_union", message, remedy, Scope.SHARED)

    def seen(
        self, split: str, place: tuple[str, int], prompt: object, picture: bytes | None
    ) -> Iterator[CudagFault]:
        """Take in what a model is shown: the same picture and prompt must not be in two splits.

        The same picture alone is only remembered, for `shared_pictures`.
        """
        if picture is None:
            return
        before, where = self.pictures.setdefault(picture, (split, _spell(place)))
        if before != split:
            self.shared.setdefault(picture, (where, _spell(place)))
        if not isinstance(prompt, str):
            return
        key = file_digest_of(picture + file_digest_of(prompt.removeprefix(HUMAN_START)))
        first, where = self.sights.setdefault(key, (split, _spell(place)))
        if first != split:
            message = f"same image and prompt as {where} in split {first}"
            yield CudagFault("split_leak", message, "keep a task in one split", Scope.SHARED)

    def shared_pictures(self) -> Iterator[CudagFault]:
        """How many pictures lie in two splits: start desktops repeat, so that it is a warning."""
        if self.shared:
            first, other = next(iter(self.shared.values()))
            many = f"{len(self.shared)} images are" if len(self.shared) > 1 else "1 image is"
            message = f"{many} in more than one split, first {other}, as in {first}"
            yield CudagFault(
                "shared_image", message, "look whether they give answers away", Scope.NOTE
            )

    def _named(self, name: str, place: tuple[str, int], key: str) -> Iterator[CudagFault]:
        here = _spell(place)
        first = self.ids.setdefault(name, here)
        if first != here:
            across = ("test.json" in first) != (place[0] == "test.json")
            scope = Scope.SHARED if across else Scope.SEED
            message = f"{key} '{shown(name)}' is not unique, first at {first}"
            yield CudagFault("duplicate_id", message, "rename one of them", scope)

    def _pictured(self, path: object, place: tuple[str, int]) -> Iterator[CudagFault]:
        if isinstance(path, str):
            here = _spell(place)
            first = self.images.setdefault(path, here)
            if first != here:
                message = f"image {shown(path)} is not unique, first at {first}"
                yield CudagFault(
                    "duplicate_image", message, "give each record its image", Scope.OURS
                )

    def _followed(
        self, split: str, place: tuple[str, int], record: Mapping[str, Any]
    ) -> Iterator[CudagFault]:
        self.records[split] += 1
        metadata = record.get("metadata")
        if not isinstance(metadata, dict):
            return
        if isinstance(metadata.get("task_type"), str):
            self.task_types[metadata["task_type"]] += 1
        name = metadata.get("trajectory_id")
        if isinstance(name, str) and name:
            first, where = self.trajectories.setdefault(name, (split, _spell(place)))
            if first != split:
                message = f"trajectory '{shown(name)}' is in split {first} too ({where})"
                yield CudagFault("split_overlap", message, "keep it in one split", Scope.SHARED)


def _spell(place: tuple[str, int]) -> str:
    return f"{place[0]}:{place[1]}"
