"""Exports SFT samples of OSWorld-Desktopd: for each step what was seen and what was done.

Belongs here: the samples and their table. Screenshots are named by their path in the dataset, so
that samples are small; trees too, unless `datasets.sft_trees` asks for the trees themselves.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.datasets.export_loop import build_form
from demo_pipeline.datasets.forms import Excluded, Form, Record, Table, json_text
from demo_pipeline.datasets.selection import Candidate
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.models import (
    AGREEMENTS,
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    FRESHNESS,
    ActionType,
    HistoryGap,
)
from demo_pipeline.desktopd.reader import StepFiles, Trajectory
from demo_pipeline.exports.cudag.actions import is_off_screen
from demo_pipeline.exports.prompts import hidden_words
from demo_pipeline.files.column_values import COUNT, TEXT, one_of
from demo_pipeline.files.json_files import JsonFileError, load_json
from demo_pipeline.files.parquet import described_schema
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.pointer_leaks import LEAK_EXCLUSIONS, leak_exclusion
from demo_pipeline.trajectories.provenance import INCOMPLETE, HiddenAction, ProvenanceRow

Tree = dict[str, Any] | str | None
_TREE_COLUMNS = ("freshness", "tree_agreement")  # of the provenance
SAMPLES_FILE = "samples.jsonl"
_COPIED_COLUMNS = ("reasoning_source",)  # of the provenance
_BATCH_CHARACTERS = 64 * 2**20  # of trees in memory; a tree can have millions

# name, type, meaning. Parameters differ by action type, so `action` and `history` are JSON text.
_COLUMNS: tuple[tuple[str, pa.DataType, str], ...] = (
    ("trajectory_id", pa.string(), "demonstration id"),
    ("step_index", pa.int32(), "0-based, as in steps/NNN"),
    ("split", pa.string(), "train, val, test or held_out"),
    ("task_id", pa.string(), "of task.json"),
    ("application", pa.string(), "of task.json"),
    ("action_type", pa.string(), "OSWorld-Desktopd action type"),
    ("instruction", pa.string(), "input.instruction"),
    ("screenshot", pa.string(), "input.screenshot: path in the dataset"),
    ("ui_tree", pa.string(), "input.ui_tree: path, or JSON text; null: tree_agreement is differs"),
    ("history", pa.string(), "input.history as JSON text: a list of actions and gaps"),
    ("action", pa.string(), "output.action as JSON text"),
    ("reasoning", pa.string(), "output.reasoning"),
    ("reasoning_source", pa.string(), "template: the program wrote the reasoning"),
    ("freshness", pa.string(), "of the tree: fresh, stale, changed, running, …"),
    ("tree_agreement", pa.string(), "agrees or differs: tree and screenshot; unknown: unchecked"),
)
SFT_SCHEMA = described_schema(
    [(name, kind, name == "ui_tree", text) for name, kind, text in _COLUMNS],
    {
        "trajectory_id task_id application instruction screenshot ui_tree": TEXT,
        "step_index": COUNT,
        "split": one_of(*Split),
        "action_type": one_of(*ActionType),
        "reasoning_source": one_of("template"),
        "freshness": one_of(*FRESHNESS),
        "tree_agreement": one_of(*AGREEMENTS),
    },
)


def _records(
    candidate: Candidate,
    trajectory: Trajectory,
    rows: Mapping[int, ProvenanceRow],
    settings: DatasetSettings,
) -> Iterator[Record | Excluded]:
    """Yield a sample per step; its history holds all steps and gaps before it."""
    history: list[dict[str, Any]] = []
    for step in trajectory.steps:
        history = [*history, *map(_gap, candidate.hidden.before(step.index))]
        action = step.action.model_dump(mode="json")
        incomplete = step.index in candidate.incomplete
        reason = _exclusion(step, rows[step.index], settings, incomplete=incomplete)
        shows_tree = settings.include_stale_trees or _fits(rows[step.index])
        inline = settings.sft_trees == "object"
        tree: Tree = None if reason or not shows_tree else _tree(step, trajectory, inline=inline)
        if reason or (shows_tree and tree is None):
            yield Excluded(reason or "missing_frame")
        else:
            sample, files = _sample(trajectory, step, (action, history), tree)
            sample |= {name: rows[step.index][name] for name in _TREE_COLUMNS}
            row = {name: rows[step.index][name] for name in _COPIED_COLUMNS}
            row |= _row(sample, trajectory)
            prompt = f"{candidate.instruction}\n{json.dumps(history)}"
            name = f"{trajectory.id}/{step.index:03d}"
            yield Record(name, prompt, step.screenshot, {"line": sample, "row": row}, files)
        history = [*history, action]


# `samples` holds all; `train`, `val`, `test` and, when it has a sample, `held_out` hold the splits.
# Paths are relative to the dataset's root; only files that a sample names are there. Steps off the
# screen, without a frame or with one that leaks avoidably give no sample and stay in the history,
# whose actions are those of action.json; hidden actions are gaps in it. A tree that differs from
# its screenshot is left out unless `include_stale_trees`.
SFT_FORM = Form(
    name="sft",
    code_version="12",
    settings=(
        *("max_hidden_share", "include_avoidable_leaks", "include_unavoidable_leaks"),
        *("include_stale_trees", "sft_trees"),
    ),
    unit="samples",
    exclusions=("off_screen", "missing_frame", INCOMPLETE, *LEAK_EXCLUSIONS),
    records=_records,
    files=lambda split, _: {
        "line": (SAMPLES_FILE, f"{split.value}.jsonl"),
        "row": ("samples.parquet", f"{split.value}.parquet"),
    },
    tables=lambda _: {"row": Table(SFT_SCHEMA, characters=_BATCH_CHARACTERS)},
    row=lambda row, split, _settings, _folder: {**row, "split": split.value},
)
build_sft = partial(build_form, SFT_FORM)


def _exclusion(
    step: StepFiles, row: ProvenanceRow, settings: DatasetSettings, *, incomplete: bool
) -> str:
    """Why a step gives no sample, the first reason that holds; empty when it gives one."""
    if is_off_screen(step.action, row, (CANVAS_WIDTH, CANVAS_HEIGHT)):
        return "off_screen"
    if row["pts"] is None or not step.screenshot.is_file() or not step.ui_tree.is_file():
        return "missing_frame"
    return INCOMPLETE if incomplete else leak_exclusion(row, settings)


def _gap(action: HiddenAction) -> dict[str, Any]:
    """A hidden action as the history has it."""
    return HistoryGap(reasoning=f"Not shown: {hidden_words(action)}.").model_dump(mode="json")


def _fits(row: ProvenanceRow) -> bool:
    return bool(row["tree_agreement"] != "differs")


def _tree(step: StepFiles, trajectory: Trajectory, *, inline: bool) -> Tree:
    """The tree that the sample holds, or the name of its file; None when it cannot be read."""
    if not inline:
        return f"{_folder(trajectory, step)}/{step.ui_tree.name}"
    try:
        tree: dict[str, Any] = load_json(step.ui_tree)
    except JsonFileError:
        return None
    return tree


def _folder(trajectory: Trajectory, step: StepFiles) -> str:
    return f"trajectories/{trajectory.id}/steps/{step.folder.name}"


def _sample(
    trajectory: Trajectory,
    step: StepFiles,
    actions: tuple[dict[str, Any], list[dict[str, Any]]],
    tree: Tree,
) -> tuple[dict[str, Any], dict[str, Path]]:
    """The sample of a step, as `SftSample` describes it, and the files that it names.

    Args:
        trajectory: the trajectory.
        step: the step.
        actions: the step's action, and those of the steps before it.
        tree: the tree, or the name of its file; None: the sample has none.
    """
    screenshot = f"{_folder(trajectory, step)}/{step.screenshot.name}"
    files = {screenshot: step.screenshot}
    if isinstance(tree, str):
        files[tree] = step.ui_tree
    action, history = actions
    sample = {
        "input": {
            "instruction": trajectory.task.instruction,
            "screenshot": screenshot,
            "ui_tree": tree,
            "history": history,
        },
        "output": {"action": action, "reasoning": step.action.reasoning},
    }
    return sample, files


def _row(sample: Mapping[str, Any], trajectory: Trajectory) -> dict[str, Any]:
    """The sample as a row of `SFT_SCHEMA`, without its split and the copied columns."""
    given, action = sample["input"], sample["output"]["action"]
    tree = given["ui_tree"]
    texts = {
        "trajectory_id": trajectory.id,
        "task_id": trajectory.task.task_id,
        "application": trajectory.task.application,
        "action_type": action["action_type"],
        "instruction": given["instruction"],
        "screenshot": given["screenshot"],
        "history": json.dumps(given["history"], ensure_ascii=False),
        "action": json.dumps(action, ensure_ascii=False),
        "reasoning": sample["output"]["reasoning"],
        **{name: sample[name] for name in _TREE_COLUMNS},
    }
    shown = tree if tree is None or isinstance(tree, str) else json_text(tree)
    return {
        "step_index": action["step_index"],
        "ui_tree": None if shown is None else replace_surrogates(shown),
        **{k: replace_surrogates(v) for k, v in texts.items()},
    }
