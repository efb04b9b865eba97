"""The index of a trajectory dataset: `index.json`, `metadata.json` and tables of both levels.

Belongs here: the files that OSWorld-Desktopd defines for many trajectories together. Failed
trajectories are included; only training exports leave them out.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.id_parts import cut_into_parts
from demo_pipeline.common.json_files import dump_json, dump_long_json
from demo_pipeline.common.parquet import TableWriter, described_schema, whole_table
from demo_pipeline.datasets.exports_table import ExportState, write_exports
from demo_pipeline.datasets.hidden_actions import (
    HIDDEN_ACTIONS_FILE,
    HIDDEN_ACTIONS_SCHEMA,
    HiddenReason,
)
from demo_pipeline.datasets.index_parts import CountedTrajectories, IndexPart, index_part
from demo_pipeline.datasets.pointer_leaks import LeakRates, check_leak_rates
from demo_pipeline.datasets.provenance import PROVENANCE_SCHEMA
from demo_pipeline.datasets.selection import DatasetTrajectory, sorted_by_id
from demo_pipeline.formats.desktopd.models import Creator, Index, Metadata
from demo_pipeline.problems import Problem
from demo_pipeline.settings import TrajectorySettings

_ROWS_IN_MEMORY = 8192  # of a table; half a kilobyte each
STEPS_FILE, TRAJECTORIES_FILE = "steps.parquet", "trajectories.parquet"
_REASONS = pa.struct([pa.field(reason, pa.int32(), nullable=False) for reason in HiddenReason])
TRAJECTORIES_SCHEMA = described_schema(
    (
        ("trajectory_id", pa.string(), False, "demonstration id"),
        ("task_id", pa.string(), False, "of task.json"),
        ("osworld_task_id", pa.string(), True, "of task.json; null: no benchmark task"),
        ("application", pa.string(), False, "of task.json"),
        ("difficulty", pa.string(), False, "easy, medium or hard"),
        ("success", pa.bool_(), False, "of result.json"),
        ("steps", pa.int32(), False, "number of steps"),
        ("completion_time_ms", pa.int64(), False, "first event to last, milliseconds"),
        ("complete", pa.bool_(), False, "no action of the demonstration is hidden"),
        ("hidden_actions", pa.int32(), False, "number of actions that no screenshot shows"),
        ("hidden_reasons", _REASONS, False, "their numbers by reason"),
    )
)


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What was indexed.

    Attributes:
        trajectories: number of trajectories in the index.
        successful: how many of them succeeded.
        failed: how many of them failed.
        steps: number of steps of all of them.
        leaks: counts and rates of leaks, as in `metadata.json`.
        counts: the counts of `metadata.json`.
        problems: why unreadable trajectories are not in the index.
        exports: training export → its state, see `ExportState`.
    """

    trajectories: int
    successful: int
    failed: int
    steps: int
    leaks: LeakRates
    counts: dict[str, Any]
    problems: tuple[Problem, ...]
    exports: dict[str, str]


def build_index(
    trajectories: Sequence[DatasetTrajectory],
    out: Path,
    settings: DatasetSettings,
    created_by: tuple[str, str],
    exports: Sequence[ExportState] = (),
) -> IndexSummary:
    """Write the JSON files of the index and its tables; the caller links the trajectories.

    `steps.parquet` holds the provenance of all steps, `hidden_actions.parquet` all actions that are
    no steps because no screenshot shows them, `trajectories.parquet` one row per trajectory.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is created.
        settings: written to `metadata.json` as the configuration.
        created_by: name and version of the program.
        exports: the training exports as they are committed now.
    """
    out.mkdir(parents=True, exist_ok=True)
    sources = sorted_by_id(trajectories)
    tally = _Tally()
    with (
        TableWriter(out / STEPS_FILE, PROVENANCE_SCHEMA, _ROWS_IN_MEMORY) as steps,
        TableWriter(out / HIDDEN_ACTIONS_FILE, HIDDEN_ACTIONS_SCHEMA, _ROWS_IN_MEMORY) as hidden,
        whole_table(out / TRAJECTORIES_FILE, TRAJECTORIES_SCHEMA) as rows,
    ):
        for some in cut_into_parts(sources, [source.id for source in sources]):
            part = index_part(some)
            tally.add(part)
            steps.append_table(part.steps)
            hidden.append_table(part.hidden)
            rows.append_table(pa.Table.from_pylist(part.rows, schema=TRAJECTORIES_SCHEMA))
    dump_long_json(out / "index.json", tally.index(), "trajectories", tally.entries())
    dump_json(out / "metadata.json", _metadata(tally, settings, created_by))
    known = [source for source in trajectories if source.id in tally.indexed]
    write_exports(out, exports, known, settings)
    return IndexSummary(
        trajectories=tally.counted.trajectories,
        successful=tally.counted.successful,
        failed=tally.counted.trajectories - tally.counted.successful,
        steps=tally.counted.steps,
        leaks=tally.counted.leaks,
        counts=tally.counts(),
        problems=tuple(tally.problems),
        exports={state.name: state.status for state in exports},
    )


@dataclass(slots=True)
class _Tally:
    """The entries and the counts over the trajectories so far."""

    texts: list[str] = field(default_factory=list)
    indexed: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    unreadable: int = 0
    counted: CountedTrajectories = field(default_factory=CountedTrajectories)

    def add(self, part: IndexPart) -> None:
        # As text, which is a tenth of the size.
        self.texts.append(json.dumps(part.entries))
        self.indexed.update(entry["id"] for entry in part.entries)
        self.problems += part.problems
        self.unreadable += part.unreadable
        self.counted.add(part.counts)

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield the entries of `index.json`."""
        for text in self.texts:
            yield from json.loads(text)

    def index(self) -> dict[str, Any]:
        """The content of `index.json` without its entries, in the order of `Index`."""
        counted = self.counted
        return Index(
            total_trajectories=counted.trajectories,
            successful=counted.successful,
            failed=counted.trajectories - counted.successful,
            trajectories=[],
        ).model_dump(mode="json")

    def counts(self) -> dict[str, Any]:
        counted, names = self.counted, self.counted.by_name
        flags = dict.fromkeys(("off_screen", "missing_frames", "contaminated"), 0)
        return {
            "trajectories": counted.trajectories,
            "successful": counted.successful,
            "failed": counted.trajectories - counted.successful,
            "complete": counted.complete,
            "incomplete": counted.trajectories - counted.complete,
            "unreadable": self.unreadable,
            "steps": counted.steps,
            "hidden_actions": dict(sorted(names["hidden"].items())),
            "actions": dict(sorted(names["actions"].items())),
            "applications": dict(sorted(names["applications"].items())),
            "platforms": dict(sorted(names["platforms"].items())),
            "frame_reasons": dict(sorted(names["reasons"].items())),
            "tree_freshness": dict(sorted(names["freshness"].items())),
            **counted.leaks.as_dict(),
            **flags,
            **names["flags"],
        }


def _metadata(tally: _Tally, settings: DatasetSettings, created_by: tuple[str, str]) -> Metadata:
    name, version = created_by
    return Metadata(
        name=settings.name_prefix,
        description="Recorded demonstrations of people using computers, one step per action",
        created_by=Creator(name=name, version=version),
        configuration=settings.model_dump(mode="json"),
        counts=tally.counts(),
    )


def check_dataset_leaks(out: Path, settings: TrajectorySettings) -> list[Problem]:
    """A warning for every leak rate of the whole dataset that is above its limit."""
    return check_leak_rates(out / STEPS_FILE, settings)
