"""Rules between the records of a CUDAG dataset, and between them, its splits and its images.

Belongs here: what a validation remembers of the records, some hundred bytes each; disjoint task
groups, counts and shares, recomputed from the files of records; rules for one image. Of a line that
is known to be valid, nothing is read but what these rules need. Rules for one record are in
record_rules.py.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from demo_pipeline.exports.cudag.record_rules import (
    HUMAN_START,
    CudagFault,
    LocatedFault,
    Scope,
    json_fault,
    printable,
)
from demo_pipeline.exports.cudag.tool_calls import is_int, is_number
from demo_pipeline.files.base_model import line_of
from demo_pipeline.files.image_header import ImageInfo, probe_image
from demo_pipeline.files.json_files import (
    JsonFileError,
    Location,
    decode_text,
    line_numbers,
    parse_json,
    read_bytes,
)
from demo_pipeline.files.line_digests import DigestColumn, DigestTable
from demo_pipeline.files.system_errors import raise_system_trouble


class RecordKeys(NamedTuple):
    """Values of a record, of any type; None: absent.

    Attributes:
        name: its id, or the test_id of a test.
        image: path of its image.
        prompt: the text of the human.
        trajectory: id of its trajectory.
        task_type: kind of task.
    """

    name: object
    image: object
    prompt: object
    trajectory: object
    task_type: object


def record_keys(record: Mapping[str, Any]) -> RecordKeys:
    """The keys of a line of records."""
    turns = record.get("conversations")
    first = turns[0] if isinstance(turns, list) and turns else None
    prompt = first.get("value") if isinstance(first, dict) else None
    return RecordKeys(record.get("id"), record.get("image"), prompt, *_from_metadata(record))


def test_keys(entry: Mapping[str, Any]) -> RecordKeys:
    """The keys of an entry of test.json."""
    names = (entry.get("test_id"), entry.get("screenshot"), entry.get("prompt"))
    return RecordKeys(*names, *_from_metadata(entry))


def _from_metadata(record: Mapping[str, Any]) -> tuple[object, object]:
    metadata = record.get("metadata")
    if not isinstance(metadata, dict):
        return None, None
    return metadata.get("trajectory_id"), metadata.get("task_type")


class _Metadata(msgspec.Struct, gc=False):
    trajectory_id: str | None = None
    task_type: str | None = None


class _Turn(msgspec.Struct, gc=False):
    value: str


class _Record(msgspec.Struct, gc=False):
    id: str
    image: str
    conversations: list[_Turn]
    metadata: _Metadata


class _Test(msgspec.Struct, gc=False):
    test_id: str
    screenshot: str
    prompt: str
    metadata: _Metadata


_RECORDS = msgspec.json.Decoder(_Record)
_TESTS = msgspec.json.Decoder(_Test)


def record_line_keys(line: bytes) -> RecordKeys | None:
    """The keys of a valid line of records; None when its values have to be read."""
    try:
        found = _RECORDS.decode(line)
    except (msgspec.MsgspecError, ValueError):
        return None
    if not found.conversations:
        return None
    metadata = found.metadata
    prompt = found.conversations[0].value
    return RecordKeys(found.id, found.image, prompt, metadata.trajectory_id, metadata.task_type)


def test_line_keys(line: bytes) -> RecordKeys | None:
    """The keys of a valid line of test.json; None when its values have to be read."""
    try:
        found = _TESTS.decode(line)
    except (msgspec.MsgspecError, ValueError):
        return None
    names = (found.test_id, found.screenshot, found.prompt)
    return RecordKeys(*names, found.metadata.trajectory_id, found.metadata.task_type)


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


@dataclass(frozen=True, slots=True)
class OpenedImage:
    """What is known of an image.

    Attributes:
        info: its kind and size; None when it cannot be opened.
        fault: why not.
        digest: of its bytes; None when it cannot be read.
    """

    info: ImageInfo | None
    fault: str
    digest: bytes | None


def is_kind(path: Path, wanted: str) -> bool:
    """Whether a path is a `file` or a `dir`; a path that the system rejects is neither."""
    try:
        return path.is_file() if wanted == "file" else path.is_dir()
    except (OSError, ValueError):
        return False


def open_image(folder: Path, name: str) -> OpenedImage:
    """Open an image; its name is relative to the folder."""
    if not is_kind(folder / name, "file"):
        return OpenedImage(None, "Image not found", None)
    try:
        data = (folder / name).read_bytes()
        return OpenedImage(probe_image(data), "", short_digest(data))
    except (OSError, ValueError) as error:
        raise_system_trouble(error)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return OpenedImage(None, f"Image does not open ({reason})", None)


def image_faults(info: ImageInfo, name: str, metadata: object) -> Iterator[CudagFault]:
    """Yield how an image differs from its name and from what its record declares."""
    size = [info.width, info.height]
    declared = metadata.get("image_size") if isinstance(metadata, dict) else None
    if isinstance(declared, list) and declared != size:
        message = f"metadata.image_size {_sizes(declared)} is not the size of the image, {size}"
        yield CudagFault("image_size", message, "set it to the size of the file", Scope.SHARED)
    if name.endswith(".png") != (info.kind == "png"):
        message = f"image is a {info.kind.upper()}, but its name is {printable(name)}"
        yield CudagFault("image_kind", message, "convert or rename it", Scope.SHARED)


def _sizes(values: list[Any]) -> str:
    return str(values) if all(isinstance(v, int) for v in values[:3]) else "(not numbers)"


REPORT_FILE = "splits.json"
HASHED = ("train", "val", "test")
ALL = (*HASHED, "held_out")
ENOUGH_GROUPS = 20  # with fewer, groups may have been moved to fill a split
_SIGMAS = 4
_REMEDY = "build the dataset again"
_ReportFault = tuple[Location, CudagFault]


def report_faults(
    root: Path, config: Mapping[str, Any], inventory: CudagInventory
) -> Iterator[LocatedFault]:
    """Yield the faults of splits.json.

    Args:
        root: the dataset's directory.
        config: its parsed `config.json`.
        inventory: its records.
    """
    if not (root / REPORT_FILE).is_file():
        yield "./", None, _fault("missing_file", f"Missing required file: {REPORT_FILE}")
        return
    try:
        text = decode_text(read_bytes(root / REPORT_FILE, REPORT_FILE), REPORT_FILE)
        report = parse_json(text, REPORT_FILE)
    except JsonFileError as error:
        yield REPORT_FILE, error.line, json_fault(error, Scope.OURS)
        return
    if not isinstance(report, dict):
        yield REPORT_FILE, None, _fault("split_report", "must be a JSON object")
        return
    found = list(split_faults(report, config, inventory))
    lines = line_numbers(text) if found else {}
    for place, fault in found:
        yield REPORT_FILE, line_of(lines, place), fault


def split_faults(
    report: Mapping[str, Any], config: Mapping[str, Any], inventory: CudagInventory
) -> Iterator[_ReportFault]:
    """Yield the faults of the split report, each with its location in the report.

    Args:
        report: a parsed `splits.json`.
        config: a parsed `config.json`.
        inventory: the records of the dataset.
    """
    shape = list(_shape_faults(report))
    yield from shape
    if shape:
        return
    members = report["trajectories"]
    yield from _member_faults(members, inventory)
    yield from _group_faults(members, inventory)
    yield from _count_faults(report, inventory)
    yield from _share_faults(report, config)
    yield from _empty_faults(report, config)
    if report.get("filled") != config.get("split_filled"):
        message = "filled differs from split_filled in config.json"
        yield ("filled",), _fault("split_report", message)


def _fault(code: str, message: str, scope: Scope = Scope.OURS) -> CudagFault:
    return CudagFault(code, message, _REMEDY, scope)


def _shape_faults(report: Mapping[str, Any]) -> Iterator[_ReportFault]:
    """Keys and types that the other checks need."""
    for split in ALL:
        counts = _at(report, "splits", split)
        for key in ("groups", "trajectories", "records"):
            value = counts.get(key)
            if not isinstance(value, int) or not is_int(value) or value < 0:
                message = f"splits.{split}.{key} must be an integer from 0"
                yield ("splits", split, key), _fault("split_report", message)
    excluded = {"actions": {}, **_at(report, "excluded")}  # older datasets do not count actions
    for kind in ("trajectories", "records", "actions"):
        value = excluded.get(kind)
        if not isinstance(value, dict) or not all(is_int(count) for count in value.values()):
            message = f"excluded.{kind} must be an object of integers"
            yield ("excluded", kind), _fault("split_report", message)
    members = report.get("trajectories")
    if not isinstance(members, dict):
        message = "trajectories must be an object"
        yield ("trajectories",), _fault("split_report", message)
        return
    for name, member in members.items():
        known = isinstance(member, dict) and isinstance(member.get("group"), str)
        if not known or member.get("split") not in ALL:
            message = f"trajectories: '{printable(name)}' must have a group and a split"
            yield ("trajectories", name), _fault("split_report", message)


def _at(value: Any, *keys: str) -> Mapping[str, Any]:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _member_faults(members: Mapping[str, Any], inventory: CudagInventory) -> Iterator[_ReportFault]:
    for name, place in inventory.trajectories.items():
        split, where = inventory.first_use(place)
        if name not in members:
            message = f"trajectory '{printable(name)}' of {where} is not listed"
            yield ("trajectories",), _fault("split_report", message)
        elif members[name]["split"] != split:
            listed = members[name]["split"]
            message = (
                f"trajectory '{printable(name)}' is in {split} ({where}), but listed in {listed}"
            )
            yield ("trajectories", name, "split"), _fault("split_report", message)


def _group_faults(members: Mapping[str, Any], inventory: CudagInventory) -> Iterator[_ReportFault]:
    """A task group in two splits: groups are from the report, splits from the records."""
    first: dict[str, int] = {}
    for name, place in inventory.trajectories.items():
        split, where = inventory.first_use(place)
        if name not in members:
            continue
        group = members[name]["group"]
        other, there = inventory.first_use(first.setdefault(group, place))
        if other != split:
            message = f"group '{printable(group)}' is in {other} ({there}) and in {split} ({where})"
            yield ("trajectories", name), _fault("split_overlap", message)


def _count_faults(report: Mapping[str, Any], inventory: CudagInventory) -> Iterator[_ReportFault]:
    members = report["trajectories"].values()
    placed = Counter(member["split"] for member in members)
    groups = Counter(
        split for _, split in {(member["group"], member["split"]) for member in members}
    )
    counted = {"groups": groups, "trajectories": placed, "records": inventory.records}
    for split in ALL:
        for key, counts in counted.items():
            stated = report["splits"][split][key]
            if stated != counts[split]:
                message = f"splits.{split}.{key} is {stated}, but the files have {counts[split]}"
                yield ("splits", split, key), _fault("split_counts", message)


def _share_faults(report: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[_ReportFault]:
    """The shares of the groups against the ratios of the configuration.

    A hash puts a group into a split with the probability of its ratio, so the number of groups is
    binomial: a deviation of four standard deviations happens once in 16,000 times.
    """
    groups = {split: report["splits"][split]["groups"] for split in HASHED}
    total = sum(groups.values())
    for split in HASHED:
        ratio, counts = _at(config, "split_ratios").get(split), report["splits"][split]
        if not isinstance(ratio, int | float) or not is_number(ratio) or not 0 <= ratio <= 1:
            continue
        share = round(groups[split] / total, 6) if total else 0
        if counts.get("ratio") != ratio or counts.get("share") != share:
            message = f"splits.{split}: ratio and share must be {ratio} and {share}"
            yield ("splits", split), _fault("split_ratio", message)
        spread = _SIGMAS * math.sqrt(ratio * (1 - ratio) / total) if total else 0.0
        if total >= ENOUGH_GROUPS and abs(share - ratio) > spread + 1 / total:
            message = f"{split} has {share:.1%} of {total} groups, expected {ratio:.1%}"
            yield ("splits", split), _fault("split_ratio", message, Scope.NOTE)


def _empty_faults(report: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[_ReportFault]:
    """Splits that are wanted and have no record, although the dataset has task groups."""
    splits = report["splits"]
    if not any(splits[split]["groups"] for split in ALL):
        return
    for split in HASHED:
        ratio = _at(config, "split_ratios").get(split)
        if splits[split]["records"] or not is_number(ratio) or not ratio:
            continue
        groups = splits[split]["groups"]
        reason = (
            f"every record of its {groups} task groups was left out: see excluded"
            if groups
            else "there are too few task groups to give it one"
        )
        message = f"{split} is empty: {reason}"
        remedy = f"record more tasks, or set datasets.{split}_ratio to 0"
        yield ("splits", split), CudagFault("empty_split", message, remedy, Scope.NOTE)
