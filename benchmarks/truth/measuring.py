"""Runs the pipeline on the recordings with truth, and scores what it says about them."""

import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.truth.figures import Figures, as_json
from benchmarks.truth.scores import Score, score_recording
from demo_pipeline.runs.dataset_outputs import DatasetOutput
from demo_pipeline.runs.demonstration_outputs import demonstration_output
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

HERE = Path(__file__).resolve().parent
RECORDINGS = HERE / "recordings"
FIGURES = HERE / "figures.json"
_PROCESSES = 2


def measure(recordings: Path, root: Path) -> dict[str, Score]:
    """Recording → score; `root` is an empty folder for the store.

    `recordings` has a folder for each recording, with its truth list beside it as `<id>.json`.
    """
    demonstrations = sorted(folder.name for folder in recordings.iterdir() if folder.is_dir())
    graph = Graph(_workspace(recordings, root))
    graph.build(DatasetOutput(graph, TASKS_STAGE))
    with ProcessPoolExecutor(_PROCESSES, mp_context=get_context("spawn")) as pool:
        jobs = {
            name: pool.submit(measure_recording, recordings, root, name) for name in demonstrations
        }
        return {name: job.result() for name, job in jobs.items()}


def measure_recording(recordings: Path, root: Path, demonstration: str) -> Score:
    """Builds a demonstration up to its trajectory, and scores that.

    Raises:
        RefusedError: a stage refuses the recording.
    """
    graph = Graph(_workspace(recordings, root))
    for stage in STAGES[: STAGES.index(TRAJECTORIES_STAGE) + 1]:
        graph.build(demonstration_output(graph, stage, demonstration))
    truth = recordings / f"{demonstration}.json"
    return score_recording(root / "store", recordings / demonstration, truth)


def _workspace(recordings: Path, root: Path) -> Workspace:
    settings = Settings(
        uploads=str(recordings),
        store=str(root / "store"),
        cache=str(root / "cache"),
        osworld_tasks=str(root / "tasks"),
    )
    return Workspace.open(settings)


def read_figures() -> dict[str, Figures]:
    """The recorded figures: recording → figures."""
    if not FIGURES.is_file():
        return {}
    document = json.loads(FIGURES.read_text("utf-8"))
    return {name: Figures(**figures) for name, figures in document.items()}


def write_figures(scores: dict[str, Score]) -> None:
    """Records the figures."""
    figures = {name: score.figures for name, score in scores.items()}
    FIGURES.write_text(json.dumps(as_json(figures), indent=1) + "\n", encoding="utf-8")


def fault_lines(scores: dict[str, Score], recordings: Sequence[str]) -> list[str]:
    """A line for each fault of some recordings."""
    return [f"{name} {fault}" for name in recordings for fault in scores[name].faults]
