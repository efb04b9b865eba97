"""Exports grounding rows: a screenshot, words that name one of its elements, and where it is.

Belongs here: which steps have a tree that says what their screenshot shows, and the rows.
Which elements are asked for is decided in `grounding_elements`; other forms of the rows are in
`screenspot` and `grounding_lite`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.json_files import JsonFileError, dump_json
from demo_pipeline.datasets.element_names import TypedTexts
from demo_pipeline.datasets.export_loop import (
    Excluded,
    ExportSummary,
    export_records,
    plan_export,
)
from demo_pipeline.datasets.grounding_elements import (
    ELEMENT_EXCLUSIONS,
    ElementLimits,
    GroundingElement,
    choose_elements,
)
from demo_pipeline.datasets.grounding_lite import LiteGroundingFiles
from demo_pipeline.datasets.hidden_actions import INCOMPLETE
from demo_pipeline.datasets.pointer_leaks import LEAK_EXCLUSIONS, leak_exclusion
from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.datasets.screen_nodes import ShownScreen, read_screen_nodes
from demo_pipeline.datasets.screenspot_tasks import ScreenSpotFiles
from demo_pipeline.datasets.selection import Candidate, DatasetTrajectory
from demo_pipeline.datasets.split_files import FileRecord, SplitFiles, replace_surrogates
from demo_pipeline.datasets.splits import Split
from demo_pipeline.formats.cudag.models import cudag_id
from demo_pipeline.formats.desktopd.reader import StepFiles, Trajectory
from demo_pipeline.formats.desktopd.step_actions import TypeParameters
from demo_pipeline.formats.desktopd.vocabulary import CANVAS_HEIGHT, CANVAS_WIDTH, ActionType
from demo_pipeline.formats.grounding.models import (
    GROUNDING_SCHEMA_FILE,
    GroundingRow,
    box_centre,
    inclusive_box,
)
from demo_pipeline.observation.trees.tree_agreement import Agreement

_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("id", pa.string()),
    ("trajectory_id", pa.string()),
    ("step_index", pa.int32()),
    ("application", pa.string()),
    ("platform", pa.string()),
    ("text", pa.string()),
    ("role", pa.string()),
    ("box", pa.list_(pa.int32())),
    ("point", pa.list_(pa.int32())),
    ("image_size", pa.list_(pa.int32())),
    ("image", pa.string()),
)
GROUNDING_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _COLUMNS])
# Why a screenshot gives no row; each stands for one screenshot, `ELEMENT_EXCLUSIONS` for elements.
_SCREEN_EXCLUSIONS = (
    *("missing_frame", INCOMPLETE, *LEAK_EXCLUSIONS, "hidden_typing"),
    *("tree_differs", "tree_unchecked", "scan_after_frame", "unreadable_tree"),
)
_REPEATED = "repeated"  # the same element was asked for at an earlier step


def build_grounding(
    trajectories: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> ExportSummary:
    """Write `<split>.parquet`, `screenspot/`, `cua_lite/`, the schema of a row, and screenshots.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is created.
        settings: what takes part, the splits, `grounding_per_screen` and `grounding_min_side`.
    """
    plan = plan_export(trajectories, settings)
    with ExitStack() as stack:
        files = stack.enter_context(SplitFiles(out, GROUNDING_SCHEMA, json_lines=False))
        entries = stack.enter_context(ScreenSpotFiles(out))
        lite = stack.enter_context(LiteGroundingFiles(out, settings.name_prefix))
        summary = export_records(plan, GroundingExporter(files, entries, lite, settings))
    dump_json(out / GROUNDING_SCHEMA_FILE, GroundingRow.model_json_schema())
    return summary


@dataclass(frozen=True, slots=True)
class GroundingExporter:
    """Makes rows of the elements of every screenshot; see `export_loop.Exporter`."""

    unit: ClassVar[str] = "samples"
    exclusions: ClassVar[Sequence[str]] = (*_SCREEN_EXCLUSIONS, *ELEMENT_EXCLUSIONS, _REPEATED)
    provenance_columns: ClassVar[Sequence[str]] = (
        *("pts", "leak", "unavoidable", "platform"),
        *("tree_age_ms", "lead_ms", "pad_x", "pad_y"),
    )
    instruction_in_prompt: ClassVar[bool] = False
    files: SplitFiles
    entries: ScreenSpotFiles
    lite: LiteGroundingFiles
    settings: DatasetSettings
    _seen: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)

    def records(
        self, candidate: Candidate, trajectory: Trajectory, rows: Mapping[int, ProvenanceRow]
    ) -> Iterator[FileRecord | Excluded]:
        """Yield a row per element that is asked for."""
        self._seen.clear()
        typed = TypedTexts(_typed(trajectory))
        for step in trajectory.steps:
            row = rows[step.index]
            reason = self._screen_exclusion(candidate, step, row)
            screen = None if reason else _screen(step, row)
            if screen is None:
                yield Excluded(reason or "unreadable_tree")
                continue
            elements, left_out = choose_elements(screen, self._limits(row, typed))
            yield from map(Excluded, left_out.elements())
            for element in elements:
                key = (element.text, element.node.box)
                yield (
                    Excluded(_REPEATED)
                    if key in self._seen
                    else _record(candidate, trajectory, step, row, element)
                )
                self._seen.add(key)

    def _screen_exclusion(self, candidate: Candidate, step: StepFiles, row: ProvenanceRow) -> str:
        """Why a step's tree may not say what its screenshot shows; empty when it does."""
        if row["pts"] is None or not step.screenshot.is_file() or not step.ui_tree.is_file():
            return "missing_frame"
        if step.index in candidate.incomplete:
            return INCOMPLETE
        if reason := leak_exclusion(row, self.settings):
            return reason
        before = (one for one in candidate.hidden.actions if one.before_step <= step.index)
        if any(one.action_type == ActionType.TYPE for one in before):
            return "hidden_typing"  # its text is not known, and may be on the screen
        if row["tree_agreement"] != Agreement.AGREES:
            differs = row["tree_agreement"] == Agreement.DIFFERS
            return "tree_differs" if differs else "tree_unchecked"
        age, lead = row["tree_age_ms"], row["lead_ms"]
        return "" if age is not None and lead is not None and age >= lead else "scan_after_frame"

    def _limits(self, row: ProvenanceRow, typed: TypedTexts) -> ElementLimits:
        across, down = round(row["pad_x"]), round(row["pad_y"])
        area = (across, down, CANVAS_WIDTH - across, CANVAS_HEIGHT - down)
        settings = self.settings
        return ElementLimits(
            area, typed, settings.grounding_min_side, settings.grounding_per_screen
        )

    def write(self, split: Split, record: FileRecord) -> None:
        """Add a row in every form."""
        self.files.write(split, record.line, record.row)
        self.entries.write(split, record.row)
        self.lite.write(split, record.row, record.screenshot)
        self.files.link_files(record.files)


def _typed(trajectory: Trajectory) -> Iterator[str]:
    for step in trajectory.steps:
        if isinstance(step.action.parameters, TypeParameters):
            yield step.action.parameters.text


def _screen(step: StepFiles, row: ProvenanceRow) -> ShownScreen | None:
    try:
        return ShownScreen(read_screen_nodes(step.ui_tree), row["platform"])
    except (JsonFileError, LookupError, TypeError, ValueError, AttributeError):
        return None


def _record(
    candidate: Candidate,
    trajectory: Trajectory,
    step: StepFiles,
    source: ProvenanceRow,
    element: GroundingElement,
) -> FileRecord:
    path = step.screenshot.relative_to(candidate.source.path).as_posix()
    image = f"trajectories/{trajectory.id}/{path}"
    left, top, right, bottom = element.node.box
    box = inclusive_box(left, top, right - left, bottom - top)
    text = replace_surrogates(element.text)
    row: dict[str, Any] = {
        "id": f"{cudag_id(trajectory.id)}_{step.index:03d}_{element.node.id}",
        "trajectory_id": replace_surrogates(trajectory.id),
        "step_index": step.index,
        "application": replace_surrogates(trajectory.task.application),
        "platform": source["platform"],
        "text": text,
        "role": element.node.role,
        "box": list(box),
        "point": list(box_centre(box)),
        "image_size": [CANVAS_WIDTH, CANVAS_HEIGHT],
        "image": image,
    }
    return FileRecord({}, row, text, step.screenshot, {image: step.screenshot})
