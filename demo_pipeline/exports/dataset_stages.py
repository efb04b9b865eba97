"""The datasets as stages: training exports, of which a form is a line or two, quests and the index.

Belongs here: their declarations. `datasets.exports` names those that are built. What a form's
records and files hold is decided in its module; how a dataset is put together, in `export_loop`.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from demo_pipeline import __version__
from demo_pipeline.datasets import index, quest_files
from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.datasets.export_loop import build_form, form_problems
from demo_pipeline.datasets.record_forms import Form
from demo_pipeline.datasets.sql_views import (
    OF_SPLIT,
    OF_STEPS,
    OF_TRAJECTORIES,
    View,
)
from demo_pipeline.desktopd.validator import validate_dataset
from demo_pipeline.exports import (
    agentnet,
    atif,
    cards,
    cua_lite,
    grounding,
    messages,
    sft,
    step_labels,
    transitions,
)
from demo_pipeline.exports.cards import describe_index
from demo_pipeline.exports.cudag import dataset as cudag
from demo_pipeline.exports.cudag.validator import validate_cudag, validate_cudag_file
from demo_pipeline.exports.dataset_statistics import cudag_record_counts, table_record_counts
from demo_pipeline.exports.hub_layout import HubTable
from demo_pipeline.files.comparison import differing_files
from demo_pipeline.osworld.task import examine_task_file
from demo_pipeline.osworld.task_files import is_task_folder, validate_task_folder
from demo_pipeline.problems import Problem
from demo_pipeline.stage import (
    Check,
    Need,
    SourceInput,
    Stage,
    Summary,
    TrainingExport,
    ValidatedFormat,
    built_again,
)

Validate = Callable[[Path], Sequence[Problem]]
_COMPARED = "Its records are those of the demonstrations; ids are unique, splits share no task."


def _built(
    form: Form, card: cards.CardKind | None
) -> tuple[
    Callable[[DatasetInputs, Path], Summary], Callable[[DatasetInputs, Path], Sequence[Problem]]
]:
    """What builds a dataset with its card, and what compares it with the records."""

    def build(inputs: DatasetInputs, out: Path) -> Summary:
        committed, settings = inputs.committed, inputs.settings.datasets
        summary = build_form(form, committed.trajectories, out, settings, inputs.written)
        if card is not None:
            cards.describe(card, out, settings, committed.provenance, summary.left_out)
        inputs.written.note_files(out)
        return summary.as_dict()

    def compare(inputs: DatasetInputs, out: Path) -> Sequence[Problem]:
        trajectories, settings = inputs.committed.trajectories, inputs.settings.datasets
        return form_problems(form, trajectories, out, settings, inputs.written)

    return build, compare


def form_export(
    form: Form,
    name: str,
    folder: str,
    description: str,
    *,
    kinds: Collection[str],
    check: str,
    files: tuple[str, ...],
    validate: Validate,
    counted: str,
    records: Callable[[Path], Mapping[str, int]] | None = None,
    validate_file: Validate | None = None,
    card: cards.CardKind | None = None,
    checks: tuple[Check[DatasetInputs], ...] = (),
    format_keys: Mapping[str, Any] | None = None,
    counts: tuple[str, ...] = ("records",),
    **more: Any,
) -> TrainingExport[DatasetInputs]:
    """The stage of a form's dataset; the arguments are those of the stage and of its parts.

    `check` compares the dataset with the records; `records` reads the files `counted`: tables.
    """
    build, compare = _built(form, card)
    stage = Stage(
        name=name,
        folder=folder,
        description=description,
        kinds=frozenset(kinds),
        code_version=form.code_version,
        section=lambda settings: settings.datasets,
        build=build,
        checks=(*checks, Check(check, _COMPARED, compare, compared=counts)),
    )
    return TrainingExport(
        stage=stage,
        name=form.name,
        files=counted,
        records=records or partial(table_record_counts, pattern=counted),
        kept=form.file,
        validated_as=ValidatedFormat(
            name=form.name,
            files=files,
            validate=lambda path, _: ((validate_file or validate) if path.is_file() else validate)(
                path
            ),
            **{"decisive": True, **(format_keys or {})},
        ),
        **more,
    )


def replaced_directories(
    inputs: DatasetInputs, directory: str, published: Collection[str]
) -> list[str]:
    """The published directories that a new one replaces: of its prefix and user, at another time.

    Args:
        inputs: for the setting `keep_previous`, with which there are none.
        directory: name of the new output.
        published: names of the stage's published outputs.
    """
    if inputs.settings.datasets.keep_previous:
        return []
    return [name for name in published if name != directory and _family(name) == _family(directory)]


def verify_one_configuration(inputs: DatasetInputs, _out: Path) -> list[Problem]:
    """A problem for each directory of the same prefix and user that other settings have made.

    Directories of another code version are not compared: an update may change a default.
    """
    settings = inputs.settings.datasets
    family, wanted = f"{settings.name_prefix}--{settings.user}", cudag.decisive_settings(settings)
    problems = []
    for name, version in inputs.published.items():
        is_comparable = version.manifest.recipe.code_version == inputs.code_version
        built = version.manifest.summary.get(cudag.SETTINGS_DETAIL)
        is_family = _family(name.rpartition("/")[2]) == family
        if not is_family or not is_comparable or not isinstance(built, Mapping):
            continue
        if differing := [key for key in wanted if key in built and built[key] != wanted[key]]:
            keys = ", ".join(f"datasets.{key}" for key in differing)
            message = (
                f"{name} has the same prefix and user, but was built with other values of {keys}; "
                "it stays published"
            )
            remedy = (
                "give these settings another datasets.name_prefix, so that both can be told apart"
            )
            problems.append(Problem("other_settings", "config.json", message, remedy=remedy))
    return problems


def _family(directory: str) -> str:
    """Prefix and user of `<prefix>--<user>--<timestamp>`."""
    return directory.rpartition("--")[0]


SFT_EXPORT = form_export(
    sft.SFT_FORM,
    "sft_samples",
    "sft",
    "OSWorld-Desktopd SFT samples: one per step with instruction, screenshot, tree, history, "
    "action and reasoning, together and by split. Failed demonstrations are left out and counted.",
    kinds=("json", "parquet"),
    check="sft_schema",
    files=("samples.jsonl",),
    validate=sft.validate_sft_folder,
    validate_file=sft.validate_sft,
    format_keys={"file_suffix": ".jsonl", "line_key": "input"},
    counted="samples.parquet",
    card=cards.SFT,
    hub_tables=(
        HubTable(
            "sft",
            "a step: instruction, screenshot, tree and earlier actions, with the action that "
            "the person took (OSWorld-Desktopd's SFT samples; nested values are JSON text)",
            pictures=("screenshot",),
            trees=("ui_tree",),
        ),
    ),
    views=(View("sft", "an SFT sample with its split", "sft/samples.parquet"),),
)

MESSAGES_EXPORT = form_export(
    messages.MESSAGES_FORM,
    "messages_dataset",
    "messages",
    "The same steps as chats: lines as qwen-vl-utils and ms-swift read them, tables as TRL, "
    "Axolotl and ms-swift do. The splits are those of the other exports.",
    kinds=("json", "parquet"),
    check="messages_schema",
    files=(messages.SCHEMA_FILE,),
    validate=messages.validate_messages,
    validate_file=messages.validate_messages_file,
    format_keys={"line_key": "messages"},
    counted="*.parquet",
    card=cards.MESSAGES,
    hub_tables=(
        HubTable(
            "messages",
            "a step as a chat: `messages` and `images`; the answer is calls of `computer_use`",
            pictures=("images",),
        ),
    ),
    views=(View("messages", "a chat record with its split", "messages/*.parquet", OF_SPLIT),),
)

CUDAG_EXPORT = form_export(
    cudag.CUDAG_FORM,
    "cudag_dataset",
    "datasets",
    "A CUDAG dataset: data, train and val as JSONL, test with images. No task and no demonstration "
    "is in two splits.",
    kinds=("json",),
    check="cudag_schema",
    files=("data.jsonl", "train.jsonl", "val.jsonl", "config.json", "images", "test"),
    validate=validate_cudag,
    validate_file=validate_cudag_file,
    format_keys={"decisive": False, "line_key": "conversations"},
    counted="*.json*",
    records=cudag_record_counts,
    card=cards.CUDAG,
    checks=(
        Check(
            "one_configuration",
            "No published directory of the same prefix and user was built with other settings.",
            verify_one_configuration,
            compared=("records",),
        ),
    ),
    subfolder=lambda inputs: cudag.dataset_directory_name(
        inputs.committed.trajectories, inputs.settings.datasets
    ),
    replaces=replaced_directories,
)

CUA_LITE_EXPORT = form_export(
    cua_lite.CUA_LITE_FORM,
    "cua_lite_dataset",
    "cua_lite",
    "Whole trajectories in CUA-Lite's form, from which its adapters render the training data of "
    "many agents. A row is the longest stretch of a trajectory that can be shown and said.",
    kinds=("parquet",),
    check="cua_lite_rows",
    files=(cua_lite.LITE_ROOT,),
    validate=cua_lite.validate_cua_lite,
    counted="cua-lite/*.parquet",
    records=cua_lite.cua_lite_record_counts,
    counts=("records", "steps"),
)

AGENTNET_EXPORT = form_export(
    agentnet.AGENTNET_FORM,
    "agentnet_dataset",
    "agentnet",
    "Whole trajectories as AgentNet's JSON Lines: each action as pyautogui code, in the full form "
    "and in that of OpenCUA's thought generator.",
    kinds=("json",),
    check="agentnet_lines",
    files=(agentnet.AGENTNET_META,),
    validate=agentnet.validate_agentnet,
    counted="*.jsonl",
    records=agentnet.agentnet_record_counts,
    counts=("records", "steps"),
)

ATIF_EXPORT = form_export(
    atif.ATIF_FORM,
    "atif_trajectories",
    "atif",
    "Trajectories in the Agent Trajectory Interchange Format 1.8, a file each with its images. "
    "What no screenshot shows is said in words.",
    kinds=("json",),
    check="atif_files",
    files=(atif.ATIF_LIST,),
    validate=atif.validate_atif,
    validate_file=atif.validate_atif_file,
    counted="atif_trajectories.jsonl",
    records=atif.atif_record_counts,
    counts=("records", "steps"),
)

GROUNDING_EXPORT = form_export(
    grounding.GROUNDING_FORM,
    "grounding_dataset",
    "grounding",
    "A screenshot, words that name one element of it, its box and point: the elements of trees "
    "that agree with their screenshot, as far as they can be seen and told apart.",
    kinds=("json", "parquet"),
    check="grounding_schema",
    files=(grounding.GROUNDING_SCHEMA_FILE,),
    validate=grounding.validate_grounding,
    counted="*.parquet",
    card=cards.GROUNDING,
    hub_tables=(
        HubTable(
            "grounding",
            "a named element of a screenshot with its box (`[x1, y1, x2, y2]` in pixels, both "
            "ends inside) and centre",
            pictures=("image",),
            task_categories=("image-text-to-text", "zero-shot-object-detection"),
        ),
    ),
)

TRANSITIONS_EXPORT = form_export(
    transitions.TRANSITIONS_FORM,
    "transitions_dataset",
    "transitions",
    "The screenshot before a step, its action, and the screenshot after it. No transition spans "
    "an action that no screenshot shows.",
    kinds=("parquet",),
    check="transitions_schema",
    files=(transitions.TRANSITIONS_SCHEMA_FILE,),
    validate=transitions.validate_transitions,
    counted="*.parquet",
    card=cards.TRANSITIONS,
    hub_tables=(
        HubTable(
            "transitions",
            "the screenshot before an action, the action as JSON, and the screenshot after it",
            pictures=("before", "after"),
        ),
    ),
)

STEP_LABELS_EXPORT = form_export(
    step_labels.STEP_LABELS_FORM,
    "step_labels_dataset",
    "step_labels",
    "Demonstrations for reward models, in TRL's form of stepwise supervision: a label per step of "
    "those that did their task or were reviewed, and a label per demonstration of all. Failed and "
    "rejected demonstrations are in this export, and in no other.",
    kinds=("parquet",),
    check="step_labels_schema",
    files=(step_labels.STEP_LABELS_SCHEMA_FILE,),
    validate=step_labels.validate_step_labels,
    counted="outcome/*.parquet",
    card=cards.STEP_LABELS,
    hub_tables=(
        HubTable(
            "step_labels",
            "a demonstration, as TRL's stepwise supervision: true says that the task could still "
            "be done after the step, false that a reviewer found it bad; without pictures",
            without=("images",),
            task_categories=("text-classification",),
        ),
        HubTable(
            "outcome_labels",
            "a demonstration, also one that failed, with one label: whether its task was done; "
            "without pictures",
            folder=step_labels.OUTCOME_FOLDER,
            without=("images",),
            task_categories=("text-classification",),
        ),
    ),
)


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
    return quest_files.build_quests(inputs.committed.trajectories, out)


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
            built_again(_run_quests, lambda _, out: quest_files.check_quests(out)),
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
    description="The root of an OSWorld-Desktopd dataset: index.json, metadata.json, the "
    "provenance of all steps in steps.parquet, and links to the exact trajectories. Built after "
    "the training exports: exports.json says which of them hold what of every trajectory.",
    kinds=frozenset({"json", "parquet"}),
    code_version="15",
    section=lambda settings: settings.datasets,
    source=lambda workspace: SourceInput(
        None, {"limits of trajectories": workspace.settings.trajectories.fingerprint()}
    ),
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
)
