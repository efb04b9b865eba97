"""What is wrong with the accessibility scans of a log, whether a step needs them or not.

Belongs here: problems for people, without names or values of elements. How a scan is read is in
raw_tree.py.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.common.recording_files import LOG_FILE
from demo_pipeline.formats.demonstration.log_events import validate_event
from demo_pipeline.observation.trees.raw_tree import RawScan, decode_scan, regular_scan
from demo_pipeline.problems import Problem, Severity


def scan_problems(log: Path, scans: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """The problems of every scan: one for all that give no tree, one for all that deviate.

    Args:
        log: input_log.jsonl.
        scans: rows of the `events` stage's trees.parquet.

    Returns:
        An error `unreadable_scan`, as for a step that needs such a scan, and a warning
        `malformed_scan`; each names its first line.
    """
    unreadable: list[int] = []
    malformed: list[tuple[int, str]] = []
    with log.open("rb") as stream:
        for row in scans:
            stream.seek(row["byte_offset"])
            line = stream.read(row["byte_length"])
            scan = regular_scan(line)
            if _gives_no_tree(decode_scan(line) if scan is None else scan, lenient=scan is None):
                unreadable.append(row["event_index"])
            elif fault := _fault(line, scan):
                malformed.append((row["event_index"], fault))
    problems = []
    if unreadable:
        message = f"{_count(unreadable)} no element in `data.tree`, so that steps get an empty tree"
        remedy = "record with a recorder that writes `tree` as a list of elements"
        problems.append(_problem("unreadable_scan", message, unreadable[0], remedy))
    if malformed:
        line_number, fault = malformed[0]
        count = "1 scan differs" if len(malformed) == 1 else f"{len(malformed)} scans differ"
        message = f"{count} from the documented form, first: {fault}"
        remedy = "what can be read of it is used"
        warning = _problem("malformed_scan", message, line_number, remedy, Severity.WARNING)
        problems.append(warning)
    return problems


def _gives_no_tree(scan: RawScan | None, *, lenient: bool) -> bool:
    """Whether nothing of the tree can be read; reading leniently turns all else into no element."""
    return scan is None or scan.tree is None or (lenient and not scan.tree)


def _fault(line: bytes, scan: RawScan | None) -> str:
    """How a scan that can be read deviates; empty when nothing in it is lost."""
    if scan is None:
        try:
            return next(iter(validate_event(parse_json(line, LOG_FILE))), "data: has a wrong type")
        except JsonFileError as error:
            return error.message
    if not scan.tree:
        return "data.tree: has no element"
    nodes = scan.flatten().nodes
    for field in ("role", "bbox"):
        count = sum(getattr(node, field) is None for node in nodes)
        if count:
            return f"{count} of {len(nodes)} elements have no {field}"
    return ""


def _count(lines: list[int]) -> str:
    return "1 scan has" if len(lines) == 1 else f"{len(lines)} scans have"


def _problem(
    code: str, message: str, line: int, remedy: str, severity: Severity = Severity.ERROR
) -> Problem:
    return Problem(code, LOG_FILE, message, line=line, remedy=remedy, severity=severity)
