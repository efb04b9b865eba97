"""Exports trajectories as ATIF: every action that can be shown is a call, the others are words.

Belongs here: the steps of a file and the layout. The format is described in `formats.atif`. It has
words for what no screenshot shows, so that no trajectory is cut.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.hardlinks import link_or_copy
from demo_pipeline.common.json_files import dump_json
from demo_pipeline.datasets.cudag_actions import is_last_end_filmed
from demo_pipeline.datasets.export_loop import (
    Excluded,
    ExportSummary,
    export_records,
    plan_export,
)
from demo_pipeline.datasets.hidden_actions import INCOMPLETE, HiddenAction, HiddenReason
from demo_pipeline.datasets.pointer_leaks import LEAK_EXCLUSIONS
from demo_pipeline.datasets.prompts import hidden_words
from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.datasets.selection import Candidate, DatasetTrajectory
from demo_pipeline.datasets.split_files import FileRecord, json_text, replace_surrogates
from demo_pipeline.datasets.splits import Split
from demo_pipeline.datasets.whole_trajectories import (
    NO_STEPS,
    STRETCH_COLUMNS,
    SaidStep,
    readable_size,
    said_step,
    sentence,
    write_losses,
)
from demo_pipeline.formats.answers import AnsweredAction
from demo_pipeline.formats.atif.models import ATIF_FILE, ATIF_LIST, ATIF_VERSION
from demo_pipeline.formats.cudag.tool_calls import escape_markers
from demo_pipeline.formats.desktopd.reader import StepFiles, Trajectory
from demo_pipeline.formats.pixels import Pixel

_NOTES = (
    "A person acted; no model was called. Tools are action types of OSWorld-Desktopd, points are "
    "pixels of the screenshot before the call. A step of the source `system` says in words what "
    "no call can say, because no right screenshot shows it."
)
_REASONS = {"off_screen": HiddenReason.OFF_SCREEN, "missing_frame": HiddenReason.UNDECODABLE}


def build_atif(
    trajectories: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> ExportSummary:
    """Write `<split>/<trajectory>/trajectory.json` with its `images/`, and a list of all.

    `metadata.json` says which steps are words, by reason.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is created.
        settings: what takes part, and the splits.
    """
    plan = plan_export(trajectories, settings)
    with AtifFiles(out) as files:
        exporter = AtifExporter(files, settings)
        summary = export_records(plan, exporter)
    summary = replace(summary, details={"steps": exporter.steps.total()})
    write_losses(out, summary)
    return summary


def atif_call(action: AnsweredAction, _size: Pixel) -> dict[str, Any]:
    """An action as name and arguments of a call; every action can be said."""
    arguments = {
        name: replace_surrogates(value) if isinstance(value, str) else value
        for name, value in action.parameters.model_dump(mode="json").items()
    }
    return {"function_name": action.action_type.value, "arguments": arguments}


class AtifFiles:
    """The files of an export; the list of trajectories is written even when empty.

    Args:
        out: folder to write into; it is created.
    """

    def __init__(self, out: Path) -> None:
        self._out = out

    def __enter__(self) -> Self:
        self._out.mkdir(parents=True, exist_ok=True)
        self._list = (self._out / ATIF_LIST).open("w", encoding="utf-8", newline="\n")
        return self

    def write(self, split: Split, record: FileRecord) -> None:
        """Write a trajectory's file, link its images, and list it."""
        name = record.row["trajectory_id"]
        folder = self._out / split.value / name
        (folder / "images").mkdir(parents=True)
        dump_json(folder / ATIF_FILE, record.line)
        for path, source in record.files.items():
            link_or_copy(source, folder / path)
        file = f"{split.value}/{name}/{ATIF_FILE}"
        entry = {"trajectory_id": name, "split": split.value, "file": file}
        self._list.write(json_text(entry) + "\n")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._list.close()


@dataclass(frozen=True, slots=True)
class AtifExporter:
    """Makes a file of every trajectory; see `export_loop.Exporter`.

    Attributes:
        files: where they go.
        settings: of the datasets.
        steps: how many steps are calls, by split.
    """

    unit: ClassVar[str] = "steps"
    exclusions: ClassVar[Sequence[str]] = (
        *("off_screen", "missing_frame", INCOMPLETE),
        *LEAK_EXCLUSIONS,
        NO_STEPS,
    )
    provenance_columns: ClassVar[Sequence[str]] = (*STRETCH_COLUMNS, "press_ms")
    instruction_in_prompt: ClassVar[bool] = True
    files: AtifFiles
    settings: DatasetSettings
    steps: Counter[Split] = field(default_factory=Counter)

    def records(
        self, candidate: Candidate, trajectory: Trajectory, rows: Mapping[int, ProvenanceRow]
    ) -> Iterator[FileRecord | Excluded]:
        """Yield the file of a trajectory, and an `Excluded` for each step that is words."""
        shown = [
            INCOMPLETE
            if step.index in candidate.incomplete
            else said_step(step, rows[step.index], self.settings, atif_call)
            for step in trajectory.steps
        ]
        yield from (Excluded(said) for said in shown if isinstance(said, str))
        calls = [said for said in shown if isinstance(said, SaidStep)]
        if not calls:
            yield Excluded(NO_STEPS)
            return
        turns = _Turns(trajectory)
        for step, said in zip(trajectory.steps, shown, strict=True):
            for hidden in candidate.hidden.before(step.index):
                turns.add_words(hidden_words(hidden), hidden.press_ms)
            press_ms = rows[step.index]["press_ms"]
            if isinstance(said, SaidStep):
                turns.add_call(said, press_ms)
            else:
                turns.add_words(_words(step, said), press_ms)
        later = candidate.hidden.before(len(trajectory.steps))
        filmed = list(takewhile(lambda one: one.reason != HiddenReason.AFTER_VIDEO, later))
        for hidden in filmed:
            turns.add_words(hidden_words(hidden), hidden.press_ms)
        ended = is_last_end_filmed(trajectory.steps, rows)
        if ended and readable_size(trajectory.final_screenshot):
            turns.show(trajectory.final_screenshot, "final")
        for hidden in later[len(filmed) :]:
            turns.add_words(hidden_words(hidden), hidden.press_ms)
        line = _document(trajectory, turns.steps, rows[trajectory.steps[0].index])
        prompt = turns.instruction
        name = {"trajectory_id": line["trajectory_id"], "calls": len(calls)}
        yield FileRecord(line, name, prompt, calls[0].files.screenshot, turns.images)

    def write(self, split: Split, record: FileRecord) -> None:
        """Write a trajectory."""
        self.files.write(split, record)
        self.steps[split] += record.row["calls"]


def _words(step: StepFiles, reason: str) -> str:
    """What a step did that no right screenshot shows: never where, never what text."""
    known = HiddenAction(step.index, 0, step.action.action_type, 0, _REASONS.get(reason, reason))
    return hidden_words(known).removesuffix(" out of sight")


class _Turns:
    """The steps of a file as they come, and the images that they name.

    A screen is shown by the step before it: the person's question, a call, or words.
    """

    def __init__(self, trajectory: Trajectory) -> None:
        self.instruction = escape_markers(replace_surrogates(trajectory.task.instruction))[0]
        asked = [{"type": "text", "text": self.instruction}]
        self.steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": asked}]
        self.images: dict[str, Path] = {}

    def add_call(self, step: SaidStep, press_ms: int) -> None:
        """Show the step's screen, and add its call."""
        self.show(step.files.screenshot, f"{step.files.index:03d}")
        call = {"tool_call_id": f"call_{step.files.index:04d}", **step.said}
        self._add(sentence(step.files.action), press_ms)
        extra = {"step_index": step.files.index}
        self.steps[-1] |= {"source": "agent", "tool_calls": [call], "llm_call_count": 0}
        self.steps[-1]["extra"] = extra

    def add_words(self, words: str, press_ms: int) -> None:
        """Add what was done, in words."""
        self._add(f"Not shown: {words}.", press_ms)

    def _add(self, message: str, press_ms: int) -> None:
        time = datetime.fromtimestamp(press_ms / 1000, UTC).isoformat(timespec="milliseconds")
        step = {"step_id": len(self.steps) + 1, "timestamp": time, "source": "system"}
        self.steps.append({**step, "message": message})

    def show(self, screenshot: Path, name: str) -> None:
        """Add a screen to the last step."""
        path = f"images/{name}.png"
        self.images[path] = screenshot
        part = {"type": "image", "source": {"media_type": "image/png", "path": path}}
        last = self.steps[-1]
        if last["source"] == "user":
            last["message"].append(part)
            return
        call = [call["tool_call_id"] for call in last.get("tool_calls", ())]
        result = {"source_call_id": call[0]} if call else {}
        last["observation"] = {"results": [{**result, "content": [part]}]}


def _document(
    trajectory: Trajectory, steps: Sequence[Mapping[str, Any]], row: ProvenanceRow
) -> dict[str, Any]:
    name, task = replace_surrogates(trajectory.id), trajectory.task
    extra = {
        "task_id": replace_surrogates(task.task_id),
        "application": replace_surrogates(task.application),
        "platform": row["platform"],
        "success": trajectory.result.success,
    }
    model = trajectory.result.model_info
    agent = {"name": replace_surrogates(model.name), "version": replace_surrogates(model.version)}
    return {
        "schema_version": ATIF_VERSION,
        "session_id": name,
        "trajectory_id": name,
        "agent": agent,
        "steps": steps,
        "notes": _NOTES,
        "extra": extra,
    }
