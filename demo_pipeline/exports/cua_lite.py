"""Exports whole trajectories in CUA-Lite's form, from which its adapters train many agents.

Belongs here: the turns of a row, what is known about it, and the layout. CUA-Lite has the splits
train and validation; what must not be trained on is a dataset of its own beside it, whose rows are
its validation split. The models are in cua_lite_models.py.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from demo_pipeline.datasets.export_loop import Excluded, ExportSummary, export_records
from demo_pipeline.datasets.selection import Candidate
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.models import points
from demo_pipeline.desktopd.reader import Trajectory
from demo_pipeline.exports.cua_lite_models import COMPUTER, LITE_DONE, LITE_ROOT
from demo_pipeline.exports.cua_lite_validator import LITE_SCHEMA
from demo_pipeline.exports.cudag.models import GENERATOR, to_ru
from demo_pipeline.exports.whole_trajectories import (
    LITE_LOSSES,
    STRETCH_COLUMNS,
    STRETCH_EXCLUSIONS,
    Place,
    SaidStep,
    Stretch,
    lite_actions,
    longest_stretch,
    plan_whole_trajectories,
    sentence,
    write_losses,
)
from demo_pipeline.files.atomic_write import link_or_copy
from demo_pipeline.files.parquet import TableWriter, read_table
from demo_pipeline.files.shown_text import escape_markers, replace_surrogates
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import ProvenanceRow
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory

VARIANT = "demonstrations"
# Split → what is added to the dataset's name, and CUA-Lite's split.
_PLACES: Mapping[Split, tuple[str, str]] = {
    Split.TRAIN: ("", "train"),
    Split.VAL: ("", "validation"),
    Split.TEST: ("-test", "validation"),
    Split.HELD_OUT: ("-held-out", "validation"),
}
_ROWS_IN_MEMORY = 64


class CuaLiteFiles:
    """Writes rows of one platform and task type. The training file is written even when empty.

    Args:
        out: folder that gets `cua-lite/`; it is created.
        name: of the dataset.
        dims: platform and task type.
    """

    def __init__(self, out: Path, name: str, dims: tuple[str, str]) -> None:
        self._out, self._name, self._dims = out, name, dims
        self._stack = ExitStack()
        self._tables: dict[Split, TableWriter] = {}

    def __enter__(self) -> Self:
        self._open(Split.TRAIN)
        return self

    def _open(self, split: Split) -> None:
        added, folder = _PLACES[split]
        home = self._out / LITE_ROOT / f"{self._name}{added}"
        path = home.joinpath(*self._dims, folder, f"{VARIANT}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        table = TableWriter(path, LITE_SCHEMA, _ROWS_IN_MEMORY)
        self._tables[split] = self._stack.enter_context(table)

    def write(
        self,
        split: Split,
        images: Sequence[Path],
        messages: Sequence[Mapping[str, Any]],
        others: Mapping[str, Any],
    ) -> None:
        """Add a row.

        Args:
            split: ours.
            images: PNG files in the order of their indexes; they are linked, each content once.
            messages: the turns.
            others: what is known about the row: `id`, `resolution`, `os` and so on.
        """
        if split not in self._tables:
            self._open(split)
        metadata = {
            "metadata_kind": "cua",
            "dims": list(self._dims),
            "extra_tool_schemas": [],
            "valid_actions": None,
            "others": others,
        }
        row = {
            "images": [self._link(split, image) for image in images],
            "messages": replace_surrogates(json.dumps(messages, ensure_ascii=False)),
            "metadata": replace_surrogates(json.dumps(metadata, ensure_ascii=False)),
        }
        self._tables[split].append_row(row)

    def _link(self, split: Split, image: Path) -> str:
        digest = hashlib.sha256(image.read_bytes()).hexdigest()
        folder = f"{LITE_ROOT}/{self._name}{_PLACES[split][0]}/images/{digest[:2]}"
        path = self._out / folder / f"{digest}.png"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(image, path)
        return f"{folder}/{path.name}"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)


# The form's only word for Linux is the name of one distribution.
LITE_SYSTEMS = {"windows": "windows", "macos": "macos", "linux": "ubuntu"}


def build_cua_lite(
    trajectories: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> ExportSummary:
    """Write `cua-lite/<prefix>/desktop/use/…`, and `metadata.json` with what was left out.

    A row is the longest stretch of a trajectory (see `whole_trajectories`). The splits test and
    held_out are datasets of their own, `<prefix>-test` and `<prefix>-held-out`.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is created.
        settings: what takes part, the splits, `name_prefix`.
    """
    plan = plan_whole_trajectories(trajectories, settings)
    with CuaLiteFiles(out, settings.name_prefix, ("desktop", "use")) as files:
        exporter = CuaLiteExporter(files, settings)
        summary = export_records(plan, exporter)
    summary = replace(summary, details={"steps": exporter.steps.total()})
    write_losses(out, summary)
    return summary


@dataclass(frozen=True, slots=True)
class LiteRecord:
    """A row before its split is known.

    Attributes:
        prompt: the text of the first turn.
        images: in the order of their indexes.
        messages: the turns.
        others: what is known about the row.
        steps: how many steps it shows.
    """

    prompt: str
    images: tuple[Path, ...]
    messages: tuple[Mapping[str, Any], ...]
    others: Mapping[str, Any]
    steps: int

    @property
    def screenshot(self) -> Path:
        """The first image."""
        return self.images[0]


@dataclass(frozen=True, slots=True)
class CuaLiteExporter:
    """Makes a row of every trajectory; see `export_loop.Exporter`.

    Attributes:
        files: where the rows go.
        settings: of the datasets.
        steps: how many steps were written, by split.
    """

    unit: ClassVar[str] = "steps"
    exclusions: ClassVar[Sequence[str]] = (*STRETCH_EXCLUSIONS, *LITE_LOSSES)
    provenance_columns: ClassVar[Sequence[str]] = STRETCH_COLUMNS
    instruction_in_prompt: ClassVar[bool] = True
    files: CuaLiteFiles
    settings: DatasetSettings
    steps: Counter[Split] = field(default_factory=Counter)

    def records(
        self, candidate: Candidate, trajectory: Trajectory, rows: Mapping[int, ProvenanceRow]
    ) -> Iterator[LiteRecord | Excluded]:
        """Yield the row of a trajectory, and an `Excluded` for each step that it does not show."""
        stretch = longest_stretch(candidate, trajectory, rows, self.settings, lite_actions)
        left_out = stretch.left_out if isinstance(stretch, Stretch) else stretch
        yield from map(Excluded, left_out.elements())
        if isinstance(stretch, Stretch):
            yield _record(stretch, trajectory, rows[stretch.steps[0].files.index])

    def write(self, split: Split, record: LiteRecord) -> None:
        """Add a row to the files."""
        self.files.write(split, record.images, record.messages, record.others)
        self.steps[split] += record.steps


def _record(stretch: Stretch, trajectory: Trajectory, row: ProvenanceRow) -> LiteRecord:
    prompt = _prompt(stretch, trajectory)
    asked = [{"type": "image", "index": 0}, {"type": "text", "text": prompt}]
    turns: list[dict[str, Any]] = [{"role": "user", "content": asked}]
    images = [step.files.screenshot for step in stretch.steps]
    ended = stretch.final is not None and trajectory.result.success
    for number, step in enumerate(stretch.steps):
        turns.append(_call(number, step))
        if number + 1 < len(images) or ended:
            turns.append(_result(number))
    if ended and stretch.final is not None:
        images.append(stretch.final)
        turns.append({"role": "assistant", "content": [{"type": "text", "text": LITE_DONE}]})
    others = _others(stretch, trajectory, row)
    return LiteRecord(prompt, tuple(images), tuple(turns), others, len(stretch.steps))


def _prompt(stretch: Stretch, trajectory: Trajectory) -> str:
    """The instruction, and what was done before the first step."""
    text = escape_markers(replace_surrogates(trajectory.task.instruction))[0]
    lines = [f"{number}. {words}" for number, words in enumerate(stretch.before, start=1)]
    return "\n".join([text, "", "Previous actions:", *lines]) if lines else text


def _call(number: int, step: SaidStep) -> dict[str, Any]:
    places = [str(to_ru(x, y, step.size)) for x, y in points(step.files.action)]
    words = sentence(step.files.action, places)
    function = {"name": COMPUTER, "arguments": {"actions": step.said}}
    return {
        "role": "assistant",
        "content": [{"type": "action_description", "text": words}] if words else [],
        "tool_calls": [{"id": _id(number), "type": "function", "function": function}],
    }


def _result(number: int) -> dict[str, Any]:
    shown = [{"type": "image", "index": number + 1}]
    return {"role": "tool", "tool_call_id": _id(number), "content": shown}


def _id(number: int) -> str:
    return f"call_{number:04d}"


def _others(stretch: Stretch, trajectory: Trajectory, row: ProvenanceRow) -> dict[str, Any]:
    success, first, last = trajectory.result.success, stretch.steps[0], stretch.steps[-1]
    known = {
        "id": replace_surrogates(trajectory.id),
        "resolution": list(first.size),
        "os": LITE_SYSTEMS.get(row["platform"]),
        "source": GENERATOR,
        "source_id": replace_surrogates(trajectory.task.task_id),
        "domain": replace_surrogates(trajectory.task.application),
        "first_step": first.files.index,
        "last_step": last.files.index,
        # What is cut does not show whether the task was done.
        "task_completed": success if stretch.final else None,
        "terminate_status": None if success else "failure",
    }
    return {name: value for name, value in known.items() if value is not None}


def cua_lite_record_counts(folder: Path) -> Mapping[str, int]:
    """Records by trajectory of a CUA-Lite export."""
    return Counter(trajectory for trajectory, _ in cua_lite_places(folder))


def cua_lite_places(folder: Path) -> Iterator[Place]:
    """Yield the place of every row; it is the name of the dataset and CUA-Lite's split."""
    for table in sorted((folder / LITE_ROOT).glob("*/*/*/*/*.parquet")):
        name = f"{table.relative_to(folder / LITE_ROOT).parts[0]} {table.parent.name}"
        for text in read_table(table, columns=["metadata"])["metadata"].to_pylist():
            yield json.loads(text)["others"]["id"], name
