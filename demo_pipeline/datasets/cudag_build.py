"""Builds a CUDAG dataset from committed trajectories.

Belongs here: the files of the dataset and the order in which they are written. Records are made
in `cudag_records`.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, TextIO

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
from demo_pipeline.datasets.cudag_images import (
    annotate,
    image_suffix,
    link_or_copy_png,
    write_training_image,
)
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
from demo_pipeline.formats.cudag.sidecars import TEST_RECORDS
from demo_pipeline.formats.cudag.split_checks import REPORT_FILE
from demo_pipeline.formats.cudag.tool_calls import escape_markers, render_tool_calls
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
        exporter = CudagExporter(out, settings, stack)
        summary = export_records(plan, exporter)
        exporter.end_tests()
    _concatenate(out)
    config = configuration(settings, time, exporter.tasks, plan.splits, exporter.escaped)
    dump_json(out / "config.json", config)
    write_sidecars(out, set(exporter.files), settings)
    dump_json(out / REPORT_FILE, split_report(plan.splits, settings, summary))
    planned = Counter(plan.splits.splits.values())
    details = {
        "name": name,
        "trajectories": {split.value: planned[split] for split in Split},
        "task_counts": dict(sorted(exporter.tasks.items())),
        "escaped": dict(exporter.escaped),
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


@dataclass(slots=True)
class CudagExporter:
    """The open files of a dataset and the counts that its configuration shows.

    See `export_loop.Exporter`.
    """

    unit: ClassVar[str] = "records"
    exclusions: ClassVar[Sequence[str]] = DRAFT_EXCLUSIONS
    provenance_columns: ClassVar[Sequence[str]] = PROVENANCE_COLUMNS
    out: Path
    settings: DatasetSettings
    stack: ExitStack
    files: dict[Split, TextIO] = field(init=False)
    tasks: Counter[str] = field(default_factory=Counter)
    escaped: Counter[str] = field(default_factory=lambda: Counter(prompts=0, tool_calls=0))
    tests: int = 0
    test_records: TextIO = field(init=False)

    def __post_init__(self) -> None:
        names = {Split.TEST: "test/test.json", Split.TRAIN: "train.jsonl", Split.VAL: "val.jsonl"}
        self.files = {split: self._open(name) for split, name in names.items()}
        self.test_records = self._open(TEST_RECORDS)

    def _open(self, name: str) -> TextIO:
        # Lone surrogates, which no trainer's JSON reader accepts, become "?".
        path = self.out / name
        file = path.open("w", encoding="utf-8", errors="replace", newline="\n")
        return self.stack.enter_context(file)

    @property
    def instruction_in_prompt(self) -> bool:
        """False when the prompt names the target instead."""
        return self.settings.prompt_style != "grounding"

    def records(
        self, candidate: Candidate, trajectory: Trajectory, rows: Mapping[int, ProvenanceRow]
    ) -> Iterator[RecordDraft | Excluded]:
        """Yield the drafts of a trajectory; see `record_drafts`."""
        if self.instruction_in_prompt:
            self.escaped["prompts"] += escape_markers(trajectory.task.instruction)[1]
        return record_drafts(trajectory, rows, candidate.hidden, self.settings)

    def write(self, split: Split, record: RecordDraft) -> Excluded | None:
        """Write a record and its image; `missing_frame` when the screenshot cannot be decoded."""
        if split is Split.TEST:
            self._write_test(record)
        elif not self._write_record(record, split):
            return Excluded("missing_frame")
        self.tasks[record.metadata.task_type] += 1
        self.escaped["prompts"] += record.markers
        self.escaped["tool_calls"] += render_tool_calls(record.calls)[1]
        return None

    def _write_record(self, draft: RecordDraft, split: Split) -> bool:
        suffix = image_suffix(self.settings)
        image = self.out / "images" / f"{draft.id}{suffix}"
        if not write_training_image(draft.screenshot, image, self.settings):
            return False
        if split not in self.files:
            self.files[split] = self._open("held_out.jsonl")
        self.files[split].write(draft.training_record(suffix).line() + "\n")
        return True

    def _write_test(self, draft: RecordDraft) -> None:
        start = ",\n" if self.tests else "[\n"
        self.tests += 1
        entry = json.dumps(draft.test().model_dump(mode="json"), ensure_ascii=False)
        self.files[Split.TEST].write(start + entry)
        self.test_records.write(draft.training_record(folder="test/").line() + "\n")
        image = self.out / "test" / "images" / f"{draft.id}.png"
        link_or_copy_png(draft.screenshot, image, copy=self.settings.image_mode == "copy")
        if draft.metadata.has_coordinate:
            annotated = self.out / "test" / "annotated" / f"{draft.id}_annotated.png"
            annotate(image, annotated, draft.metadata)

    def end_tests(self) -> None:
        """End the array of tests."""
        self.files[Split.TEST].write("\n]\n" if self.tests else "[]\n")


def _concatenate(out: Path) -> None:
    """`data.jsonl` = train + val + held_out, byte for byte."""
    with (out / "data.jsonl").open("wb") as data:
        for split in _DATA:
            path = out / f"{split.value}.jsonl"
            if path.is_file():
                with path.open("rb") as source:
                    shutil.copyfileobj(source, data)
