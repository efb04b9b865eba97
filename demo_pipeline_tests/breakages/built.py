"""Builds every asset once, with all exports enabled, and keeps each output and its inputs.

Tests damage copies of these outputs, and run the checks again.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from demo_pipeline.annotations.annotate import annotate_all
from demo_pipeline.annotations.annotation_sources import import_lines
from demo_pipeline.annotations.annotation_stage import ANNOTATIONS_STAGE
from demo_pipeline.problems import DemonstrationError, errors
from demo_pipeline.runs.stages import STAGES, dataset_stages
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import BUILT_IN_EXPORTS
from demo_pipeline.stage import Check, Stage
from demo_pipeline_tests.building import build_stage, run_dataset_stage
from demo_pipeline_tests.golden.outputs import RECORDINGS
from demo_pipeline_tests.runs.test_hidden_actions import add_hidden_actions
from demo_pipeline_tests.sample_workspace import open_workspace, write_demos
from demo_pipeline_tests.simulator.form import ACTS, SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import click, think

BROKEN = "form"  # demonstration whose outputs are damaged by the tests
_TASKS = RECORDINGS.parent / "osworld"


@dataclass(frozen=True)
class Output:
    """An output of a stage.

    Attributes:
        stage: the stage that built the output.
        inputs: inputs of the stage, which the checks receive together with the folder.
        folder: folder with the files of the output.
    """

    stage: Stage[Any]
    inputs: Any
    folder: Path

    def problems(self, folder: Path) -> list[str]:
        """Returns the name and the first error of each check that fails for a folder."""
        failures = []
        for check in self.stage.checks:
            problems = _errors(check, self.inputs, folder)
            if problems:
                failures.append(f"{check.name}: {problems[0]}")
        return failures

    def copy(self, folder: Path) -> Path:
        """Copies the output as hard links, so tests must replace files instead of changing them."""
        return _linked(self.folder, folder)


def _errors(check: Check[Any], inputs: Any, folder: Path) -> Sequence[Any]:
    try:
        return errors(check.run(inputs, folder))
    except DemonstrationError as error:
        return error.problems
    except Exception:  # noqa: BLE001 - a crash does not count; another check must find the damage
        return ()


def build_outputs(root: Path, processed: Path) -> Mapping[str, Output]:
    """Builds all outputs, and returns name of the stage → output.

    For a stage that runs for each demonstration, the output is that of the demonstration `BROKEN`.

    Args:
        root: folder for the new workspace.
        processed: folder of a workspace with other uploads and their trajectories, which is copied.
    """
    shutil.copytree(processed, root, symlinks=True)
    _write_recordings(root / "uploads")
    workspace = open_workspace(root, datasets={"exports": BUILT_IN_EXPORTS})
    workspace = replace(workspace, tasks=_TASKS)
    run_dataset_stage(workspace, TASKS_STAGE)
    outputs: dict[str, Output] = {}
    for upload in sorted((root / "uploads").iterdir()):
        for stage in STAGES:
            if (stage, upload.name) == (ANNOTATIONS_STAGE, BROKEN):
                _annotate(workspace)
            kept = stage
            if upload.name == BROKEN:
                kept = _keeping(stage, outputs, root / "kept")
            try:
                result = build_stage(workspace, kept, upload.name)
                assert result.status in {"made", "unchanged"}, result.checks
            except DemonstrationError:
                assert upload.name == "torn"
                break
    for dataset in dataset_stages():
        kept_dataset = _keeping(dataset, outputs, root / "kept")
        result = run_dataset_stage(workspace, kept_dataset, force=True)
        assert result.status == "made", result.checks
    assert len(outputs) == len(STAGES) + len(dataset_stages())
    return outputs


def _write_recordings(uploads: Path) -> None:
    """Writes recordings of five tasks.

    Among them are all kinds of actions, a failed task, hidden actions, a bad log line and a
    truncated video.
    """
    write_demos(uploads)
    form = script(*ACTS, think(5.0), click("Agree"))
    form = replace(form, title="Fill in the form", objectives=("Open the form", "Fill it in"))
    add_hidden_actions(uploads / BROKEN, write_recording(uploads / BROKEN, form, SMALL))
    with (uploads / BROKEN / "input_log.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"event": "mousemove", "data": {"x": 1\n')
    failed = replace(script(*ACTS[:5]), title="Fail", content="Please fail.", reason="gave up")
    write_recording(uploads / "failed", failed, SMALL)
    shutil.copytree(uploads / "first", uploads / "torn")
    video = uploads / "torn" / "recording.mp4"
    video.write_bytes(video.read_bytes()[:2000])


def _annotate(workspace: Workspace) -> None:
    """Stores annotations from all sources, among them a stale one and two that disagree."""
    defaults = {"demonstration": BROKEN, "source": "model", "author": "m-1"}
    defaults["time"] = "2026-01-05T09:00:00Z"
    lines = [
        {"step": 0, "kind": "step_redundant", "value": False},
        {"step": 0, "kind": "step_redundant", "value": True, "source": "rule", "author": "r/1"},
        {"step": 1, "kind": "observation", "value": "A form.", "prompt": "p/1"},
        {"step": 1, "kind": "observation", "value": "Old.", "judged": "0" * 64},
        {"kind": "difficulty", "value": 3, "source": "human", "author": "ann"},
    ]
    path = Path(workspace.settings.store).with_name("annotations.jsonl")
    path.write_text("".join(json.dumps(defaults | line) + "\n" for line in lines), encoding="utf-8")
    annotate_all(workspace.store, [BROKEN], [import_lines(path)])


def _keeping(stage: Any, outputs: dict[str, Output], kept: Path) -> Any:
    """Returns the stage with one more check, which stores the inputs and files in `outputs`."""

    def keep(inputs: Any, out: Path) -> Sequence[Any]:
        outputs[stage.name] = Output(stage, inputs, _linked(out, kept / stage.name))
        return ()

    return replace(stage, checks=(*stage.checks, Check("kept", "", keep)))


def _linked(source: Path, destination: Path) -> Path:
    """Copies a folder with hard links to the files. Symbolic links keep their targets."""
    shutil.rmtree(destination, ignore_errors=True)
    for path in [source, *_entries(source)]:
        copy = destination / path.relative_to(source)
        if path.is_symlink():
            copy.symlink_to(path.resolve())
        elif path.is_dir():
            copy.mkdir(parents=True)
        else:
            os.link(path, copy)
    return destination


def _entries(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _entries(path)
