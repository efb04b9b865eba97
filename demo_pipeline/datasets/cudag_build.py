"""Builds a CUDAG dataset (seed 003) from committed trajectories.

Belongs here: the order of the work and the files. One trajectory is in memory at a time; records go
straight to the files of their split.
"""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from demo_pipeline.common.json_files import dump_json
from demo_pipeline.datasets.cudag_config import (
    configuration,
    directory_name,
    generated_at,
)
from demo_pipeline.datasets.cudag_files import REPORT_FILE, split_report, write_companions
from demo_pipeline.datasets.cudag_images import annotate, image_suffix, place_image, place_picture
from demo_pipeline.datasets.cudag_records import (
    PROVENANCE_COLUMNS,
    STEP_EXCLUSIONS,
    RecordDraft,
    drafts,
)
from demo_pipeline.datasets.selection import Candidate, DatasetTrajectory, Selection, load, select
from demo_pipeline.datasets.split_plan import CrossSplitGuard, plan_splits
from demo_pipeline.datasets.splits import Split, SplitPlan
from demo_pipeline.formats.cudag.tool_calls import escape_markers, render_tool_calls
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import DatasetSettings

_DATA = (Split.TRAIN, Split.VAL, Split.HELD_OUT)


@dataclass(frozen=True, slots=True)
class CudagSummary:
    """What was built.

    Attributes:
        name: directory name that the dataset should have.
        records: by split.
        trajectories: by split.
        task_counts: records by task type, all splits together.
        excluded_trajectories: by reason: failed, aborted, contaminated, unreadable.
        excluded_records: by reason (`STEP_EXCLUSIONS`).
        escaped: markers made harmless: prompts, tool_calls.
        problems: why unreadable trajectories are.
    """

    name: str
    records: dict[str, int]
    trajectories: dict[str, int]
    task_counts: dict[str, int]
    excluded_trajectories: dict[str, int]
    excluded_records: dict[str, int]
    escaped: dict[str, int]
    problems: tuple[Problem, ...]


def build_cudag(
    trajectories: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> CudagSummary:
    """Write a whole dataset; the same input and settings give the same bytes.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is made, and must be empty.
        settings: see `DatasetSettings`.

    Raises:
        FileExistsError: `out` is not empty.
        ValueError: a setting that names the dataset is not fit for a name.
    """
    selection = select(trajectories, settings)
    made = generated_at(selection.newest, settings)
    name = directory_name(made, settings)
    _prepare(out)
    plan = plan_splits(selection, settings)
    with ExitStack() as stack:
        writer = _Writer(out, settings, stack, _sights(selection, plan, settings))
        for candidate in selection.chosen:
            writer.trajectory(candidate, plan.splits[candidate.source.id])
        writer.close_tests()
    _concatenate(out)
    excluded = selection.excluded + Counter(unreadable=len(writer.unreadable))
    config = configuration(settings, made, writer.tasks, plan, writer.escaped)
    dump_json(out / "config.json", config)
    write_companions(out, set(writer.files), settings)
    reasons = {**dict.fromkeys(selection.excluded, 0), **excluded}
    report = split_report(plan, settings, writer.records, reasons, writer.excluded)
    dump_json(out / REPORT_FILE, report)
    return _summary(name, plan, selection, writer, reasons)


def _prepare(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise FileExistsError(f"{out.name} is not empty; give a new directory")
    for folder in ("images", "test/images", "test/annotated"):
        (out / folder).mkdir(parents=True)


def _sights(selection: Selection, plan: SplitPlan, settings: DatasetSettings) -> CrossSplitGuard:
    """What could be shown and asked in two splits: prompts are compared as they are written."""
    splits: dict[str, set[Split]] = {}
    for candidate in selection.chosen:
        prompt = _asked(candidate.instruction, settings)
        splits.setdefault(prompt, set()).add(plan.splits[candidate.source.id])
    instructions = {candidate.instruction for candidate in selection.chosen}
    return CrossSplitGuard(
        frozenset(one for one in instructions if len(splits[_asked(one, settings)]) > 1)
    )


def _asked(instruction: str, settings: DatasetSettings) -> str:
    """The part of a prompt that depends on the instruction: none where targets are named."""
    return "" if settings.prompt_style == "grounding" else escape_markers(instruction)[0]


@dataclass(slots=True)
class _Writer:
    """The open files of a dataset and the counts of what went into them."""

    out: Path
    settings: DatasetSettings
    stack: ExitStack
    sights: CrossSplitGuard
    files: dict[Split, TextIO] = field(init=False)
    records: Counter[Split] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(
        default_factory=lambda: Counter(dict.fromkeys(STEP_EXCLUSIONS, 0))
    )
    escaped: Counter[str] = field(default_factory=lambda: Counter(prompts=0, tool_calls=0))
    unreadable: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = {Split.TEST: "test/test.json", Split.TRAIN: "train.jsonl", Split.VAL: "val.jsonl"}
        self.files = {split: self._open(name) for split, name in names.items()}

    def _open(self, name: str) -> TextIO:
        # Lone surrogates, which no trainer's JSON reader takes, become "?".
        path = self.out / name
        file = path.open("w", encoding="utf-8", errors="replace", newline="\n")
        return self.stack.enter_context(file)

    def trajectory(self, candidate: Candidate, split: Split) -> None:
        """Write the records of one trajectory, or note why it cannot be read."""
        try:
            trajectory, rows = load(candidate.source, PROVENANCE_COLUMNS)
        except DemonstrationError as error:
            self.unreadable.extend(error.problems[:1])
            return
        instruction = trajectory.task.instruction
        if self.settings.prompt_style != "grounding":
            self.escaped["prompts"] += escape_markers(instruction)[1]
        for draft in drafts(trajectory, rows, self.settings, self.excluded):
            if self.sights.leaks(instruction, draft.prompt, draft.screenshot, split):
                self.excluded["split_leak"] += 1
            else:
                self._write(draft, split)

    def _write(self, draft: RecordDraft, split: Split) -> None:
        if split is Split.TEST:
            self._write_test(draft)
        elif not self._write_record(draft, split):
            self.excluded["missing_frame"] += 1
            return
        self.records[split] += 1
        self.tasks[draft.metadata.task_type] += 1
        self.escaped["prompts"] += draft.markers
        self.escaped["tool_calls"] += render_tool_calls(draft.calls)[1]

    def _write_record(self, draft: RecordDraft, split: Split) -> bool:
        suffix = image_suffix(self.settings)
        image = self.out / "images" / f"{draft.id}{suffix}"
        if not place_image(draft.screenshot, image, self.settings):
            return False
        if split not in self.files:
            self.files[split] = self._open("held_out.jsonl")
        self.files[split].write(draft.training_record(suffix).line() + "\n")
        return True

    def _write_test(self, draft: RecordDraft) -> None:
        start = ",\n" if self.records[Split.TEST] else "[\n"
        entry = json.dumps(draft.test().model_dump(mode="json"), ensure_ascii=False)
        self.files[Split.TEST].write(start + entry)
        picture = self.out / "test" / "images" / f"{draft.id}.png"
        place_picture(draft.screenshot, picture, copy=self.settings.images == "copy")
        if draft.metadata.has_coordinate:
            drawn = self.out / "test" / "annotated" / f"{draft.id}_annotated.png"
            annotate(picture, drawn, draft.metadata)

    def close_tests(self) -> None:
        """End the array of tests."""
        self.files[Split.TEST].write("\n]\n" if self.records[Split.TEST] else "[]\n")


def _concatenate(out: Path) -> None:
    """`data.jsonl` = train + val + held_out, byte for byte."""
    with (out / "data.jsonl").open("wb") as data:
        for split in _DATA:
            part = out / f"{split.value}.jsonl"
            if part.is_file():
                with part.open("rb") as source:
                    shutil.copyfileobj(source, data)


def _summary(
    name: str,
    plan: SplitPlan,
    selection: Selection,
    writer: _Writer,
    excluded_trajectories: dict[str, int],
) -> CudagSummary:
    placed = Counter(plan.splits.values())
    return CudagSummary(
        name=name,
        records={split.value: writer.records[split] for split in Split},
        trajectories={split.value: placed[split] for split in Split},
        task_counts=dict(sorted(writer.tasks.items())),
        excluded_trajectories=excluded_trajectories,
        excluded_records=dict(writer.excluded),
        escaped=dict(writer.escaped),
        problems=(*selection.problems, *writer.unreadable),
    )
