"""The datasets that are not training exports: quests and index.

Belongs here: their declarations.
"""

import os
from contextlib import suppress
from pathlib import Path

from demo_pipeline import __version__
from demo_pipeline.datasets import index, osworld_task_files
from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.datasets.sql_views import (
    OF_STEPS,
    OF_TRAJECTORIES,
    View,
)
from demo_pipeline.desktopd.validator import validate_dataset
from demo_pipeline.exports.cards import describe_index
from demo_pipeline.files.comparison import differing_files
from demo_pipeline.osworld.task import examine_task_file
from demo_pipeline.osworld.task_files import is_task_folder, validate_task_folder
from demo_pipeline.problems import Problem
from demo_pipeline.stage import Check, Stage, Summary, ValidatedFormat, built_again


def _run_index(inputs: DatasetInputs, out: Path) -> Summary:
    """The index with its card."""
    settings, tool = inputs.settings.datasets, ("demo_pipeline", __version__)
    trajectories = inputs.committed.trajectories
    summary = index.build_index(trajectories, out, settings, tool, inputs.exports)
    describe_index(out, settings)
    inputs.written.note_files(out)
    return summary


def _verify_index(inputs: DatasetInputs, out: Path) -> list[Problem]:
    """How it differs from what was written, and each link that leads to no trajectory it read."""
    broken = (
        Problem(
            "broken_link",
            f"trajectories/{source.id}",
            "does not lead to the trajectory that the index was made of",
            remedy="build the dataset again",
        )
        for source in inputs.committed.trajectories
        if not _is_same_folder(f"{out}/trajectories/{source.id}", source.folder)
    )
    return [*broken, *differing_files(out, inputs.written.files)]


def _is_same_folder(link: str, folder: str) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samefile(link, folder)  # noqa: PTH121 - of every trajectory
    return False


def _run_quests(inputs: DatasetInputs, out: Path) -> Summary:
    """A task file per demonstration."""
    return osworld_task_files.build_quests(inputs.committed.trajectories, out)


QUESTS_STAGE: Stage[DatasetInputs] = Stage(
    name="osworld_quests",
    folder="osworld/quests",
    description="Each quest as an OSWorld task file without an evaluator, in "
    "`examples/<application>/`, listed by `test_all.json`.",
    kinds=frozenset({"json"}),
    code_version="14",
    section=lambda settings: settings.datasets,
    build=_run_quests,
    checks=(
        Check(
            "quest_files",
            "Every quest is a valid, listed OSWorld task file whose evaluator is null.",
            built_again(_run_quests, lambda _, out: osworld_task_files.check_quests(out)),
            compared=("tasks",),
        ),
    ),
    validated_as=ValidatedFormat(
        name="osworld",
        files=("examples", "test_all.json"),
        validate=lambda path, _: (
            validate_task_folder(path) if path.is_dir() else examine_task_file(path)[1]
        ),
        recognises=is_task_folder,
        file_suffix=".json",
    ),
    counts=("tasks",),
)


INDEX_STAGE: Stage[DatasetInputs] = Stage(
    name="trajectory_index",
    folder="dataset",
    description="The root of an OSWorld-Desktopd dataset: index.json, metadata.json, the "
    "provenance of all steps in steps.parquet, and links to the exact trajectories. Built after "
    "the training exports: exports.json says which of them hold what of every trajectory.",
    kinds=frozenset({"json", "parquet"}),
    code_version="14",
    section=lambda settings: settings.datasets,
    limits={"limits of trajectories": lambda settings: settings.trajectories},
    build=_run_index,
    checks=(
        Check(
            "desktopd_dataset",
            "Index, metadata and tables are what the trajectories give; its links lead to them.",
            _verify_index,
            compared=("trajectories", "steps"),
        ),
        Check(
            "leak_rate",
            "The shares of screenshots that already show the pointer at its target, all and "
            "avoidable ones, are within the limits.",
            lambda inputs, out: index.check_dataset_leaks(out, inputs.settings.trajectories),
            blocking=False,
            compared=("pointer_actions",),
        ),
    ),
    links_trajectories=True,
    validated_as=ValidatedFormat(
        name="dataset",
        files=("index.json", "trajectories"),
        validate=lambda path, _: validate_dataset(path),
    ),
    views=(
        View(
            "trajectories",
            "a trajectory: task, application, success, completeness",
            "dataset/trajectories.parquet",
            OF_TRAJECTORIES,
        ),
        View(
            "steps",
            "a step: what was done, and where its screenshot, tree and target came from",
            "dataset/steps.parquet",
            OF_STEPS,
        ),
        View(
            "hidden_actions",
            "an action that is not a step because no screenshot shows it",
            "dataset/hidden_actions.parquet",
        ),
        View(
            "exports",
            "a trajectory in a training export: split, group, version, number of records",
            "dataset/exports.parquet",
        ),
    ),
    counts=("trajectories", "steps"),
    follows_exports=True,
)
