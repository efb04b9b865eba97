"""Defines the stages of datasets: training exports, OSWorld task files, and the trajectory index.

The module of each export, for example sft.py, defines its rows and files. assemble.py writes
datasets, and dataset_comparison.py checks them.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from demo_pipeline import __version__
from demo_pipeline.datasets import index, quest_files
from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.datasets.index_checks import compare_index
from demo_pipeline.datasets.selection import judged_success
from demo_pipeline.datasets.splits import Split
from demo_pipeline.datasets.sql_views import (
    OF_STEPS,
    OF_TRAJECTORIES,
    View,
)
from demo_pipeline.desktopd.validator import validate_dataset
from demo_pipeline.exports.assemble import build_form
from demo_pipeline.exports.cards import describe_form, describe_index
from demo_pipeline.exports.dataset_comparison import form_problems
from demo_pipeline.exports.export_summary import BY_TRAJECTORY, CardFacts
from demo_pipeline.exports.form import Form
from demo_pipeline.exports.record_checks import validate_form, validate_form_file
from demo_pipeline.files.atomic_write import link_or_copy
from demo_pipeline.files.json_files import dump_json, load_json
from demo_pipeline.osworld.task import examine_task_file
from demo_pipeline.osworld.task_files import is_task_folder, validate_task_folder
from demo_pipeline.problems import Problem
from demo_pipeline.settings import DatasetSettings, Settings
from demo_pipeline.stage import (
    Check,
    Need,
    SourceInput,
    Stage,
    Summary,
    TrainingExport,
    ValidatedFormat,
)
from demo_pipeline.store.versions import linked_version
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

_RESULT = "result.json"
_COMPARED = (
    "Every file contains the right records of the demonstrations and is valid in "
    "its format. The ids are unique, and no task is in two splits."
)


def export_of(form: Form) -> TrainingExport[DatasetInputs]:
    """Returns the training export of a `Form`, with stage, validator, Hub tables and SQL views."""

    def build(inputs: DatasetInputs, out: Path) -> Summary:
        committed = inputs.committed
        settings = inputs.settings.datasets
        facts = CardFacts()
        summary = build_form(form, committed.trajectories, out, settings, facts)
        describe_form(
            form,
            out,
            settings,
            (facts, committed.provenance),
            summary,
            privacy=committed.privacy,
            damaged=committed.left_out.get("broken", 0),
        )
        return {**summary.as_dict(), BY_TRAJECTORY: summary.by_trajectory}

    def compare(inputs: DatasetInputs, out: Path) -> Sequence[Problem]:
        trajectories = inputs.committed.trajectories
        return form_problems(form, trajectories, out, inputs.settings.datasets)

    def validate(path: Path, _settings: Settings) -> Sequence[Problem]:
        if path.is_file():
            return (form.validate_file or partial(validate_form_file, form))(path)
        return (form.validate or partial(validate_form, form))(path)

    compared = ("records", "steps") if form.unit == "steps" else ("records",)
    stage = Stage(
        name=form.asset,
        export=form.name,
        folder=form.folder,
        description=form.description,
        kinds=form.kinds,
        code_version=form.code_version,
        section=lambda settings: settings.datasets,
        build=build,
        checks=(Check(form.check, _COMPARED, compare, compared=compared),),
    )
    export = TrainingExport(
        stage=stage,
        name=form.name,
        kept=form.file,
        validated_as=ValidatedFormat(
            name=form.name,
            files=form.marks or (form.files[0].at(Split.TRAIN, DatasetSettings()),),
            validate=validate,
            decisive=form.decisive,
            line_key=form.line_key,
            file_suffix=".jsonl" if form.marks == ("samples.jsonl",) else "",
        ),
        hub_tables=form.hub,
        views=form.views,
    )
    return form.adapted(export)


def _run_index(inputs: DatasetInputs, out: Path) -> Summary:
    """Builds the trajectory index and its card."""
    settings = inputs.settings.datasets
    tool = ("demo_pipeline", __version__)
    trajectories = inputs.committed.trajectories
    summary = index.build_index(trajectories, out, settings, tool, inputs.exports)
    for source in trajectories:
        if (success := judged_success(source)) is not None:
            _write_judged(source, out / "trajectories" / source.id, success=success)
    damaged = inputs.committed.left_out.get("broken", 0)
    describe_index(out, settings, inputs.committed.privacy, damaged=damaged)
    return summary


def _write_judged(source: DatasetTrajectory, out: Path, *, success: bool) -> None:
    """Hard-links the files of a trajectory, and writes a reviewer's verdict to its result.json."""
    for path in source.path.rglob("*"):
        copy = out / path.relative_to(source.path)
        if path.is_file() and copy != out / _RESULT:
            copy.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path, copy)
    message = None if success else "a reviewer says that the task was not done"
    recorded = load_json(source.path / _RESULT)
    dump_json(out / _RESULT, recorded | {"success": success, "error_message": message})


def _verify_index(inputs: DatasetInputs, out: Path) -> list[Problem]:
    """Compares the index with its inputs, and checks that its links lead to the right versions.

    A trajectory version may be stored in several equal folders, and a link may lead to any of them.
    If a reviewer decided whether the task was done, the trajectory is a folder instead of a link.
    """
    committed = inputs.committed
    settings = inputs.settings.datasets
    problems = compare_index(out, committed.trajectories, inputs.exports, settings)
    for source in committed.trajectories:
        name = f"trajectories/{source.id}"
        is_linked = judged_success(source) is None
        if is_linked and linked_version(f"{out}/{name}") != committed.versions[source.id].id:
            message = "does not lead to the trajectory that the index was made of"
            remedy = "build the dataset again"
            problems.append(Problem("broken_link", name, message, remedy=remedy))
    return problems


def _run_quests(inputs: DatasetInputs, out: Path) -> Summary:
    """Writes an OSWorld task file for each quest (recorded task)."""
    return quest_files.build_quests(inputs.committed.trajectories, out)


QUESTS_STAGE: Stage[DatasetInputs] = Stage(
    name="osworld_quests",
    folder="osworld/quests",
    description="Each quest of a demonstration as an OSWorld task file without an evaluator, "
    "in `examples/<application>/`. `test_all.json` lists the files.",
    kinds=frozenset({"json"}),
    code_version="17",
    section=lambda settings: settings.datasets,
    build=_run_quests,
    checks=(
        Check(
            "quest_files",
            "Every quest is a valid OSWorld task file whose evaluator is null, and is "
            "listed in `test_all.json`.",
            lambda inputs, out: quest_files.check_quests(out, inputs.committed.trajectories),
            compared=("tasks",),
        ),
    ),
)
QUESTS_FORMAT = ValidatedFormat(
    name="osworld",
    files=("examples", "test_all.json"),
    validate=lambda path, _: (
        validate_task_folder(path) if path.is_dir() else examine_task_file(path)[1]
    ),
    recognises=is_task_folder,
    file_suffix=".json",
)


INDEX_STAGE: Stage[DatasetInputs] = Stage(
    name="trajectory_index",
    folder="dataset",
    description="The root of an OSWorld-Desktopd dataset: index.json, metadata.json, tables "
    "of trajectories and steps, and links to the trajectories. It is built after "
    "the training exports, and exports.json has the number of records of each "
    "trajectory in each export.",
    kinds=frozenset({"json", "parquet"}),
    code_version="26",
    section=lambda settings: settings.datasets,
    source=lambda workspace: SourceInput(
        None, {"limits of trajectories": workspace.settings.trajectories.fingerprint()}
    ),
    build=_run_index,
    checks=(
        Check(
            "desktopd_dataset",
            "Index, metadata and tables agree with the trajectories, and the links lead "
            "to these trajectories.",
            _verify_index,
            compared=("trajectories", "steps"),
        ),
        Check(
            "leak_rate",
            "The shares of screenshots that already show the pointer at its target are "
            "within limits, both of all such screenshots and of the avoidable ones.",
            lambda inputs, out: index.check_dataset_leaks(out, inputs.settings.trajectories),
            blocking=False,
            compared=("pointer_actions",),
        ),
    ),
    needs=frozenset({Need.EXPORTS, Need.LINKS}),
)
INDEX_FORMAT = ValidatedFormat(
    name="dataset",
    files=("index.json", "trajectories"),
    validate=lambda path, _: validate_dataset(path),
)
INDEX_VIEWS = (
    View(
        "trajectories",
        "a row for each trajectory: task, application, success and hidden actions",
        "dataset/trajectories.parquet",
        OF_TRAJECTORIES,
    ),
    View(
        "steps",
        "a row for each step: its action, and the origin of its screenshot, tree and target",
        "dataset/steps.parquet",
        OF_STEPS,
    ),
    View(
        "hidden_actions",
        "a row for each action that is not a step because no screenshot shows it",
        "dataset/hidden_actions.parquet",
    ),
    View(
        "exports",
        "a row for each trajectory and training export: split, version and number of records",
        "dataset/exports.parquet",
    ),
)
