"""The formats that `demo-pipeline validate` knows, and how each is validated.

Belongs here: one constant per format. The registry entry of a dataset stage names the format that
it writes; the two formats that no dataset stage writes are in `OTHER_FORMATS`.
"""

from pathlib import Path

from demo_pipeline.desktopd.validator import validate_dataset, validate_trajectory
from demo_pipeline.exports.agentnetbench import BENCH_TASKS, validate_agentnetbench
from demo_pipeline.exports.cudag.validator import validate_cudag, validate_cudag_file
from demo_pipeline.exports.grounding import GROUNDING_SCHEMA_FILE, validate_grounding
from demo_pipeline.exports.messages import SCHEMA_FILE
from demo_pipeline.exports.messages_validator import validate_messages, validate_messages_file
from demo_pipeline.exports.sft_validator import validate_sft, validate_sft_folder
from demo_pipeline.exports.step_labels import STEP_LABELS_SCHEMA_FILE, validate_step_labels
from demo_pipeline.exports.transitions import TRANSITIONS_SCHEMA_FILE, validate_transitions
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.osworld.task import validate_task_file
from demo_pipeline.osworld.task_files import is_task_folder, validate_task_folder
from demo_pipeline.pipeline.recording_validation import validate_recording
from demo_pipeline.pipeline.stage_types import ValidatedFormat
from demo_pipeline.problems import Problem
from demo_pipeline.settings import Settings

_SAMPLES_FILE = "samples.jsonl"


def _validate_trajectory(path: Path, _settings: Settings) -> list[Problem]:
    return validate_trajectory(path)


def _validate_dataset(path: Path, _settings: Settings) -> list[Problem]:
    return validate_dataset(path)


def _validate_cudag(path: Path, _settings: Settings) -> list[Problem]:
    return validate_cudag_file(path) if path.is_file() else validate_cudag(path)


def _validate_sft(path: Path, _settings: Settings) -> list[Problem]:
    return validate_sft_folder(path) if path.is_dir() else validate_sft(path)


def _validate_messages(path: Path, _settings: Settings) -> list[Problem]:
    return validate_messages(path) if path.is_dir() else validate_messages_file(path)


def _validate_osworld(path: Path, _settings: Settings) -> list[Problem]:
    return validate_task_folder(path) if path.is_dir() else validate_task_file(path)


def _validate_grounding(path: Path, _settings: Settings) -> list[Problem]:
    return validate_grounding(path)


def _validate_transitions(path: Path, _settings: Settings) -> list[Problem]:
    return validate_transitions(path)


def _validate_step_labels(path: Path, _settings: Settings) -> list[Problem]:
    return validate_step_labels(path)


def _validate_agentnetbench(path: Path, _settings: Settings) -> list[Problem]:
    return validate_agentnetbench(path)


RECORDING_FORMAT = ValidatedFormat(
    name="recording",
    files=RECORDING_FILES,
    validate=validate_recording,
)
TRAJECTORY_FORMAT = ValidatedFormat(
    name="trajectory",
    files=("task.json", "result.json", "steps"),
    validate=_validate_trajectory,
)
DATASET_FORMAT = ValidatedFormat(
    name="dataset", files=("index.json", "trajectories"), validate=_validate_dataset
)
CUDAG_FORMAT = ValidatedFormat(
    name="cudag",
    files=("data.jsonl", "train.jsonl", "val.jsonl", "config.json", "images", "test"),
    validate=_validate_cudag,
    line_key="conversations",
)
SFT_FORMAT = ValidatedFormat(
    name="sft",
    files=(_SAMPLES_FILE,),
    validate=_validate_sft,
    decisive=True,
    file_suffix=".jsonl",
    line_key="input",
)
MESSAGES_FORMAT = ValidatedFormat(
    name="messages",
    files=(SCHEMA_FILE,),
    validate=_validate_messages,
    decisive=True,
    line_key="messages",
)
GROUNDING_FORMAT = ValidatedFormat(
    name="grounding",
    files=(GROUNDING_SCHEMA_FILE,),
    validate=_validate_grounding,
    decisive=True,
)
TRANSITIONS_FORMAT = ValidatedFormat(
    name="transitions",
    files=(TRANSITIONS_SCHEMA_FILE,),
    validate=_validate_transitions,
    decisive=True,
)
AGENTNETBENCH_FORMAT = ValidatedFormat(
    name="agentnetbench", files=(BENCH_TASKS,), validate=_validate_agentnetbench
)
STEP_LABELS_FORMAT = ValidatedFormat(
    name="step_labels",
    files=(STEP_LABELS_SCHEMA_FILE,),
    validate=_validate_step_labels,
    decisive=True,
)
OSWORLD_FORMAT = ValidatedFormat(
    name="osworld",
    files=("examples", "test_all.json"),
    validate=_validate_osworld,
    recognises=is_task_folder,
    file_suffix=".json",
)
OTHER_FORMATS = (TRAJECTORY_FORMAT, RECORDING_FORMAT)
