"""Exports whole trajectories in AgentNet's form: full lines, and lines with only the code.

Belongs here: what a line holds. The form is described in `formats.agentnet`; the lines with only
the code are what OpenCUA's thought generator reads.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TextIO

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.hardlinks import link_or_copy
from demo_pipeline.datasets.export_loop import Excluded, ExportSummary, export_records
from demo_pipeline.datasets.foreign_actions import AGENTNET_LOSSES, agentnet_code, share_text
from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.datasets.selection import Candidate, DatasetTrajectory
from demo_pipeline.datasets.split_files import (
    ALWAYS_WRITTEN,
    FileRecord,
    json_text,
    replace_surrogates,
)
from demo_pipeline.datasets.splits import Split
from demo_pipeline.datasets.whole_trajectories import (
    STRETCH_COLUMNS,
    STRETCH_EXCLUSIONS,
    UNKNOWN_SYSTEM,
    Stretch,
    end_sentence,
    longest_stretch,
    plan_whole_trajectories,
    sentence,
    write_losses,
)
from demo_pipeline.formats.agentnet.models import AGENTNET_META, CODE_ONLY, IMAGES
from demo_pipeline.formats.cudag.tool_calls import escape_markers
from demo_pipeline.formats.desktopd.reader import Trajectory
from demo_pipeline.formats.desktopd.step_actions import points

# The form's only word for Linux is the name of one distribution.
_SYSTEMS = {"windows": "Windows", "macos": "Darwin", "linux": "Ubuntu"}


def build_agentnet(
    trajectories: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> ExportSummary:
    """Write `train`, `val`, `test` (and `held_out`) as JSON Lines, full and in `code_only/`.

    A line is the longest stretch of a trajectory (see `whole_trajectories`). Beside the lines are
    `images/`, `meta_data_merged.jsonl` with the computer of each task, and `metadata.json` with
    what was left out.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is created.
        settings: what takes part, and the splits.
    """
    plan = plan_whole_trajectories(trajectories, settings)
    with AgentNetFiles(out) as files:
        exporter = AgentNetExporter(files, settings)
        summary = export_records(plan, exporter)
    summary = replace(summary, details={"steps": exporter.steps.total()})
    write_losses(out, summary)
    return summary


class AgentNetFiles:
    """The open files of lines. Train, val and test are written even when empty.

    Args:
        out: folder to write into; it is created.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._stack = ExitStack()
        self._files: dict[str, TextIO] = {}

    def __enter__(self) -> Self:
        (self._out / CODE_ONLY).mkdir(parents=True, exist_ok=True)
        (self._out / IMAGES).mkdir(exist_ok=True)
        for split in ALWAYS_WRITTEN:
            self._open(f"{split.value}.jsonl")
            self._open(f"{CODE_ONLY}/{split.value}.jsonl")
        self._open(AGENTNET_META)
        return self

    def _open(self, name: str) -> TextIO:
        if name not in self._files:
            file = (self._out / name).open("w", encoding="utf-8", newline="\n")
            self._files[name] = self._stack.enter_context(file)
        return self._files[name]

    def write(self, split: Split, record: FileRecord) -> None:
        """Add a line to both forms of a split, and link its images."""
        name = f"{split.value}.jsonl"
        lines = ((name, record.line), (f"{CODE_ONLY}/{name}", _code_only(record.line)))
        for file, line in (*lines, (AGENTNET_META, record.row)):
            self._open(file).write(json_text(line) + "\n")
        for image, source in record.files.items():
            link_or_copy(source, self._out / IMAGES / image)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)


@dataclass(frozen=True, slots=True)
class AgentNetExporter:
    """Makes a line of every trajectory; see `export_loop.Exporter`.

    Attributes:
        files: where the lines go.
        settings: of the datasets.
        steps: how many steps were written, by split.
    """

    unit: ClassVar[str] = "steps"
    exclusions: ClassVar[Sequence[str]] = (*STRETCH_EXCLUSIONS, *AGENTNET_LOSSES, UNKNOWN_SYSTEM)
    provenance_columns: ClassVar[Sequence[str]] = STRETCH_COLUMNS
    instruction_in_prompt: ClassVar[bool] = True
    files: AgentNetFiles
    settings: DatasetSettings
    steps: Counter[Split] = field(default_factory=Counter)

    def records(
        self, candidate: Candidate, trajectory: Trajectory, rows: Mapping[int, ProvenanceRow]
    ) -> Iterator[FileRecord | Excluded]:
        """Yield the line of a trajectory, and an `Excluded` for each step that it does not show."""
        stretch = longest_stretch(candidate, trajectory, rows, self.settings, agentnet_code)
        left_out = stretch.left_out if isinstance(stretch, Stretch) else stretch
        yield from map(Excluded, left_out.elements())
        if isinstance(stretch, Stretch):
            row = rows[stretch.steps[0].files.index]
            if row["platform"] in _SYSTEMS:
                yield _record(stretch, trajectory, row)
            else:
                yield from [Excluded(UNKNOWN_SYSTEM)] * len(stretch.steps)

    def write(self, split: Split, record: FileRecord) -> None:
        """Add a line to the files."""
        self.files.write(split, record)
        codes = [step["value"]["code"] for step in record.line["traj"]]
        self.steps[split] += len(codes) - codes[-1].startswith("computer.terminate(")


def _record(stretch: Stretch, trajectory: Trajectory, row: ProvenanceRow) -> FileRecord:
    task, success = trajectory.task, trajectory.result.success
    name = replace_surrogates(trajectory.id)
    steps, files = [], {}
    for step in stretch.steps:
        places = [share_text(x, y, step.size) for x, y in points(step.files.action)]
        words = sentence(step.files.action, [f"({place})" for place in places])
        image = f"{name}_{step.files.index}.png"
        files[image] = step.files.screenshot
        steps.append((image, replace_surrogates(step.said), words))
    if stretch.final is not None:
        image = f"{name}_{stretch.steps[-1].files.index + 1}.png"
        files[image] = stretch.final
        status = "success" if success else "failure"
        code = f"computer.terminate(status={status!r})"
        steps.append((image, code, end_sentence(success=success)))
    line: dict[str, Any] = {
        "task_id": name,
        "instruction": escape_markers(replace_surrogates(task.instruction))[0],
        "domain": replace_surrogates(task.application),
        "traj": [
            {"index": number, "image": image, "value": {"code": code, "action": words}}
            for number, (image, code, words) in enumerate(steps)
        ],
    }
    if stretch.final is not None:  # what is cut does not show whether the task was done
        line["task_completed"] = success
    computer = {"task_id": name, "system": _SYSTEMS[row["platform"]]}
    shot = stretch.steps[0].files.screenshot
    return FileRecord(line, computer, line["instruction"], shot, files)


def _code_only(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line with what the thought generator reads, and nothing that it is to find out."""
    steps = [
        {"image": step["image"], "value": {"code": step["value"]["code"]}} for step in line["traj"]
    ]
    return {"task_id": line["task_id"], "instruction": line["instruction"], "traj": steps}
