"""Which OSWorld task a demonstration is of, if any.

Belongs here: looking a demonstration up in the catalog, by id or by instruction. A demonstration of
a benchmark's task is contamination; leaving it out is the training exports' business.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from demo_pipeline.datasets.task_table import ORDINARY, instruction_key, read_catalog
from demo_pipeline.datasets.task_text import assignment_of
from demo_pipeline.formats.demonstration.meta import Meta
from demo_pipeline.problems import DemonstrationError, Problem

BY_ID, BY_INSTRUCTION = "id", "instruction"
_COLUMNS = ["file", "kind", "task_id", "instruction_key"]


@dataclass(frozen=True, slots=True)
class TaskMatch:
    """The task a demonstration is of; all is None where there is none.

    Attributes:
        task_id: id of the task.
        match: `id` or `instruction`: what the two have in common.
        field: the field of meta.json that matched.
        kind: `ordinary` or `risk`.
        matches: how many task files match in this way; the first by kind and file is taken.
        catalogued: there was a catalog to look in.
    """

    task_id: str | None = None
    match: str | None = None
    field: str | None = None
    kind: str | None = None
    matches: int | None = None
    catalogued: bool = True

    @property
    def fingerprint(self) -> str:
        """All that a trajectory depends on of the catalog: a text that differs when the link does.

        A task that is not this demonstration's own changes nothing here.
        """
        if not self.catalogued:
            return "no catalog"
        return json.dumps(astuple(self)[:-1]) if self.task_id is not None else "no task"


NO_CATALOG = TaskMatch(catalogued=False)
NO_MATCH = TaskMatch()


class TaskIndex:
    """The tasks of a catalog by id and by instruction.

    Args:
        rows: of the catalog, with `file`, `kind`, `task_id` and `instruction_key`.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._ids: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        self._keys: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: (row["kind"] != ORDINARY, row["file"])):
            self._ids[row["task_id"]].append(row)
            if row["instruction_key"]:
                self._keys[row["instruction_key"]].append(row)

    @classmethod
    def read(cls, folder: Path) -> "TaskIndex":
        """The index of `folder`/catalog.parquet; raises as `read_catalog` does."""
        return cls(read_catalog(folder, _COLUMNS))

    def link(self, meta: Meta) -> TaskMatch:
        """The task with an id that meta.json names, else the one with the same instruction.

        An id is the text of `id`, `…_id` or `…Id` in the quest, then in meta.json itself.
        """
        for field, value in _named_ids(meta):
            if value in self._ids:
                return _link(self._ids[value], BY_ID, field)
        try:
            assignment = assignment_of(meta)
        except DemonstrationError:  # said by the trajectory, which cannot be made without one
            return NO_MATCH
        found = self._keys.get(instruction_key(assignment.instruction))
        return _link(found, BY_INSTRUCTION, assignment.source) if found else NO_MATCH


def _link(rows: Sequence[Mapping[str, Any]], match: str, field: str) -> TaskMatch:
    return TaskMatch(rows[0]["task_id"], match, field, rows[0]["kind"], len(rows))


def _named_ids(meta: Meta) -> Iterator[tuple[str, str]]:
    """Yield (field, text) of each id that meta.json holds."""
    parts = [("quest.", meta.quest.members() if meta.quest else {}), ("", meta.members())]
    for prefix, members in parts:
        for name in sorted(members):
            value = members[name]
            if isinstance(value, str) and (name == "id" or name.endswith(("_id", "Id"))):
                yield f"{prefix}{name}", value


def require_catalog(link: TaskMatch) -> list[Problem]:
    """That there was a catalog to look in; without one nothing is known of contamination."""
    if link.catalogued:
        return []
    message = "there was no catalog of OSWorld tasks to compare the demonstration with"
    remedy = "materialise osworld_tasks, then this trajectory again"
    return [Problem("no_catalog", "task.json", message, remedy=remedy)]
