"""The training exports of steps: SFT samples, chats and the CUDAG dataset.

Belongs here: their declarations. What they write is decided in the modules of their names.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from demo_pipeline.datasets.dataset_inputs import DatasetInputs, built
from demo_pipeline.datasets.splits import Split
from demo_pipeline.datasets.views import (
    OF_SPLIT,
    View,
)
from demo_pipeline.exports import export_checks, messages, sft
from demo_pipeline.exports.cards import describe_cudag, describe_messages, describe_sft
from demo_pipeline.exports.cudag import dataset
from demo_pipeline.exports.cudag.dataset import (
    SETTINGS_DETAIL,
    dataset_directory_name,
    decisive_settings,
)
from demo_pipeline.exports.cudag.validator import validate_cudag, validate_cudag_file
from demo_pipeline.exports.dataset_counts import (
    cudag_record_counts,
    messages_record_counts,
    messages_stats,
    sft_record_counts,
    sft_stats,
)
from demo_pipeline.exports.hub_layout import HubTable
from demo_pipeline.exports.messages import SCHEMA_FILE, committed_schema
from demo_pipeline.exports.messages_validator import validate_messages, validate_messages_file
from demo_pipeline.exports.sft_validator import validate_sft, validate_sft_folder
from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.parquet import schema_problems
from demo_pipeline.problems import Problem, errors
from demo_pipeline.stage import Check, Stage, TrainingExport, ValidatedFormat
from demo_pipeline.store.version_manifest import Version

EXPORT_LOOP_VERSION = "11"  # of the stages that export trajectories: they share the export loop


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
    family = f"{settings.name_prefix}--{settings.user}"
    problems = []
    for name, version in inputs.published.items():
        is_comparable = version.manifest.recipe.code_version == inputs.code_version
        if _family(name.rpartition("/")[2]) != family or not is_comparable:
            continue
        if names := ", ".join(_differing(version, decisive_settings(settings))):
            problems.append(_other_settings(name, names))
    return problems


def _other_settings(directory: str, names: str) -> Problem:
    return Problem(
        "other_settings",
        "config.json",
        f"{directory} has the same prefix and user, but was built with other values of {names}; "
        "it stays published",
        remedy="give these settings another datasets.name_prefix, so that both can be told apart",
    )


def _differing(version: Version, wanted: Mapping[str, object]) -> Iterator[str]:
    built = version.manifest.summary.get(SETTINGS_DETAIL)
    if isinstance(built, Mapping):
        for name, value in wanted.items():
            if name in built and built[name] != value:
                yield f"datasets.{name}"


def _family(directory: str) -> str:
    """Prefix and user of `<prefix>--<user>--<timestamp>`."""
    return directory.rpartition("--")[0]


def _verify_sft(inputs: DatasetInputs, out: Path) -> list[Problem]:
    """The samples against their format, and no task in two splits."""
    found = validate_sft_folder(out, out)
    committed, settings = inputs.committed.trajectories, inputs.settings.datasets
    found += export_checks.linked_file_problems(out, committed, sft.SFT_FILES)
    found += export_checks.trajectory_problems({"": out / "samples.parquet"}, committed, settings)
    for table in sorted(out.glob("*.parquet")):
        found += schema_problems(table, sft.SFT_SCHEMA)
    return found if errors(found) else [*found, *sft_stats(out, inputs.committed.provenance)[1]]


def _verify_messages(inputs: DatasetInputs, out: Path) -> list[Problem]:
    """The chats against their format, and no task in two splits."""
    found = validate_messages(out)
    committed, settings = inputs.committed.trajectories, inputs.settings.datasets
    found += export_checks.linked_file_problems(out, committed, messages.MESSAGES_FILES)
    found += differing_files(out, {SCHEMA_FILE: json_bytes(committed_schema())}, None)
    tables = {split.value: out / f"{split}.parquet" for split in Split}
    found += export_checks.trajectory_problems(tables, committed, settings)
    if errors(found):
        return found
    return [*found, *messages_stats(out, inputs.committed.provenance)[1]]


def _verify_cudag(inputs: DatasetInputs, out: Path) -> list[Problem]:
    """The directory against its format; its name is only right once it is published."""
    found = validate_cudag(out)
    committed, settings = inputs.committed.trajectories, inputs.settings.datasets
    for folder in (out / "images", out / "test" / "images"):
        found += export_checks.numbered_picture_problems(folder, committed)
    found += export_checks.linked_file_problems(out, committed, dataset.CUDAG_FILES)
    if not errors(found):
        found += dataset.configuration_problems(out, committed, settings)
    return [problem for problem in found if problem.code != "directory_name"]


SFT_STAGE: Stage[DatasetInputs] = Stage(
    name="sft_samples",
    folder="sft",
    description="OSWorld-Desktopd SFT samples: one per step with instruction, screenshot, tree, "
    "history, action and reasoning, together and by split. Failed demonstrations are left out "
    "and counted.",
    kinds=frozenset({"json", "parquet"}),
    code_version=EXPORT_LOOP_VERSION,
    section=lambda settings: settings.datasets,
    build=built(sft.build_sft, describe_sft),
    checks=(
        Check(
            "sft_schema",
            "Every line is a valid SFT sample whose screenshot and tree exist.",
            _verify_sft,
            compared=("records",),
        ),
    ),
    export=TrainingExport(
        name="sft",
        files="samples.parquet",
        records=sft_record_counts,
        all_written=True,
        hub_tables=(
            HubTable(
                "sft",
                "a step: instruction, screenshot, tree and earlier actions, with the action that "
                "the person took (OSWorld-Desktopd's SFT samples; nested values are JSON text)",
                pictures=("screenshot",),
                trees=("ui_tree",),
            ),
        ),
    ),
    validated_as=ValidatedFormat(
        name="sft",
        files=("samples.jsonl",),
        validate=lambda path, _: validate_sft_folder(path) if path.is_dir() else validate_sft(path),
        decisive=True,
        file_suffix=".jsonl",
        line_key="input",
    ),
    views=(View("sft", "an SFT sample with its split", "sft/samples.parquet"),),
    counts=("records",),
)


MESSAGES_STAGE: Stage[DatasetInputs] = Stage(
    name="messages_dataset",
    folder="messages",
    description="The same steps as chats: lines as qwen-vl-utils and ms-swift read them, tables as "
    "TRL, Axolotl and ms-swift do. The splits are those of the other exports.",
    kinds=frozenset({"json", "parquet"}),
    code_version=EXPORT_LOOP_VERSION,
    section=lambda settings: settings.datasets,
    build=built(messages.build_messages, describe_messages),
    checks=(
        Check(
            "messages_schema",
            "Every line fits the schema; roles alternate, images open, calls parse.",
            _verify_messages,
            compared=("records",),
        ),
    ),
    export=TrainingExport(
        name="messages",
        files="*.jsonl",
        records=messages_record_counts,
        all_written=True,
        hub_tables=(
            HubTable(
                "messages",
                "a step as a chat: `messages` and `images`; the answer is calls of `computer_use`",
                pictures=("images",),
            ),
        ),
    ),
    validated_as=ValidatedFormat(
        name="messages",
        files=(SCHEMA_FILE,),
        validate=lambda path, _: (
            validate_messages(path) if path.is_dir() else validate_messages_file(path)
        ),
        decisive=True,
        line_key="messages",
    ),
    views=(View("messages", "a chat record with its split", "messages/*.parquet", OF_SPLIT),),
    counts=("records",),
)


CUDAG_STAGE: Stage[DatasetInputs] = Stage(
    name="cudag_dataset",
    folder="datasets",
    subfolder=lambda inputs: dataset_directory_name(
        inputs.committed.trajectories, inputs.settings.datasets
    ),
    replaces=replaced_directories,
    description="A CUDAG dataset: data, train and val as JSONL, test with images. No task and no "
    "demonstration is in two splits.",
    kinds=frozenset({"json"}),
    code_version=EXPORT_LOOP_VERSION,
    section=lambda settings: settings.datasets,
    build=built(dataset.build_cudag, describe_cudag),
    checks=(
        Check(
            "one_configuration",
            "No published directory of the same prefix and user was built with other settings.",
            verify_one_configuration,
            compared=("records",),
        ),
        Check(
            "cudag_schema",
            "The directory fits the CUDAG format; splits are disjoint; coordinates agree.",
            _verify_cudag,
            compared=("records",),
        ),
    ),
    export=TrainingExport(
        name="cudag", files="*.json*", records=cudag_record_counts, all_written=True
    ),
    validated_as=ValidatedFormat(
        name="cudag",
        files=("data.jsonl", "train.jsonl", "val.jsonl", "config.json", "images", "test"),
        validate=lambda path, _: (
            validate_cudag_file(path) if path.is_file() else validate_cudag(path)
        ),
        line_key="conversations",
    ),
    counts=("records",),
)
