"""Checks a written trajectory index against the trajectories and exports that it lists.

All numbers are computed again.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.datasets.card_files import (
    CARD,
    CHARTS_FOLDER,
    card_files,
    missing_card_files,
)
from demo_pipeline.datasets.index import (
    EXPORTS_FILE,
    EXPORTS_SCHEMA,
    EXPORTS_TABLE,
    INDEX_FILE,
    INDEX_STEPS_SCHEMA,
    METADATA_FILE,
    STEPS_FILE,
    TRAJECTORIES_FILE,
    TRAJECTORIES_SCHEMA,
    ExportState,
    IndexTally,
)
from demo_pipeline.datasets.selection import facts_of, judged_success
from demo_pipeline.files.json_files import JsonFileError, load_json
from demo_pipeline.files.parquet import (
    read_rows,
    read_schema,
    read_table,
    rows_table,
    schema_problems,
)
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import (
    HIDDEN_ACTIONS_FILE,
    HIDDEN_ACTIONS_SCHEMA,
    PROVENANCE_SCHEMA,
    QUEST_NAMES,
    HiddenReason,
    hidden_rows,
    recorded_outcome,
)
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory, sorted_by_id

_TABLES = {
    HIDDEN_ACTIONS_FILE: HIDDEN_ACTIONS_SCHEMA,
    TRAJECTORIES_FILE: TRAJECTORIES_SCHEMA,
    EXPORTS_TABLE: EXPORTS_SCHEMA,
}
_NAMES = {INDEX_FILE, METADATA_FILE, EXPORTS_FILE, STEPS_FILE, *_TABLES, CARD, CHARTS_FOLDER}
_PROVENANCE = PROVENANCE_SCHEMA.remove_metadata()
_ROWS_AT_ONCE = 2000  # number of rows of steps.parquet that are collected for a comparison
_COLUMNS_OF_METADATA = {  # maps these counters of metadata.json to columns of steps.parquet
    "actions": "action_type",
    "frame_reasons": "reason_code",
    "tree_freshness": "freshness",
}


@dataclass(frozen=True, slots=True)
class _Expected:
    """The values that the index must contain for a trajectory.

    Attributes:
        entry: entry in index.json.
        row: row in trajectories.parquet, with only the columns that the check compares.
        shared_columns: maps columns of steps.parquet to the value that all steps of the trajectory
            share.
        hidden: rows in hidden_actions.parquet.
    """

    entry: Mapping[str, Any]
    row: Mapping[str, Any]
    shared_columns: Mapping[str, str]
    hidden: Sequence[Mapping[str, object]]


class _StepsComparison:
    """Compares steps.parquet with the provenance of trajectories, which are added one by one.

    The rows of many trajectories are compared together, because creating a table of five rows takes
    as long as creating a table of hundreds of rows.

    Attributes:
        problems: the differences found so far.
    """

    def __init__(self, written: pa.Table) -> None:
        self.problems: list[Problem] = []
        self._written = written.select(_PROVENANCE.names).cast(_PROVENANCE)
        self._compared = 0  # number of rows of steps.parquet that were compared
        self._waiting: list[tuple[str, list[dict[str, Any]]]] = []
        self._waiting_rows = 0

    def add(self, trajectory: str, rows: list[dict[str, Any]]) -> None:
        """Adds the next trajectory, in the order of steps.parquet.

        `rows` is the provenance of the steps.
        """
        self._waiting.append((trajectory, rows))
        self._waiting_rows += len(rows)
        if self._waiting_rows >= _ROWS_AT_ONCE:
            self._compare()

    def end(self) -> None:
        """Compares the remaining rows, and checks the total number of rows."""
        self._compare()
        if self._written.num_rows != self._compared:
            message = f"has {self._written.num_rows} rows for {self._compared} steps"
            self.problems.append(_problem(STEPS_FILE, message))

    def _compare(self) -> None:
        """Compares all collected rows. If they differ, finds the trajectories that differ."""
        all_rows = [row for _, rows in self._waiting for row in rows]
        are_equal = self._equal_next(all_rows)
        for trajectory, rows in self._waiting:
            if not are_equal and not self._equal_next(rows):
                message = f"differs from the provenance of {trajectory}"
                self.problems.append(_problem(STEPS_FILE, message))
            self._compared += len(rows)
        self._waiting.clear()
        self._waiting_rows = 0

    def _equal_next(self, rows: list[dict[str, Any]]) -> bool:
        expected = pa.Table.from_pylist(rows, schema=_PROVENANCE)
        return bool(self._written.slice(self._compared, len(rows)).equals(expected))


def compare_index(
    out: Path,
    trajectories: Sequence[DatasetTrajectory],
    exports: Sequence[ExportState],
    settings: DatasetSettings,
) -> list[Problem]:
    """Returns the differences between an index and the inputs from which it was built.

    Args:
        out: folder of the index.
        trajectories, exports, settings: as for `build_index`.
    """
    problems = _check_columns_of_steps(out / STEPS_FILE)
    for file, schema in _TABLES.items():
        problems += schema_problems(out / file, schema)
    if problems:
        return problems
    names = {path.name for path in out.iterdir()}
    # The folder `trajectories` is not checked, because an empty index does not have it.
    for name in sorted((names ^ _NAMES) - {"trajectories"}):
        message = "is missing" if name in _NAMES else "does not belong here"
        problems.append(_problem(name, message))
    tally = IndexTally()
    steps_table = read_table(out / STEPS_FILE, INDEX_STEPS_SCHEMA)
    steps = _StepsComparison(steps_table)
    expected = dict(_expected(trajectories, tally, steps))
    steps.end()
    try:
        return [
            *problems,
            *_check_charts(out),
            *_check_documents(out, expected, tally, settings),
            *_check_trajectories(out, expected),
            *steps.problems,
            *_check_steps(out, steps_table, expected),
            *_check_exports(out, expected, exports),
        ]
    except JsonFileError as error:
        return [_problem(error.file, error.message)]


def _check_charts(out: Path) -> Iterator[Problem]:
    """Checks the files of the card and its charts.

    Yields a problem for each file that is missing or empty, and for each chart that the card does
    not show.
    """
    for name in missing_card_files(out):
        yield _problem(name, "is missing or empty")
    plots = out / CHARTS_FOLDER
    if not plots.is_dir():
        return
    names = {f"{CHARTS_FOLDER}/{path.name}" for path in plots.iterdir()}
    for name in sorted(names - card_files(out)):
        yield _problem(name, "is not in the card")


def _check_columns_of_steps(path: Path) -> list[Problem]:
    """Returns a problem if steps.parquet has wrong columns.

    The values are not checked here.
    """
    try:
        columns = read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise_system_trouble(error)
        return [_problem(path.name, f"cannot be read as Parquet: {type(error).__name__}")]
    if columns.equals(INDEX_STEPS_SCHEMA, check_metadata=False):
        return []
    return [_problem(path.name, "has other columns than it declares")]


def _expected(
    trajectories: Sequence[DatasetTrajectory], tally: IndexTally, steps: _StepsComparison
) -> Iterator[tuple[str, _Expected]]:
    """Yields the id and the expected values of each trajectory that can be read.

    Args:
        tally: counts all trajectories, including unreadable ones.
        steps: gets the provenance of one trajectory at a time, to limit the memory.
    """
    for source in sorted_by_id(trajectories):
        try:
            head, rows = facts_of(source)
            verdict = judged_success(source)
        except DemonstrationError:
            tally.unreadable += 1
            continue
        success = head.success if verdict is None else verdict
        tally.add(source.id, replace(head, success=success), rows)
        entry = {
            "id": source.id,
            "task_id": replace_surrogates(head.task_id),
            "success": success,
            "steps": head.steps,
            "application": replace_surrogates(head.application),
        }
        row = {
            "trajectory_id": source.id,
            "task_id": replace_surrogates(head.task_id),
            "application": replace_surrogates(head.application),
            "difficulty": head.difficulty,
            "success": success,
            "steps": head.steps,
            "completion_time_ms": head.completion_time_ms,
            "complete": not head.hidden,
            "hidden_actions": len(head.hidden),
            "hidden_reasons": dict.fromkeys(HiddenReason, 0) | head.hidden.by_reason(),
        }
        for name in QUEST_NAMES:
            row[name] = rows[0][name] if rows else None
        steps.add(source.id, rows)
        hidden = hidden_rows(source.id, head.hidden.actions)
        shared_columns = {
            "outcome": recorded_outcome(head.status, success=head.success),
            "application": replace_surrogates(head.application),
            "instruction": replace_surrogates(head.instruction),
        }
        yield source.id, _Expected(entry, row, shared_columns, hidden)


def _check_documents(
    out: Path,
    expected: Mapping[str, _Expected],
    tally: IndexTally,
    settings: DatasetSettings,
) -> Iterator[Problem]:
    """Yields a problem for each difference between the JSON files and the expected values."""
    entries = [trajectory.entry for trajectory in expected.values()]
    successful = sum(entry["success"] for entry in entries)
    totals = {
        "total_trajectories": len(entries),
        "successful": successful,
        "failed": len(entries) - successful,
    }
    document = load_json(out / INDEX_FILE)
    listed = document.get("trajectories") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        yield _problem(INDEX_FILE, "has no list of trajectories")
        return
    yield from _differences(INDEX_FILE, totals, document)
    if document.get("version") != "1.0":
        yield _problem(INDEX_FILE, "has no version of the format")
    for number, (entry, listed_entry) in enumerate(zip(entries, listed, strict=False)):
        if entry != _without_surrogates(listed_entry) or type(listed_entry["success"]) is not bool:
            yield _problem(INDEX_FILE, f"entry {number} differs from the trajectory {entry['id']}")
    if len(listed) != len(entries):
        yield _problem(INDEX_FILE, f"lists {len(listed)} of {len(entries)} trajectories")

    metadata = load_json(out / METADATA_FILE)
    described = {
        "name": settings.name_prefix,
        "configuration": settings.model_dump(mode="json"),
    }
    yield from _differences(METADATA_FILE, described, metadata)
    counts = metadata.get("counts")
    if not isinstance(counts, dict):
        yield _problem(METADATA_FILE, "has no counts")
        return
    yield from _differences(METADATA_FILE, {**tally.counts(), **_counts(out, expected)}, counts)


def _counts(out: Path, expected: Mapping[str, _Expected]) -> dict[str, Any]:
    """Returns counts for metadata.json, computed from steps.parquet and the expected rows."""
    rows = [trajectory.row for trajectory in expected.values()]
    steps = read_table(out / STEPS_FILE, columns=[*_COLUMNS_OF_METADATA.values()])
    complete = sum(row["complete"] for row in rows)
    successful = sum(row["success"] for row in rows)
    counts: dict[str, Any] = {
        "trajectories": len(rows),
        "successful": successful,
        "failed": len(rows) - successful,
        "complete": complete,
        "incomplete": len(rows) - complete,
        "steps": steps.num_rows,
        "applications": Counter(row["application"] for row in rows),
    }
    for name, column in _COLUMNS_OF_METADATA.items():
        counts[name] = Counter(steps[column].to_pylist())
    return counts


def _check_trajectories(out: Path, expected: Mapping[str, _Expected]) -> Iterator[Problem]:
    """Yields the problems of trajectories.parquet and hidden_actions.parquet."""
    rows = [trajectory.row for trajectory in expected.values()]
    columns = list(rows[0]) if rows else ["trajectory_id"]
    written = read_rows(out / TRAJECTORIES_FILE, columns=columns)
    if len(written) != len(rows):
        message = f"has {len(written)} rows for {len(rows)} trajectories"
        yield _problem(TRAJECTORIES_FILE, message)
    for row, written_row in zip(rows, written, strict=False):
        if row != written_row:
            message = f"differs from the trajectory {row['trajectory_id']}"
            yield _problem(TRAJECTORIES_FILE, message)
    hidden: list[Mapping[str, object]] = []
    for trajectory in expected.values():
        hidden += trajectory.hidden
    expected_table = pa.Table.from_pylist(hidden, schema=HIDDEN_ACTIONS_SCHEMA)
    if not read_table(out / HIDDEN_ACTIONS_FILE, HIDDEN_ACTIONS_SCHEMA).equals(expected_table):
        yield _problem(HIDDEN_ACTIONS_FILE, "differs from the hidden actions of the trajectories")


def _check_steps(
    out: Path, table: pa.Table, expected: Mapping[str, _Expected]
) -> Iterator[Problem]:
    """Yields a problem for each wrong value in a column that is not part of the provenance."""
    members = load_json(out / EXPORTS_FILE)["trajectories"]
    shared_names = ("outcome", "application", "instruction")
    names = ("trajectory_id", "step_index", "split", "screenshot", *shared_names)
    columns = (table[name].to_pylist() for name in names)
    for key, step_index, split, screenshot, *values in zip(*columns, strict=True):
        path = f"trajectories/{key}/steps/{step_index:03d}/screenshot.png"
        if screenshot != path:
            yield _problem(STEPS_FILE, f"names another screenshot than {path}")
        if key not in expected or values != [*expected[key].shared_columns.values()]:
            message = f"has another {', '.join(shared_names)} than the trajectory {key}"
            yield _problem(STEPS_FILE, message)
        if split != members.get(key, {}).get("split"):
            yield _problem(STEPS_FILE, f"has another split of {key} than {EXPORTS_FILE}")


def _check_exports(
    out: Path, expected: Mapping[str, _Expected], exports: Sequence[ExportState]
) -> Iterator[Problem]:
    """Yields the problems of exports.json and exports.parquet, given the true export states."""
    document = load_json(out / EXPORTS_FILE)
    states = {state.name: state.as_dict() for state in exports}
    if document["exports"] != states:
        yield _problem(EXPORTS_FILE, "differs from the states of the training exports")
    members = document["trajectories"]
    if list(members) != list(expected):
        yield _problem(EXPORTS_FILE, "does not list the trajectories of the index")
    columns: list[list[Any]] = [[] for _ in EXPORTS_SCHEMA.names]
    for key, member in members.items():
        counts = {state.name: state.records.get(key, 0) for state in exports if state.version}
        if member.get("records") != counts:
            yield _problem(EXPORTS_FILE, f"has other records of {key} than the exports")
        of_member = [key, *(member.get(name) for name in ("split", "split_group", "left_out"))]
        for state in exports:
            version = state.version or None
            of_export = (state.name, state.status, state.output or None, version)
            size = state.size if version else None
            row = (*of_member, *of_export, size, state.records.get(key, 0))
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    try:
        is_equal = read_table(out / EXPORTS_TABLE).equals(rows_table(columns, EXPORTS_SCHEMA))
    except (ValueError, TypeError):  # exports.json has values that do not fit into a table
        is_equal = False
    if not is_equal:
        yield _problem(EXPORTS_TABLE, f"differs from {EXPORTS_FILE}")


def _without_surrogates(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values with lone surrogates replaced, because tables cannot encode surrogates."""
    plain = dict(values)
    for name, value in values.items():
        if isinstance(value, str):
            plain[name] = replace_surrogates(value)
    return plain


def _differences(
    file: str, wanted: Mapping[str, Any], written: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yields a problem for each key of `wanted` whose value in `written` is different."""
    for key, value in wanted.items():
        written_value = written.get(key)
        if isinstance(value, dict) and isinstance(written_value, dict):
            counts = {}
            for name, count in written_value.items():
                counts[replace_surrogates(name)] = count
            written_value = counts
        if written_value != value:
            yield _problem(file, f"{key} differs from the trajectories")


def _problem(file: str, message: str) -> Problem:
    remedy = "build it again; if that does not help, this is a defect of the pipeline: report it"
    return Problem("index", file, message, remedy=remedy)
