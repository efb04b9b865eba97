"""Finds the OSWorld task that a demonstration shows, by id or by instruction.

Such demonstrations must be known, because training on them would contaminate the benchmark.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from demo_pipeline.osworld.task_files import ORDINARY, instruction_key, read_catalog
from demo_pipeline.osworld.task_text import assignment_of
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.meta import Meta

BY_ID = "id"
BY_INSTRUCTION = "instruction"
_COLUMNS = ["file", "kind", "task_id", "instruction_key"]


@dataclass(frozen=True, slots=True)
class TaskMatch:
    """The OSWorld task of a demonstration.

    All attributes except `catalogued` are None if no task matches. If several task files match,
    an ordinary task is preferred to a risk task, and then the file whose path sorts first.

    Attributes:
        match: how the task was found, `id` or `instruction`.
        field: the field of meta.json that matched.
        kind: `ordinary` or `risk`.
        matches: number of task files with the same id or instruction.
        catalogued: whether a catalog was available.
    """

    task_id: str | None = None
    match: str | None = None
    field: str | None = None
    kind: str | None = None
    matches: int | None = None
    catalogued: bool = True

    @property
    def fingerprint(self) -> str:
        """A text that changes if the match changes. Tasks that do not match do not affect it."""
        if not self.catalogued:
            return "no catalog"
        if self.task_id is None:
            return "no task"
        return json.dumps(astuple(self)[:-1])


NO_CATALOG = TaskMatch(catalogued=False)
NO_MATCH = TaskMatch()


class TaskIndex:
    """Looks up the tasks of a catalog by id and by instruction.

    Args:
        rows: rows of the catalog with the columns `file`, `kind`, `task_id` and `instruction_key`.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._ids: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        self._keys: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: (row["kind"] != ORDINARY, row["file"])):
            self._ids[row["task_id"]].append(row)
            if row["instruction_key"]:
                self._keys[row["instruction_key"]].append(row)

    def __len__(self) -> int:
        return len(self._ids)

    @classmethod
    def read(cls, folder: Path) -> "TaskIndex":
        """Reads the tasks in `folder`/catalog.parquet. Raises the same errors as `read_catalog`."""
        return cls(read_catalog(folder, _COLUMNS))

    def match(self, meta: Meta) -> TaskMatch:
        """Finds the task of a demonstration by an id in meta.json, or else by its instruction.

        Ids are the texts under the keys `id`, `…_id` and `…Id`. Ids in the quest are compared
        before ids at the top level.
        """
        for field, value in _named_ids(meta):
            if value in self._ids:
                return _first_match(self._ids[value], BY_ID, field)
        try:
            assignment = assignment_of(meta)
        except DemonstrationError:  # the trajectories stage reports a missing instruction
            return NO_MATCH
        rows = self._keys.get(instruction_key(assignment.instruction))
        return _first_match(rows, BY_INSTRUCTION, assignment.source) if rows else NO_MATCH


def _first_match(rows: Sequence[Mapping[str, Any]], match: str, field: str) -> TaskMatch:
    return TaskMatch(rows[0]["task_id"], match, field, rows[0]["kind"], len(rows))


def _named_ids(meta: Meta) -> Iterator[tuple[str, str]]:
    """Yields the field and the text of each id in meta.json."""
    parts = [("", meta.members())]
    if meta.quest:
        parts.insert(0, ("quest.", meta.quest.members()))
    for prefix, members in parts:
        for name in sorted(members):
            value = members[name]
            if isinstance(value, str) and (name == "id" or name.endswith(("_id", "Id"))):
                yield f"{prefix}{name}", value


def require_catalog(match: TaskMatch) -> list[Problem]:
    """Returns a problem if no catalog was available, because contamination is then unknown."""
    if match.catalogued:
        return []
    message = "no catalog of OSWorld tasks was available to compare the demonstration with"
    remedy = "build the catalog of OSWorld tasks, then this trajectory again"
    return [Problem("no_catalog", "task.json", message, remedy=remedy)]
