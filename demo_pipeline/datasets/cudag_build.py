"""Builds a CUDAG dataset (seed 003) from committed trajectories.

Belongs here: the order of the work and the files. One trajectory is in memory at a time; records go
straight to the files of their split.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from demo_pipeline.datasets.cudag_config import (
    configuration,
    dataset_directory_name,
    directory_name,
    generated_at,
    split_report,
)
from demo_pipeline.datasets.cudag_pictures import annotate, place_picture
from demo_pipeline.datasets.cudag_records import STEP_EXCLUSIONS, Draft, drafts
from demo_pipeline.datasets.selection import (
    Candidate,
    DatasetTrajectory,
    Selection,
    load,
    select,
)
from demo_pipeline.datasets.splits import Split, SplitPlan, assign_splits, connected_groups
from demo_pipeline.formats.cudag import neutralise, render_tool_calls
from demo_pipeline.formats.jsonfile import dump_json
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import DatasetSettings

__all__ = ["CudagSummary", "DatasetTrajectory", "build_cudag", "dataset_directory_name"]

_DATA = (Split.TRAIN, Split.VAL, Split.HELD_OUT)


@dataclass(frozen=True, slots=True)
class CudagSummary:
    """What was built.

    Attributes:
        name: directory name that the dataset should have.
        records: by split.
        trajectories: by split.
        task_counts: records by task type, all splits together.
        excluded_trajectories: by reason: failed, contaminated, unreadable.
        excluded_records: by reason: off_screen, missing_frame, no_tool_call, split_leak.
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
    made = generated_at(trajectories, settings)
    name = directory_name(made, settings)
    _prepare(out)
    selection = select(trajectories, settings)
    plan = _plan(selection, settings)
    with ExitStack() as stack:
        writer = _Writer(out, settings, stack, _instructions_to_watch(selection, plan))
        for candidate in selection.chosen:
            writer.trajectory(candidate, plan.splits[candidate.source.id])
        writer.close_tests()
    _concatenate(out)
    excluded = selection.excluded + Counter(unreadable=len(writer.unreadable))
    config = configuration(settings, made, writer.tasks, plan, writer.escaped)
    dump_json(out / "config.json", config)
    reasons = {**dict.fromkeys(selection.excluded, 0), **excluded}
    dump_json(out / "splits.json", split_report(plan, writer.records, reasons, writer.excluded))
    return _summary(name, plan, selection, writer, reasons)


def _prepare(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise FileExistsError(f"{out.name} is not empty; give a new directory")
    for folder in ("images", "test/images", "test/annotated"):
        (out / folder).mkdir(parents=True)


def _plan(selection: Selection, settings: DatasetSettings) -> SplitPlan:
    chosen = {candidate.source.id: candidate for candidate in selection.chosen}
    groups = connected_groups({key: one.split_groups for key, one in chosen.items()})
    return assign_splits(groups, settings, {key: one.application for key, one in chosen.items()})


def _instructions_to_watch(selection: Selection, plan: SplitPlan) -> frozenset[str]:
    """Instructions that occur in two splits: there the same picture could be asked about twice."""
    first: dict[str, Split] = {}
    watched = set()
    for candidate in selection.chosen:
        prompt, split = neutralise(candidate.instruction)[0], plan.splits[candidate.source.id]
        if first.setdefault(prompt, split) is not split:
            watched.add(prompt)
    return frozenset(watched)


@dataclass(slots=True)
class _Writer:
    """The open files of a dataset and the counts of what went into them."""

    out: Path
    settings: DatasetSettings
    stack: ExitStack
    watched: frozenset[str]
    files: dict[Split, TextIO] = field(init=False)
    records: Counter[Split] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(
        default_factory=lambda: Counter(dict.fromkeys(STEP_EXCLUSIONS, 0))
    )
    escaped: Counter[str] = field(default_factory=lambda: Counter(prompts=0, tool_calls=0))
    unreadable: list[Problem] = field(default_factory=list)
    sights: dict[bytes, Split] = field(default_factory=dict)

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
            trajectory, rows = load(candidate.source)
        except DemonstrationError as error:
            self.unreadable.extend(error.problems[:1])
            return
        instruction, markers = neutralise(trajectory.task.instruction)
        watch = instruction in self.watched
        self.escaped["prompts"] += markers
        for draft in drafts(trajectory, rows, self.settings, self.excluded):
            if watch and self._leaks(draft, split):
                self.excluded["split_leak"] += 1
                continue
            self._write(draft, split)

    def _leaks(self, draft: Draft, split: Split) -> bool:
        """Whether another split already shows the same picture with the same prompt."""
        sight = hashlib.sha256(draft.prompt.encode(errors="replace"))
        sight.update(hashlib.sha256(draft.screenshot.read_bytes()).digest())
        return self.sights.setdefault(sight.digest(), split) is not split

    def _write(self, draft: Draft, split: Split) -> None:
        self.tasks[draft.metadata.task_type] += 1
        self.escaped["tool_calls"] += render_tool_calls(draft.calls)[1]
        if split is Split.TEST:
            self._write_test(draft)
        else:
            if split not in self.files:
                self.files[split] = self._open("held_out.jsonl")
            self.files[split].write(draft.training_record().line() + "\n")
            place_picture(draft.screenshot, self.out / "images" / f"{draft.id}.png")
        self.records[split] += 1

    def _write_test(self, draft: Draft) -> None:
        start = ",\n" if self.records[Split.TEST] else "[\n"
        entry = json.dumps(draft.test().model_dump(mode="json"), ensure_ascii=False)
        self.files[Split.TEST].write(start + entry)
        picture = self.out / "test" / "images" / f"{draft.id}.png"
        place_picture(draft.screenshot, picture)
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
