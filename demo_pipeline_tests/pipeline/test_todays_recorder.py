"""Recordings in the form of today's recorder give what the documented form gives."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.actions.build_actions import build_actions
from demo_pipeline.common.recording_files import OTHER_FILES
from demo_pipeline.datasets.hidden_actions import read_hidden_actions
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.dataset_runner import run_dataset_stage
from demo_pipeline.pipeline.dataset_stages import INDEX_STAGE
from demo_pipeline.pipeline.demonstration_stages import STAGE_BY_NAME
from demo_pipeline.pipeline.training_stages import CUDAG_STAGE, MESSAGES_STAGE, SFT_STAGE
from demo_pipeline.recording.events import build_events
from demo_pipeline.settings import Settings
from demo_pipeline_tests.golden.outputs import REAL_RECORDINGS
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace, run_all_stages
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import (
    GroundTruth,
    RecordingOptions,
    log_text,
    write_recording,
)
from demo_pipeline_tests.simulator.script import (
    click,
    double_click,
    drag,
    hotkey,
    right_click,
    scroll,
    think,
    type_text,
)
from demo_pipeline_tests.simulator.todays_recorder import rewrite

TYPING = (click("Name"), type_text("Ab, c!"), hotkey("enter"))
POINTING = (click("Agree"), right_click("Rows/c"), scroll("Rows", 2), double_click("Rows/h"))
DRAGGING = (drag("Form/title bar", 60, 40), click("Agree"), scroll("Rows", -1))
VARIANTS: dict[str, RecordingOptions] = {
    "plain": SMALL,
    "macos": replace(SMALL, platform="macos", wheel="recorder"),
    "linux": replace(SMALL, platform="linux", xy_on_buttons=False, wheel="recorder"),
    "variable": replace(
        SMALL, video=replace(SMALL.video, variable=True, video_start_s=1.1), ffmpeg_start_line=True
    ),
}
DATASETS = (INDEX_STAGE, SFT_STAGE, MESSAGES_STAGE, CUDAG_STAGE)


def write_twelve(uploads: Path) -> None:
    """Three demonstrations by each of four recorders, each of its own task."""
    for variant, options in VARIANTS.items():
        for name, acts in (("type", TYPING), ("point", POINTING), ("drag", DRAGGING)):
            made = script(*acts)
            task = {"title": f"{name} by {variant}", "content": f"Please {name} by {variant}."}
            write_recording(uploads / f"{variant}-{name}", replace(made, **task), options)


def built(workspace: Workspace, ids: Sequence[str]) -> dict[str, bytes]:
    """Every file of the trajectories, of the contact sheets and of the datasets."""
    for one in ids:
        statuses = run_all_stages(workspace, one)
        assert set(statuses.values()) == {"made"}, (one, statuses)
    stages = [STAGE_BY_NAME[name].output(one) for name in ("trajectories",) for one in ids]
    for stage in DATASETS:
        assert run_dataset_stage(workspace, stage).status == "made"
    found: dict[str, bytes] = {}
    root = Path(workspace.settings.store)
    for output in [*stages, "dataset", "sft", "messages", "cudag"]:
        folder = (root / output).resolve()
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        found |= {f"{output}/{path.relative_to(folder)}": path.read_bytes() for path in paths}
    return found


def test_twelve_demonstrations_give_the_same_bytes_in_both_forms(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write_twelve(old / "uploads")
    copy_of(old / "uploads", new / "uploads")
    ids = sorted(path.name for path in (old / "uploads").iterdir())
    for one in ids:
        rewrite(new / "uploads" / one, ffmpeg_lines=True)
    before, after = (built(open_workspace(root), ids) for root in (old, new))
    assert len(ids) == 12
    assert sum(name.endswith("action.json") for name in before) >= 36
    assert [name for name in before if before[name] != after.get(name)] == []
    assert before.keys() == after.keys()
