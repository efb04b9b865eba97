"""Whether the splits of a CUDAG dataset of ours are what `splits.json` says, record by record.

Belongs here: disjointness of task groups, counts and shares, recomputed from the written files
(formats notes, section 4). That no demonstration lies in two splits is `cudag_inventory`'s, for
datasets of any maker.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from demo_pipeline.common.deep_json import Location, line_numbers
from demo_pipeline.common.json_files import JsonFileError, decode_text, parse_json, read_bytes
from demo_pipeline.formats.base_model import line_of
from demo_pipeline.formats.cudag.cross_checks import CudagInventory
from demo_pipeline.formats.cudag.fault import CudagFault, Scope, shown
from demo_pipeline.formats.cudag.tool_calls import is_int, is_number

REPORT_FILE = "splits.json"
HASHED = ("train", "val", "test")
ALL = (*HASHED, "held_out")
ENOUGH_GROUPS = 20  # below, groups may have been moved to fill a split
_SIGMAS = 4
_REMEDY = "build the dataset again"
Found = tuple[Location, CudagFault]
Placed = tuple[str, int | None, CudagFault]


def report_faults(
    root: Path, config: Mapping[str, Any], inventory: CudagInventory
) -> Iterator[Placed]:
    """Everything wrong with `splits.json`, as (file, line, fault).

    Args:
        root: the dataset's directory.
        config: its parsed `config.json`.
        inventory: what its files of records hold.
    """
    if not (root / REPORT_FILE).is_file():
        yield "./", None, _fault("missing_file", f"Missing required file: {REPORT_FILE}")
        return
    try:
        text = decode_text(read_bytes(root / REPORT_FILE, REPORT_FILE), REPORT_FILE)
        report = parse_json(text, REPORT_FILE)
    except JsonFileError as error:
        yield REPORT_FILE, error.line, _fault("invalid_json", error.message)
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
) -> Iterator[Found]:
    """Everything wrong with the split report, each with its place in it.

    Args:
        report: a parsed `splits.json`.
        config: a parsed `config.json`.
        inventory: what the files of records hold.
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
    if report.get("filled") != config.get("split_filled"):
        message = "filled is not what config.json says under split_filled"
        yield ("filled",), _fault("split_report", message)


def _fault(code: str, message: str, scope: Scope = Scope.OURS) -> CudagFault:
    return CudagFault(code, message, _REMEDY, scope)


def _shape_faults(report: Mapping[str, Any]) -> Iterator[Found]:
    """Keys and types, as far as the other checks need them."""
    for split in ALL:
        counts = _at(report, "splits", split)
        for key in ("groups", "trajectories", "records"):
            value = counts.get(key)
            if not isinstance(value, int) or not is_int(value) or value < 0:
                message = f"splits.{split}.{key} must be an integer from 0"
                yield ("splits", split, key), _fault("split_report", message)
    for kind in ("trajectories", "records"):
        value = _at(report, "excluded").get(kind)
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
            message = f"trajectories: '{shown(name)}' must have a group and a split"
            yield ("trajectories", name), _fault("split_report", message)


def _at(value: Any, *keys: str) -> Mapping[str, Any]:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _member_faults(members: Mapping[str, Any], inventory: CudagInventory) -> Iterator[Found]:
    for name, (split, where) in inventory.trajectories.items():
        if name not in members:
            message = f"trajectory '{shown(name)}' of {where} is not listed"
            yield ("trajectories",), _fault("split_report", message)
        elif members[name]["split"] != split:
            told = members[name]["split"]
            message = f"trajectory '{shown(name)}' is in {split} ({where}), listed in {told}"
            yield ("trajectories", name, "split"), _fault("split_report", message)


def _group_faults(members: Mapping[str, Any], inventory: CudagInventory) -> Iterator[Found]:
    """A task in two splits: groups from the report, splits from the files of records."""
    first: dict[str, tuple[str, str]] = {}
    for name, (split, where) in inventory.trajectories.items():
        if name not in members:
            continue
        group = members[name]["group"]
        there, place = first.setdefault(group, (split, where))
        if there != split:
            message = f"group '{shown(group)}' is in {there} ({place}) and in {split} ({where})"
            yield ("trajectories", name), _fault("split_overlap", message)


def _count_faults(report: Mapping[str, Any], inventory: CudagInventory) -> Iterator[Found]:
    members = report["trajectories"].values()
    placed = Counter(member["split"] for member in members)
    groups = Counter(split for _, split in {(one["group"], one["split"]) for one in members})
    counted = {"groups": groups, "trajectories": placed, "records": inventory.records}
    for split in ALL:
        for key, counts in counted.items():
            told = report["splits"][split][key]
            if told != counts[split]:
                message = f"splits.{split}.{key} is {told}, the files have {counts[split]}"
                yield ("splits", split, key), _fault("split_counts", message)


def _share_faults(report: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Found]:
    """Shares of groups against the ratios asked for: far off is a matter of chance or of a fault.

    A hash puts a group into a split with the ratio's probability, so that the number of groups is
    binomial: four standard deviations happen once in 16,000 times.
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
            message = f"{split} has {share:.1%} of {total} groups, asked for were {ratio:.1%}"
            yield ("splits", split), _fault("split_ratio", message, Scope.NOTE)
