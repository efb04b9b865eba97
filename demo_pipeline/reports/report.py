"""Writes a report as a folder of static HTML, which can be sent and needs no server or network.

Typed text appears only inside screenshots. A report without screenshots also leaves out
instructions and any other text of a task.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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

_WIDTH = 800  # pixels; people can still read the text of a screenshot at this width
_QUALITY = 70  # JPEG quality of screenshots, 0 to 100; a screenshot takes 40 kB on average
_MAX_BARS = 12  # maximum number of bars in a plot, besides the bar `others`


@dataclass(frozen=True)
class WrittenReport:
    """The numbers of demonstrations, steps, screenshots and bytes in a report.

    Attributes:
        pictures: number of screenshots.
        size: total size of all files, bytes.
    """

    demonstrations: int
    steps: int
    pictures: int
    size: int


@dataclass(frozen=True)
class Bar:
    """A bar of a plot. `share` is its length, 0 to 1, relative to the longest bar."""

    name: str
    count: int
    share: float


@dataclass(frozen=True)
class DatasetRow:
    """A training dataset as a row of the page.

    Attributes:
        contents: how many records the dataset has.
        left_out: a phrase for each reason why records were left out.
    """

    name: str
    contents: str
    left_out: list[str]


@dataclass(frozen=True)
class QuarantineRow:
    """A quarantined demonstration as a row of the page: the rejecting stage and its reasons."""

    demonstration: str
    stage: str
    reasons: list[str]


def write_report(workspace: Workspace, dest: Path, *, screens: bool = True) -> WrittenReport:
    """Writes a report about all demonstrations of a store. If it fails, nothing is written.

    Args:
        dest: the folder to write; it must be empty or missing.
        screens: whether the report contains screenshots and the words of tasks.

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
    return WrittenReport(len(demonstrations), len(steps), pictures, size)


def _size(folder: Path) -> int:
    """Returns the total size in bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _demonstration(
    store: Store, output: str, queue_row: Mapping[str, Any], out: Path | None
) -> tuple[Json, list[Json]]:
    """Returns a demonstration and its steps as JSON for the page.

    Args:
        output: name of the trajectory's output in the store.
        queue_row: the demonstration's row in the review queue, with its doubt score.
        out: the folder to which screenshots are written. If None, the page contains nothing that
            was on a screen.
    """
    key = output.rpartition("/")[2]
    triage = _triage_rows(store, key)
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
    leaks = 0
    for step in trajectory.steps:
        triage_row = triage.get(step.index, {})
        signals = [signal.name for signal in STEP_SIGNALS if triage_row.get(signal.name)]
        doubt = {"signals": signals, "doubt": triage_row.get("doubt", 0)}
        step_json = _step(key, step, rows[step.index], out)
        leaks += step_json["leak"] != ""
        steps.append(shared | step_json | doubt)
    demonstration = {
        **shared,
        "id": key,
        "steps": len(steps),
        "seconds": round(trajectory.result.completion_time_ms / 1000),
        "recorded_at": first_row.get("recorded_at", ""),
        "leaks": leaks,
        "instruction": trajectory.task.instruction if out else "",
        "doubt": queue_row.get("doubt", 0),
        "flagged": queue_row.get("flagged", False),
        "signals": queue_row.get("signals", []),
    }
    return demonstration, steps


def _triage_rows(store: Store, key: str) -> dict[int, Mapping[str, Any]]:
    """Maps the index of each step to the step's row of review signals.

    Returns an empty dictionary if the demonstration has no triage.
    """
    try:
        folder = store.open(TRIAGE_STAGE.output(key))[0]
    except MissingOutput:
        return {}
    return {row["step_index"]: row for row in read_steps(folder)}


def _step(key: str, step: StepFiles, row: ProvenanceRow, out: Path | None) -> Json:
    """Returns a step as JSON for the page, and writes its screenshot below `out`.

    Args:
        out: the folder of the report. If None, the JSON contains nothing that was on a screen.
    """
    action = step.action
    leak = ""
    if row["leak"]:
        leak = "unavoidable" if row["unavoidable"] else "avoidable"
    facts = {}
    for name in STEP_FACTS:
        if row[name] is not None:
            facts[name] = row[name]
    step_json: Json = {
        "demonstration": key,
        "index": step.index,
        "action": str(action.action_type),
        "label": "",
        "sentence": "",
        "target": "",
        "leak": leak,
        "picture": None,
        "facts": facts,
    }
    if out is None:
        return step_json
    step_json["label"] = label_of(action)
    step_json["sentence"] = action.reasoning
    # The recorded sentence of a typing step is replaced, because it quotes the typed text.
    if isinstance(action.parameters, TypeParameters):
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
    """Returns the HTML of the page.

    Args:
        workspace: the store, whose datasets and quarantine the page lists.
        demonstrations, steps: all demonstrations and their steps, as returned by `_demonstration`.
        problems: sentences about demonstrations that could not be read.
        size: total size of the other files of the report, bytes.
        screens: whether the report contains screenshots and the words of tasks.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("demo_pipeline", "reports"), autoescape=True
    )
    environment.filters["words"] = _words
    quarantined = []
    for record in list_quarantine(workspace.store):
        reasons = []
        for problem in record.problems:
            reason = Problem.from_dict(problem, demonstration="")
            reasons.append(str(reason))
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
    """Returns a code as words: `pre_move` becomes `pre move`."""
    return name.replace("_", " ")


def _plots(
    demonstrations: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]]
) -> dict[str, list[Bar]]:
    """Returns a dictionary from the title of each plot to its bars."""
    frames = Counter[str]()
    trees = Counter[str]()
    leaks = Counter[str]()
    signals = Counter[str]()
    for step in steps:
        frames[step["facts"]["reason_code"]] += 1
        trees[step["facts"]["freshness"]] += 1
        leaks[step["leak"] or "none"] += 1
        signals.update(step["signals"])
    counts = {
        "Demonstrations by outcome": _count_values(demonstrations, "outcome"),
        "Demonstrations by application": _count_values(demonstrations, "application"),
        "Demonstrations by review": _count_values(demonstrations, "review"),
        "Steps by action": _count_values(steps, "action"),
        "Steps by the reason for their frame": frames,
        "Steps by the freshness of their UI tree": trees,
        "Steps by leak": leaks,
        "Steps by signal of doubt": signals,
    }
    return {title: _bars(counts_of_plot) for title, counts_of_plot in counts.items()}


def _count_values(rows: Sequence[Mapping[str, Any]], name: str) -> Counter[str]:
    """Counts the rows by their value of `name`."""
    return Counter(row[name] for row in rows)


def _bars(counts: Counter[str]) -> list[Bar]:
    """Returns the bars of the most frequent names, longest first, and the bar `others` last."""
    pairs = counts.most_common(_MAX_BARS)
    rest = counts.total() - sum(count for _, count in pairs)
    if rest:
        pairs.append(("others", rest))
    longest = max((count for _, count in pairs), default=1)
    bars = []
    for name, count in pairs:
        share = count / longest
        bars.append(Bar(name, count, share))
    return bars


def _datasets(workspace: Workspace) -> Iterator[DatasetRow]:
    """Yields a row for each training dataset that is published in the store."""
    for export in training_exports().values():
        stage = export.stage
        for output in workspace.store.outputs(stage.folder):
            version = workspace.store.current(output)
            if version is None:
                continue
            summary = version.manifest.summary
            counts = {}
            for name in stage.counts:
                if name in summary:
                    counts[name] = summary[name]
            yield DatasetRow(export.name, contents(counts), list(left_out_words(summary)))


def _script(value: Any) -> str:
    """Returns a value as JSON that is safe inside a `<script>` element."""
    return json.dumps(value, ensure_ascii=True).replace("<", "\\u003c")
