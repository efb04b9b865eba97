"""Rules between the records of a CUDAG dataset, and between them, its splits and its images.

Belongs here: what a validation remembers of the records; disjoint task groups, counts and shares,
recomputed from the files of records. Rules for one record are in record_rules.py.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from demo_pipeline.exports.cudag.record_rules import (
    HUMAN_START,
    CudagFault,
    LocatedFault,
    Scope,
    json_fault,
    ours,
    printable,
    shared,
)
from demo_pipeline.exports.cudag.tool_calls import is_int, is_number
from demo_pipeline.files.base_model import line_of
from demo_pipeline.files.json_files import (
    JsonFileError,
    Location,
    decode_text,
    line_numbers,
    parse_json,
    read_bytes,
)

_UNION_REMEDY = "make data.jsonl the union of train, val and held_out"


class RecordPlace(NamedTuple):
    """Where a record is: split, file name, and 1-based line, of test.json number of the entry."""

    split: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


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
    """The keys of a line of records, or of an entry of test.json."""
    metadata = record.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    kind = known.get("trajectory_id"), known.get("task_type")
    if "conversations" not in record and "test_id" in record:
        return RecordKeys(record["test_id"], record.get("screenshot"), record.get("prompt"), *kind)
    turns = record.get("conversations")
    first = turns[0] if isinstance(turns, list) and turns else None
    prompt = first.get("value") if isinstance(first, dict) else None
    return RecordKeys(record.get("id"), record.get("image"), prompt, *kind)


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

    def add(self, here: RecordPlace, keys: RecordKeys, image: str | None) -> Iterator[CudagFault]:
        """Add a record; yield what it has in common with an earlier one, and must not have.

        That is its id, its image or its trajectory, and image and prompt of another split.

        Args:
            here: its place.
            keys: its values.
            image: digest of its image; None: nothing is compared with it.
        """
        name, path, prompt, trajectory, kind = keys
        self.records[here.split] += 1
        if isinstance(kind, str):
            self.task_types[kind] += 1
        if isinstance(name, str) and (first := self.names.setdefault(name, here)) != here:
            scope = Scope.SHARED if "test" in {first.split, here.split} else Scope.FORMAT
            scope = Scope.FORMAT if first.split == here.split else scope
            key = "test_id" if here.split == "test" else "id"
            message = f"{key} '{printable(name)}' is not unique, first at {first}"
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
            yield from self._add_image(here, prompt, image)

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

        Args:
            line: its number.
            name: id of its record.
            is_same: a split has the same line.
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

    def missing_from_data(self) -> Iterator[LocatedFault]:
        """Yield the records of splits but test that data.jsonl does not have."""
        for name, place in self.names.items():
            if place.split != "test" and name not in self.data:
                message = f"record '{printable(name)}' is missing from data.jsonl"
                yield place.file, place.line, shared("data_union", message, _UNION_REMEDY)

    def shared_image_warnings(self) -> Iterator[CudagFault]:
        """Yield one warning for images in two splits: the desktop at the start may repeat."""
        if self.shared:
            count, (first, other) = len(self.shared), next(iter(self.shared.values()))
            subject = f"{count} images are" if count > 1 else "1 image is"
            message = f"{subject} in more than one split, first {other}, the same as {first}"
            remedy = "check that these images do not show the answers"
            yield CudagFault("shared_image", message, remedy, Scope.NOTE)


REPORT_FILE = "splits.json"
HASHED = ("train", "val", "test")
ALL = (*HASHED, "held_out")
ENOUGH_GROUPS = 20  # with fewer, groups may have been moved to fill a split
_SIGMAS = 4
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
    return CudagFault(code, message, "build the dataset again", scope)


def _shape_faults(report: Mapping[str, Any]) -> Iterator[_ReportFault]:
    """Keys and types that the other checks need."""
    for split in ALL:
        counts = _at(report, "splits", split)
        for key in ("groups", "trajectories", "records"):
            value = counts.get(key)
            if not is_int(value) or value < 0:
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
        shown, listed = f"trajectory '{printable(name)}'", members.get(name)
        if listed is None:
            message = f"{shown} of {place} is not listed"
            yield ("trajectories",), _fault("split_report", message)
        elif listed["split"] != place.split:
            message = f"{shown} is in {place.split} ({place}), but listed in {listed['split']}"
            yield ("trajectories", name, "split"), _fault("split_report", message)


def _group_faults(members: Mapping[str, Any], inventory: CudagInventory) -> Iterator[_ReportFault]:
    """A task group in two splits: groups are from the report, splits from the records."""
    first: dict[str, RecordPlace] = {}
    for name, place in inventory.trajectories.items():
        group = members[name]["group"] if name in members else ""
        other = first.setdefault(group, place) if name in members else place
        if other.split != place.split:
            both = f"{other.split} ({other}) and in {place.split} ({place})"
            message = f"group '{printable(group)}' is in {both}"
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
        if not is_number(ratio) or not 0 <= ratio <= 1:
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
