"""A report to send: one folder of static HTML that opens without a server and without a network.

Belongs here: what the report says, and its pictures. How it looks is `report.html`. It never holds
typed text; with `execution.screens_in_reports` off it holds no screens and no words of a task.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from demo_pipeline import __version__
from demo_pipeline.desktopd.models import TypeParameters
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.files.shown_text import counted
from demo_pipeline.privacy.redaction_stage import open_shown
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.reports.shown_steps import STEP_FACTS, step_picture
from demo_pipeline.review.review_data import ReviewData
from demo_pipeline.review.signals import DEMONSTRATION_SIGNALS, STEP_SIGNALS
from demo_pipeline.review.triage import TRIAGE_STAGE, read_steps
from demo_pipeline.runs.damage import storage_message
from demo_pipeline.runs.export import folder_draft
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.results import contents, left_out_words
from demo_pipeline.runs.stages import training_exports
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.errors import MissingOutput, OutputError
from demo_pipeline.store.store import Store
from demo_pipeline.trajectories.overlay import label_of
from demo_pipeline.trajectories.provenance import ProvenanceRow, recorded_outcome
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory, load
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_WIDTH, _QUALITY = 800, 70  # of a picture: 40 kB on average, and a person can read it
_LONGEST = 12  # bars of a plot

_UNTRIAGED: Mapping[str, Any] = {"doubt": 0, "flagged": False, "signals": []}


@dataclass(frozen=True)
class Written:
    """What was written: demonstrations, steps, pictures, and bytes of all files."""

    demonstrations: int
    steps: int
    pictures: int
    size: int


def write_report(workspace: Workspace, dest: Path) -> Written:
    """Write the report of a store, completely or not at all.

    Args:
        workspace: the store, and the privacy switch of the UI.
        dest: a folder that is empty or does not exist.

    Raises:
        StorageError: `dest` is not empty, or the store cannot be read.
    """
    shows = workspace.settings.execution.screens_in_reports
    store = workspace.store
    queue = {row["id"]: row for row in ReviewData(store, workspace.uploads).queue()["rows"]}
    with folder_draft(dest) as out:
        out.mkdir()
        demonstrations: list[dict[str, Any]] = []
        steps: list[dict[str, Any]] = []
        problems: list[str] = []
        for output in store.outputs(TRAJECTORIES_STAGE.folder):
            row = queue.get(output.rpartition("/")[2], {})
            try:
                told, own = _demonstration(store, output, row, out if shows else None)
            except DemonstrationError as error:
                problems += map(str, error.problems)
            except OutputError as error:
                problems.append(storage_message(error))
            else:
                demonstrations.append(told)
                steps += own
        demonstrations.sort(key=lambda told: (-told["doubt"], told["id"]))
        data = {"demonstrations": demonstrations, "steps": steps}
        (out / "data.js").write_text(f"const DATA = {_script(data)};\n", encoding="utf-8")
        page = _page(workspace, demonstrations, steps, problems, _size(out))
        (out / "index.html").write_text(page, encoding="utf-8")
        size = _size(out)
    pictures = sum(step["picture"] is not None for step in steps)
    return Written(len(demonstrations), len(steps), pictures, size)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _demonstration(
    store: Store, output: str, queued: Mapping[str, Any], out: Path | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A demonstration and its steps as the page shows them.

    Args:
        store: the store.
        output: of the trajectory.
        queued: its row in the queue of reviews: what raises doubts.
        out: where pictures go; None: nothing is shown that was on a screen.
    """
    key = output.rpartition("/")[2]
    doubts: dict[int, Mapping[str, Any]] = {}
    with suppress(MissingOutput):
        folder = store.open(TRIAGE_STAGE.output(key))[0]
        doubts = {row["step_index"]: row for row in read_steps(folder)}
    folder = open_shown(store, key)[0]
    trajectory, rows = load(DatasetTrajectory(key, str(folder)))
    first = rows[trajectory.steps[0].index] if trajectory.steps else {}
    shared = {
        "application": trajectory.task.application,
        "outcome": recorded_outcome(first.get("status"), success=trajectory.result.success),
        "review": queued.get("review", "open"),
    }
    steps = [
        shared | _step(key, step, rows[step.index], out) | _doubt(doubts.get(step.index, {}))
        for step in trajectory.steps
    ]
    told = {
        **shared,
        "id": key,
        "steps": len(steps),
        "seconds": round(trajectory.result.completion_time_ms / 1000),
        "recorded_at": first.get("recorded_at", ""),
        "leaks": sum(step["leak"] != "" for step in steps),
        "instruction": trajectory.task.instruction if out else "",
        **{name: queued.get(name, empty) for name, empty in _UNTRIAGED.items()},
    }
    return told, steps


def _doubt(row: Mapping[str, Any]) -> dict[str, Any]:
    signals = [one.name for one in STEP_SIGNALS if row.get(one.name)]
    return {"signals": signals, "doubt": row.get("doubt", 0)}


def _step(key: str, step: StepFiles, row: ProvenanceRow, out: Path | None) -> dict[str, Any]:
    target = step.action.target_element
    action = step.action
    picture = None
    if out and step.screenshot.is_file():
        picture = f"pictures/{key}/{step.index:03}.jpg"
        (out / picture).parent.mkdir(parents=True, exist_ok=True)
        step_picture(step, row, _WIDTH, _QUALITY).save(out / picture)
    typed = isinstance(action.parameters, TypeParameters)  # whose sentence quotes what was typed
    return {
        "demonstration": key,
        "index": step.index,
        "action": str(action.action_type),
        "label": label_of(action) if out else "",
        "reasoning": (label_of(action) if typed else action.reasoning) if out else "",
        "target": f"{target.role} {target.name}".strip() if out and target else "",
        "leak": ("unavoidable" if row["unavoidable"] else "avoidable") if row["leak"] else "",
        "picture": picture,
        "facts": {name: row[name] for name in STEP_FACTS if row[name] is not None},
    }


def _page(
    workspace: Workspace,
    demonstrations: Sequence[Mapping[str, Any]],
    steps: Sequence[Mapping[str, Any]],
    problems: Sequence[str],
    size: int,
) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("demo_pipeline", "reports"), autoescape=True
    )
    return environment.get_template("report.html").render(
        version=__version__,
        counted=counted,
        megabytes=f"{size / 1e6:.1f}",
        signals=[*STEP_SIGNALS, *DEMONSTRATION_SIGNALS],
        pictures=workspace.settings.execution.screens_in_reports,
        demonstrations=demonstrations,
        steps=steps,
        plots=dict(_plots(demonstrations, steps)),
        datasets=list(_datasets(workspace)),
        quarantined=[
            (
                record.demonstration,
                record.stage,
                [str(Problem.from_dict(one, demonstration="")) for one in record.problems],
            )
            for record in list_quarantine(workspace.store)
        ],
        problems=problems,
    )


def _plots(
    demonstrations: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, list[tuple[str, int, float]]]]:
    """Yield title and bars of each plot: what, how many, and the share of the longest bar."""
    by = "Demonstrations by"
    yield f"{by} outcome", _bars(Counter(told["outcome"] for told in demonstrations))
    yield f"{by} application", _bars(Counter(told["application"] for told in demonstrations))
    yield "Steps by action", _bars(Counter(step["action"] for step in steps))
    frames = Counter(step["facts"]["reason_code"] for step in steps)
    yield "Steps by reason of the frame", _bars(frames)
    trees = Counter(step["facts"]["freshness"] for step in steps)
    yield "Steps by freshness of the tree", _bars(trees)
    yield "Steps by pointer leak", _bars(Counter(step["leak"] or "none" for step in steps))
    signals = Counter(name for step in steps for name in step["signals"])
    yield "Steps by signal of doubt", _bars(signals)
    yield f"{by} review", _bars(Counter(told["review"] for told in demonstrations))


def _bars(counts: Counter[str]) -> list[tuple[str, int, float]]:
    found = counts.most_common(_LONGEST)
    rest = sum(counts.values()) - sum(count for _, count in found)
    found += [("others", rest)] if rest else []
    longest = max((count for _, count in found), default=1)
    return [(name, count, count / longest) for name, count in found]


def _datasets(workspace: Workspace) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the name of each training export, what it holds, and what was left out and why."""
    for export in training_exports().values():
        stage = export.stage
        for output in workspace.store.outputs(stage.folder):
            version = workspace.store.current(output)
            if version is None:
                continue
            summary = version.manifest.summary
            counts = {name: summary[name] for name in stage.counts if name in summary}
            yield export.name, contents(counts), list(left_out_words(summary))


def _script(value: Any) -> str:
    """JSON that a `<script>` may hold: no text in it ends the script or begins a comment."""
    return json.dumps(value, ensure_ascii=True).replace("<", "\\u003c")
