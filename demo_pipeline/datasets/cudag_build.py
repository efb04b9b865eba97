"""Builds a CUDAG dataset from committed trajectories.

Belongs here: the files of the dataset and the order in which they are written. Records are made
in `cudag_records`.
"""

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.json_files import dump_json
from demo_pipeline.datasets.cudag_config import (
    SETTINGS_DETAIL,
    configuration,
    decisive_settings,
    directory_name,
    generated_at,
    split_ratios,
)
from demo_pipeline.datasets.cudag_files import CudagFiles
from demo_pipeline.datasets.cudag_records import (
    DRAFT_EXCLUSIONS,
    PROVENANCE_COLUMNS,
    RecordDraft,
    record_drafts,
)
from demo_pipeline.datasets.cudag_sidecars import split_report, write_sidecars
from demo_pipeline.datasets.export_loop import (
    Excluded,
    ExportSummary,
    export_records,
    plan_export,
)
from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.datasets.selection import Candidate, DatasetTrajectory
from demo_pipeline.datasets.splits import Split
from demo_pipeline.formats.cudag.split_checks import REPORT_FILE
from demo_pipeline.formats.cudag.tool_calls import escape_markers
from demo_pipeline.formats.desktopd.reader import Trajectory

_DATA = (Split.TRAIN, Split.VAL, Split.HELD_OUT)


def build_cudag(
    trajectories: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> ExportSummary:
    """Write a whole dataset; the same input and settings give the same bytes.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is created, and must be empty.
        settings: see `DatasetSettings`.

    Returns:
        The summary; its details are `name` (of the directory that the dataset should have),
        `trajectories` (planned, by split), `task_counts` (records by task type), `escaped` (number
        of escaped markers in prompts and in tool calls), `empty_splits` (wanted, but without a
        record although there are task groups) and `settings` (see `decisive_settings`).

    Raises:
        FileExistsError: `out` is not empty.
        ValueError: a setting cannot be used in the dataset's name.
    """
    plan = plan_export(trajectories, settings)
    time = generated_at(plan.selection.newest, settings)
    name = directory_name(time, settings)
    _prepare(out)
    with ExitStack() as stack:
        files = CudagFiles(out, settings, stack)
        summary = export_records(plan, CudagExporter(files, settings))
        files.end_tests()
    _concatenate(out)
    config = configuration(settings, time, files.tasks, plan.splits, files.escaped)
    dump_json(out / "config.json", config)
    write_sidecars(out, files.splits, settings)
    dump_json(out / REPORT_FILE, split_report(plan.splits, settings, summary))
    planned = Counter(plan.splits.splits.values())
    details = {
        "name": name,
        "trajectories": {split.value: planned[split] for split in Split},
        "task_counts": dict(sorted(files.tasks.items())),
        "escaped": dict(files.escaped),
        "empty_splits": _empty_splits(summary, settings) if plan.splits.groups else [],
        SETTINGS_DETAIL: decisive_settings(settings),
    }
    return replace(summary, details=details)


def _empty_splits(summary: ExportSummary, settings: DatasetSettings) -> list[str]:
    ratios = split_ratios(settings)
    return [split for split, ratio in ratios.items() if ratio > 0 and not summary.records[split]]


def _prepare(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise FileExistsError(f"{out.name} is not empty; give a new directory")
    for folder in ("images", "test/images", "test/annotated"):
        (out / folder).mkdir(parents=True)


@dataclass(frozen=True, slots=True)
class CudagExporter:
    """Makes CUDAG records; see `export_loop.Exporter`.

    Attributes:
        files: where they are written.
        settings: the settings that the dataset is made with.
    """

    unit: ClassVar[str] = "records"
    exclusions: ClassVar[Sequence[str]] = DRAFT_EXCLUSIONS
    provenance_columns: ClassVar[Sequence[str]] = PROVENANCE_COLUMNS
    files: CudagFiles
    settings: DatasetSettings

    @property
    def sinks(self) -> Sequence[CudagFiles]:
        """See `export_loop.PartedExporter`."""
        return (self.files,)

    @property
    def instruction_in_prompt(self) -> bool:
        """False when the prompt names the target instead."""
        return self.settings.prompt_style != "grounding"

    def records(
        self, candidate: Candidate, trajectory: Trajectory, rows: Mapping[int, ProvenanceRow]
    ) -> Iterator[RecordDraft | Excluded]:
        """Yield the drafts of a trajectory; see `record_drafts`."""
        if self.instruction_in_prompt:
            self.files.count_prompt_markers(escape_markers(trajectory.task.instruction)[1])
        return record_drafts(trajectory, rows, candidate.hidden, self.settings)

    def write(self, split: Split, record: RecordDraft) -> Excluded | None:
        """Write a record and its image; `missing_frame` when the screenshot cannot be decoded."""
        return None if self.files.write(split, record) else Excluded("missing_frame")


def _concatenate(out: Path) -> None:
    """`data.jsonl` = train + val + held_out, byte for byte."""
    with (out / "data.jsonl").open("wb") as data:
        for split in _DATA:
            path = out / f"{split.value}.jsonl"
            if path.is_file():
                with path.open("rb") as source:
                    shutil.copyfileobj(source, data)
