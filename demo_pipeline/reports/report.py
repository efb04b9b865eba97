"""A report to send: a folder of static HTML that opens without a server and without a network.

Collects the contents and the pictures of the report; `report.html` is its template. A report never
contains typed text as text. A report without screens contains no words of a task either.
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
from demo_pipeline.review.review_data import Json, ReviewData
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

_WIDTH = 800  # pixels of a picture, so that a person can read it
_QUALITY = 70  # of its JPEG: 40 kB on average
_MOST_BARS = 12  # of a plot; the rest is one bar

_UNTRIAGED: Mapping[str, Any] = {"doubt": 0, "flagged": False, "signals": []}


@dataclass(frozen=True)
class Written:
    """What `write_report` wrote: demonstrations, steps, pictures, and bytes of all files."""

    demonstrations: int
    steps: int
    pictures: int
    size: int


@dataclass(frozen=True)
class Bar:
    """A bar of a plot: its name, its count, and its length as a share of the longest bar."""

    name: str
    count: int
    share: float


@dataclass(frozen=True)
class DatasetRow:
    """A training dataset: its name, its contents, and the records that it leaves out."""

    name: str
    contents: str
    left_out: list[str]


@dataclass(frozen=True)
class QuarantineRow:
    """A quarantined demonstration: the stage that refused it, and the reasons."""

    demonstration: str
    stage: str
    reasons: list[str]


def write_report(workspace: Workspace, dest: Path, *, screens: bool = True) -> Written:
    """Write the report of a store, completely or not at all.

    Args:
        workspace: the store.
        dest: a folder that is empty or does not exist.
        screens: show screens and words of the tasks.

    Raises:
        StorageError: `dest` is not empty, or the store cannot be read.
    """
    store = workspace.store
    queue = {row["id"]: row for row in ReviewData(store, workspace.uploads).queue()["rows"]}
    with folder_draft(dest) as out:
        demonstrations: list[Json] = []
        steps: list[Json] = []
        problems: list[str] = []
        for output in store.outputs(TRAJECTORIES_STAGE.folder):
            queue_row = queue.get(output.rpartition("/")[2], {})
            try:
                row, own_steps = _demonstration(store, output, queue_row, out if screens else None)
            except DemonstrationError as error:
                problems += map(str, error.problems)
            except OutputError as error:
                problems.append(storage_message(error))
            else:
                demonstrations.append(row)
                steps += own_steps
        demonstrations.sort(key=lambda row: (-row["doubt"], row["id"]))
        data = {"demonstrations": demonstrations, "steps": steps}
        (out / "data.js").write_text(f"const DATA = {_script(data)};\n", encoding="utf-8")
        page = _page(workspace, demonstrations, steps, problems, _size(out), screens=screens)
        (out / "index.html").write_text(page, encoding="utf-8")
        size = _size(out)
    pictures = sum(step["picture"] is not None for step in steps)
    return Written(len(demonstrations), len(steps), pictures, size)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _demonstration(
    store: Store, output: str, queue_row: Mapping[str, Any], out: Path | None
) -> tuple[Json, list[Json]]:
    """A demonstration and its steps, as JSON for the page.

    Args:
        store: of the pipeline.
        output: of the trajectory.
        queue_row: its row in the review queue, with its doubt and signals.
        out: the folder for pictures; None: the page contains nothing that was on a screen.
    """
    key = output.rpartition("/")[2]
    triage: dict[int, Mapping[str, Any]] = {}
    with suppress(MissingOutput):
        folder = store.open(TRIAGE_STAGE.output(key))[0]
        triage = {row["step_index"]: row for row in read_steps(folder)}
    folder = open_shown(store, key)[0]
    trajectory, rows = load(DatasetTrajectory(key, str(folder)))
    first_row: ProvenanceRow = {}
    if trajectory.steps:
        first_row = rows[trajectory.steps[0].index]
    shared = {
        "application": trajectory.task.application,
        "outcome": recorded_outcome(first_row.get("status"), success=trajectory.result.success),
        "review": queue_row.get("review", "open"),
    }
    steps = []
    for step in trajectory.steps:
        triage_row = triage.get(step.index, {})
        signals = [signal.name for signal in STEP_SIGNALS if triage_row.get(signal.name)]
        doubt = {"signals": signals, "doubt": triage_row.get("doubt", 0)}
        steps.append(shared | _step(key, step, rows[step.index], out) | doubt)
    demonstration = {
        **shared,
        "id": key,
        "steps": len(steps),
        "seconds": round(trajectory.result.completion_time_ms / 1000),
        "recorded_at": first_row.get("recorded_at", ""),
        "leaks": sum(step["leak"] != "" for step in steps),
        "instruction": trajectory.task.instruction if out else "",
        **{name: queue_row.get(name, default) for name, default in _UNTRIAGED.items()},
    }
    return demonstration, steps


def _step(key: str, step: StepFiles, row: ProvenanceRow, out: Path | None) -> Json:
    """A step as JSON for the page; its picture is written below `out`."""
    action = step.action
    leak = ""
    if row["leak"]:
        leak = "unavoidable" if row["unavoidable"] else "avoidable"
    step_json: Json = {
        "demonstration": key,
        "index": step.index,
        "action": str(action.action_type),
        "label": "",
        "sentence": "",
        "target": "",
        "leak": leak,
        "picture": None,
        "facts": {name: row[name] for name in STEP_FACTS if row[name] is not None},
    }
    if out is None:
        return step_json
    step_json["label"] = label_of(action)
    step_json["sentence"] = action.reasoning
    if isinstance(action.parameters, TypeParameters):  # its own sentence quotes the typed text
        step_json["sentence"] = f"Type {counted(len(action.parameters.text), 'characters')}."
    if action.target_element:
        step_json["target"] = f"{action.target_element.role} {action.target_element.name}".strip()
    if step.screenshot.is_file():
        picture = f"pictures/{key}/{step.index:03}.jpg"
        (out / picture).parent.mkdir(parents=True, exist_ok=True)
        step_picture(step, row, _WIDTH, _QUALITY).save(out / picture)
        step_json["picture"] = picture
    return step_json


def _page(
    workspace: Workspace,
    demonstrations: Sequence[Mapping[str, Any]],
    steps: Sequence[Mapping[str, Any]],
    problems: Sequence[str],
    size: int,
    *,
    screens: bool,
) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("demo_pipeline", "reports"), autoescape=True
    )
    environment.filters["words"] = _words
    quarantined = []
    for record in list_quarantine(workspace.store):
        reasons = [str(Problem.from_dict(problem, demonstration="")) for problem in record.problems]
        quarantined.append(QuarantineRow(record.demonstration, record.stage, reasons))
    seconds = sum(demonstration["seconds"] for demonstration in demonstrations)
    return environment.get_template("report.html").render(
        version=__version__,
        counted=counted,
        megabytes=f"{size / 1e6:.1f}",
        minutes=f"{seconds / 60:.1f}",
        signals=[*STEP_SIGNALS, *DEMONSTRATION_SIGNALS],
        pictures=screens,
        demonstrations=demonstrations,
        steps=steps,
        plots=_plots(demonstrations, steps),
        datasets=list(_datasets(workspace)),
        quarantined=quarantined,
        problems=problems,
    )


def _words(name: str) -> str:
    """A code as words: `pre_move` → `pre move`."""
    return name.replace("_", " ")


def _plots(
    demonstrations: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]]
) -> dict[str, list[Bar]]:
    """Title → bars of each plot."""
    frames = Counter(step["facts"]["reason_code"] for step in steps)
    trees = Counter(step["facts"]["freshness"] for step in steps)
    leaks = Counter(step["leak"] or "none" for step in steps)
    signals = Counter[str]()
    for step in steps:
        signals.update(step["signals"])
    return {
        "Demonstrations by outcome": _bars(Counter(row["outcome"] for row in demonstrations)),
        "Demonstrations by application": _bars(
            Counter(row["application"] for row in demonstrations)
        ),
        "Demonstrations by review": _bars(Counter(row["review"] for row in demonstrations)),
        "Steps by action": _bars(Counter(step["action"] for step in steps)),
        "Steps by the reason for their frame": _bars(frames),
        "Steps by the freshness of their UI tree": _bars(trees),
        "Steps by leak": _bars(leaks),
        "Steps by signal of doubt": _bars(signals),
    }


def _bars(counts: Counter[str]) -> list[Bar]:
    pairs = counts.most_common(_MOST_BARS)
    rest = sum(counts.values()) - sum(count for _, count in pairs)
    if rest:
        pairs.append(("others", rest))
    longest = max((count for _, count in pairs), default=1)
    return [Bar(name, count, count / longest) for name, count in pairs]


def _datasets(workspace: Workspace) -> Iterator[DatasetRow]:
    for export in training_exports().values():
        stage = export.stage
        for output in workspace.store.outputs(stage.folder):
            version = workspace.store.current(output)
            if version is None:
                continue
            summary = version.manifest.summary
            counts = {name: summary[name] for name in stage.counts if name in summary}
            yield DatasetRow(export.name, contents(counts), list(left_out_words(summary)))


def _script(value: Any) -> str:
    """JSON for a `<script>`: no text in it can end the script or begin a comment."""
    return json.dumps(value, ensure_ascii=True).replace("<", "\\u003c")
