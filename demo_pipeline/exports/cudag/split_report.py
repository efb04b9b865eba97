"""Rules for splits.json: disjoint task groups, counts and shares, recomputed from the records."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from demo_pipeline.exports.cudag.inventory import CudagInventory, RecordPlace
from demo_pipeline.exports.cudag.models import HASHED, RECORD_FILES, REPORT_FILE
from demo_pipeline.exports.cudag.record_rules import CudagFault, Scope, json_fault, printable
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

_SPLITS = tuple(RECORD_FILES)
_ENOUGH_GROUPS = 20  # with fewer, groups may have been moved to fill a split
_SIGMAS = 4
_ReportFault = tuple[Location, CudagFault]


def report_faults(
    root: Path, config: Mapping[str, Any], inventory: CudagInventory
) -> Iterator[tuple[str, int | None, CudagFault]]:
    """Yield the faults of splits.json."""
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
    """Yield the faults of the split report, each with its location in the report."""
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
    for split in _SPLITS:
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
        if not known or member.get("split") not in _SPLITS:
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
    for split in _SPLITS:
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
        if total >= _ENOUGH_GROUPS and abs(share - ratio) > spread + 1 / total:
            message = f"{split} has {share:.1%} of {total} groups, expected {ratio:.1%}"
            yield ("splits", split), _fault("split_ratio", message, Scope.NOTE)


def _empty_faults(report: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[_ReportFault]:
    """Splits that are wanted and have no record, although the dataset has task groups."""
    splits = report["splits"]
    if not any(splits[split]["groups"] for split in _SPLITS):
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
